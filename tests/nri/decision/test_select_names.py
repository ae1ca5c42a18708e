"""GPUs by the beginning of their UUID, and by the kind that NVIDIA's runtime makes up."""

import pytest
from support.nri.host import (
    DEVICES,
    MACHINE,
    MIG,
    UUID,
    UUID1,
    allowed,
    container,
    content,
    devices,
    inventory,
    listing,
    machine,
    outcome,
)

from cdigen.nri.decision.machine import Machine
from cdigen.nri.decision.select import DeviceNames
from cdigen.value import replace

GPU, RUNTIME = "nvidia.com/gpu", "runtime.nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OWN = "devices.cdigen.dev"
UNKNOWN = Machine(problem="there is no inventory")
TWIN = "GPU-3c7f6a52-0000-0000-0000-000000000000"


def twins() -> Machine:
    """Return the machine with a third GPU whose UUID begins as the first one's."""
    first, *rest = inventory().accelerators
    twin = replace(first, index=3, uuid=TWIN, minor=3, address="0000:61:00.0")
    return machine(content(inventory(accelerators=(first, *rest, twin))))


@pytest.mark.parametrize("known", [MACHINE, UNKNOWN], ids=["inventory", "none"])
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
def test_the_beginning_of_a_uuid_names_a_gpu(value: str, index: str, uuid: str, known: Machine) -> None:
    name = f"{GPU}={index if known is MACHINE else uuid}"
    assert devices(f"{VISIBLE}={value}", machine=known) == (name,)
    assert devices(here=listing(value), machine=known) == (name,)


@pytest.mark.parametrize("known", [twins(), UNKNOWN], ids=["inventory", "none"])
def test_a_beginning_of_two_uuids_is_refused_and_both_are_named(known: Machine) -> None:
    names = DeviceNames((*DEVICES, f"{GPU}={TWIN}"))
    decision = outcome(f"{VISIBLE}={UUID[:12]}", machine=known, names=names)
    assert (decision.outcome, decision.cause) == ("refuse", "unknown_device")
    assert [word for word in (f"'{UUID[:12]}': so begin", UUID, TWIN) if word not in decision.reason] == []
    assert devices(f"{VISIBLE}={UUID[:14]}", machine=known, names=names) != ()
    assert devices(f"{VISIBLE}={TWIN}", machine=known, names=names) == (f"{GPU}={TWIN}",)


@pytest.mark.parametrize("value", ["GPU-", "MIG-", "GPU", "3c7f6a52", "GPU-3c7f6a52x", f"{UUID}0", "GPU-*"])
def test_what_begins_no_uuid_is_unknown(value: str) -> None:
    assert outcome(f"{VISIBLE}={value}").cause == "unknown_device"


def test_the_beginning_of_a_gpu_in_mig_mode_is_that_gpu() -> None:
    assert "is in MIG mode" in outcome(f"{VISIBLE}={UUID1[:9]}").reason


def test_a_gpu_is_not_given_twice_by_two_beginnings() -> None:
    assert len(devices(f"{VISIBLE}={UUID[:6]},{UUID[:9]},0,{UUID}")) == 1


def test_a_name_of_another_spec_is_not_taken_for_the_beginning_of_a_uuid() -> None:
    """gpu-3 is a whole name there, and not GPU-3c7f6a52-..., which is GPU 0."""
    kind = "k8s.gpu.nvidia.com/device"
    names = DeviceNames((*DEVICES, f"{kind}=gpu-3", f"{kind}=0"))
    asked = {OWN: f"{kind}=0,{kind}=gpu-3"}
    allow = allowed(kinds=(kind,))
    assert devices(asked=asked, names=names, allow=allow) == (f"{kind}=0", f"{kind}=gpu-3")


def test_in_an_annotation_a_name_is_whole() -> None:
    assert outcome(asked={OWN: f"{GPU}={UUID[:12]}"}).cause == "unknown_device"


@pytest.mark.parametrize(
    ("token", "name"),
    [("0", "0"), (UUID, UUID), (UUID.lower(), UUID), ("all", "all"), ("1:0", "1:0"), ("0000:1b:00.0", "0")],
)
def test_the_kind_that_nvidias_runtime_makes_up_is_that_of_gpus(token: str, name: str) -> None:
    asked = f"{RUNTIME}={token}"
    expected = (f"{GPU}={name}",)
    assert devices(f"{VISIBLE}={asked}") == expected
    assert devices(asked={OWN: asked}) == expected
    assert devices(asked={"nvidia.cdi.k8s.io/pod": asked}) == expected
    assert devices(here=listing(f"cdi/{asked}")) == expected
    assert devices(f"{VISIBLE}={asked},{GPU}={name}") == expected


def test_it_is_allowed_as_the_kind_of_gpus_is() -> None:
    decision = outcome(asked={OWN: f"{RUNTIME}=0"}, management_kinds=(GPU,))
    assert (decision.outcome, decision.cause) == ("refuse", "not_permitted")


def test_an_unknown_one_is_named_as_it_was_asked_for() -> None:
    decision = outcome(asked={OWN: f"{RUNTIME}=9"})
    assert (decision.outcome, decision.cause) == ("refuse", "unknown_device")
    assert f"'{RUNTIME}=9'" in decision.reason


@pytest.mark.parametrize("token", ["0", UUID, UUID[:12]])
def test_it_is_there_already_where_that_gpu_is(token: str) -> None:
    asked = {OWN: f"{RUNTIME}={token}"}
    there = container(devices=("/dev/nvidia0",), mounts=("/usr/lib/libcuda.so.1",))
    assert outcome(asked=asked, here=there).outcome == "served"
    assert devices(asked=asked, here=replace(there, devices=("/dev/nvidia1",))) != ()
