"""GPU requests by the prefix of a UUID, and by the kind of NVIDIA's runtime (`runtime.nvidia.com/gpu`)."""

import pytest
from support.nri.device_names import device_names
from support.nri.host import (
    DEVICES,
    HOST_GPUS,
    MIG,
    UUID,
    UUID1,
    allowed,
    container,
    content,
    devices,
    host_gpus,
    inventory,
    listing,
    outcome,
)

from cdigen.nri.decision.request.host_gpus import HostGpus
from cdigen.value import replace

GPU, RUNTIME = "nvidia.com/gpu", "runtime.nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OWN = "devices.cdigen.dev"
UNKNOWN = HostGpus(problem="there is no inventory")
TWIN = "GPU-3c7f6a52-0000-0000-0000-000000000000"


def twins() -> HostGpus:
    """Return the GPUs of a host. The UUIDs of the first and the fourth GPU have the same prefix."""
    first, *rest = inventory().accelerators
    twin = replace(first, index=3, uuid=TWIN, minor=3, address="0000:61:00.0")
    return host_gpus(content(inventory(accelerators=(first, *rest, twin))))


@pytest.mark.parametrize("gpus", [HOST_GPUS, UNKNOWN], ids=["inventory", "none"])
@pytest.mark.parametrize(
    ("value", "index", "uuid"),
    [
        (UUID[:5], "0", UUID),
        (UUID[:12], "0", UUID),
        (UUID[:13], "0", UUID),
        (UUID[:-1], "0", UUID),
        (UUID[:12].lower(), "0", UUID),
        (UUID[:12].upper(), "0", UUID),
        (MIG[:8], "1:0", MIG),
    ],
)
def test_the_prefix_of_a_uuid_matches_a_gpu(value: str, index: str, uuid: str, gpus: HostGpus) -> None:
    name = f"{GPU}={index if gpus is HOST_GPUS else uuid}"
    assert devices(f"{VISIBLE}={value}", host_gpus=gpus) == (name,)
    assert devices(here=listing(value), host_gpus=gpus) == (name,)


@pytest.mark.parametrize("gpus", [twins(), UNKNOWN], ids=["inventory", "none"])
def test_an_ambiguous_uuid_prefix_is_refused_with_the_candidates(gpus: HostGpus) -> None:
    names = device_names((*DEVICES, f"{GPU}={TWIN}"))
    decision = outcome(f"{VISIBLE}={UUID[:12]}", host_gpus=gpus, names=names)
    assert (decision.outcome, decision.cause) == ("refuse", "unknown_device")
    assert [
        word
        for word in (f"'{UUID[:12]}': several UUIDs have this prefix", UUID, TWIN)
        if word not in decision.reason
    ] == []
    assert devices(f"{VISIBLE}={UUID[:14]}", host_gpus=gpus, names=names) != ()
    assert devices(f"{VISIBLE}={TWIN}", host_gpus=gpus, names=names) == (f"{GPU}={TWIN}",)


@pytest.mark.parametrize("value", ["GPU-", "MIG-", "GPU", "3c7f6a52", "GPU-3c7f6a52x", f"{UUID}0", "GPU-*"])
def test_a_text_that_is_the_prefix_of_no_uuid_is_unknown(value: str) -> None:
    assert outcome(f"{VISIBLE}={value}").cause == "unknown_device"


def test_the_uuid_prefix_of_a_gpu_in_mig_mode_is_refused() -> None:
    assert "is in MIG mode" in outcome(f"{VISIBLE}={UUID1[:9]}").reason


def test_two_prefixes_of_one_gpu_inject_it_once() -> None:
    assert len(devices(f"{VISIBLE}={UUID[:6]},{UUID[:9]},0,{UUID}")) == 1


def test_a_device_name_has_priority_over_a_uuid_prefix() -> None:
    """In this kind, gpu-3 is a complete name. It does not request GPU 0, whose UUID is GPU-3c7f6a52-..."""
    kind = "k8s.gpu.nvidia.com/device"
    names = device_names((*DEVICES, f"{kind}=gpu-3", f"{kind}=0"))
    device = {OWN: f"{kind}=0,{kind}=gpu-3"}
    allow = allowed(kinds=(kind,))
    assert devices(pod_annotations=device, names=names, allow=allow) == (f"{kind}=0", f"{kind}=gpu-3")


def test_an_annotation_does_not_accept_a_uuid_prefix() -> None:
    assert outcome(pod_annotations={OWN: f"{GPU}={UUID[:12]}"}).cause == "unknown_device"


@pytest.mark.parametrize(
    ("token", "name"),
    [("0", "0"), (UUID, UUID), (UUID.lower(), UUID), ("all", "all"), ("1:0", "1:0"), ("0000:1b:00.0", "0")],
)
def test_the_kind_of_nvidias_runtime_is_resolved_to_the_gpu_kind(token: str, name: str) -> None:
    device = f"{RUNTIME}={token}"
    expected = (f"{GPU}={name}",)
    assert devices(f"{VISIBLE}={device}") == expected
    assert devices(pod_annotations={OWN: device}) == expected
    assert devices(pod_annotations={"nvidia.cdi.k8s.io/pod": device}) == expected
    assert devices(here=listing(f"cdi/{device}")) == expected
    assert devices(f"{VISIBLE}={device},{GPU}={name}") == expected


def test_the_kind_of_nvidias_runtime_is_permitted_with_the_gpu_kind() -> None:
    decision = outcome(pod_annotations={OWN: f"{RUNTIME}=0"}, management_kinds=(GPU,))
    assert (decision.outcome, decision.cause) == ("refuse", "not_permitted")


def test_an_unknown_device_is_reported_with_its_requested_name() -> None:
    decision = outcome(pod_annotations={OWN: f"{RUNTIME}=9"})
    assert (decision.outcome, decision.cause) == ("refuse", "unknown_device")
    assert f"'{RUNTIME}=9'" in decision.reason


@pytest.mark.parametrize("token", ["0", UUID, UUID[:12]])
def test_an_injected_gpu_serves_the_kind_of_nvidias_runtime(token: str) -> None:
    device = {OWN: f"{RUNTIME}={token}"}
    there = container(devices=("/dev/nvidia0",), mounts=("/usr/lib/libcuda.so.1",))
    assert outcome(pod_annotations=device, here=there).outcome == "served"
    assert devices(pod_annotations=device, here=replace(there, devices=("/dev/nvidia1",))) != ()
