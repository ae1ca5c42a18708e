"""cdigen resolves requests to CDI devices, with and without real spec files."""

from pathlib import Path

import pytest
from support.nri.device_names import device_names
from support.nri.host import COMPUTE, DEVICES, HOST_GPUS, allowed, devices, outcome
from support.nri.plugin import Host

from cdigen.host.root import Root
from cdigen.nri.decision.request.device_request import DeviceRequest
from cdigen.nri.decision.request.host_gpus import HostGpus
from cdigen.nri.decision.request.select import DeviceNames, choose
from cdigen.runtimes.scan import scan

ALL = "NVIDIA_VISIBLE_DEVICES=all"
EVERY = allowed(kinds=("*",))
UNKNOWN = HostGpus(problem="there is no inventory")


def item(token: str, kind: str = "", *, qualified: bool = False) -> DeviceRequest:
    return DeviceRequest(token=token, kind=kind, origin="a test", qualified=qualified)


def test_devices_have_the_order_of_the_requests_whatever_their_kinds() -> None:
    names = device_names((*DEVICES, "example.com/nic=eth0"))
    items = (
        item("eth0", "example.com/nic", qualified=True),
        item("1:0"),
        item("all", "nvidia.com/gds"),
        item("0"),
    )
    found = choose(items, gpu_kinds=("nvidia.com/gpu",), names=names, host_gpus=HOST_GPUS)
    assert [choice.device for choice in found] == [
        "example.com/nic=eth0",
        "nvidia.com/gpu=1:0",
        "nvidia.com/gds=all",
        "nvidia.com/gpu=0",
    ]
    assert [choice.token for choice in found] == ["eth0", "1:0", "all", "0"]


def test_gpus_come_from_the_first_kind_that_has_all_requested_gpus() -> None:
    names = device_names(["nvidia.com/gpu-compute=0", "nvidia.com/gpu=0", "nvidia.com/gpu=1:0"])
    kinds = ("nvidia.com/gpu-compute", "nvidia.com/gpu")
    assert [
        choice.device
        for choice in choose((item("0"), item("1:0")), gpu_kinds=kinds, names=names, host_gpus=HOST_GPUS)
    ] == ["nvidia.com/gpu=0", "nvidia.com/gpu=1:0"]


def test_a_qualified_name_is_used_literally() -> None:
    names = device_names(["example.com/nic=Eth0"])
    asked = {"devices.cdigen.dev": "example.com/nic=eth0"}
    assert outcome(pod_annotations=asked, names=names, allow=EVERY).cause == "unknown_device"


def test_names_of_the_specs_are_found_without_an_inventory() -> None:
    assert devices("NVIDIA_VISIBLE_DEVICES=0", host_gpus=UNKNOWN) == ("nvidia.com/gpu=0",)
    for name in ("1b:00.0", "GPU-1a2b3c4d", "minor7"):
        refused = outcome(f"NVIDIA_VISIBLE_DEVICES={name}", host_gpus=UNKNOWN)
        assert refused.cause == "unknown_device"
        assert "no such GPU" not in refused.reason
        assert refused.reason.endswith(f"such as PCI addresses, are unknown: {UNKNOWN.problem}")


def test_all_replaces_the_single_gpus_of_its_kind() -> None:
    asked = {
        "devices.cdigen.dev": "nvidia.com/gpu=0,nvidia.com/gds=all,nvidia.com/gpu=all,nvidia.com/gpu=1:0"
    }
    assert devices(pod_annotations=asked) == ("nvidia.com/gds=all", "nvidia.com/gpu=all")
    names = device_names(["example.com/nic=all", "example.com/nic=a"])
    items = tuple(item(name, "example.com/nic", qualified=True) for name in ("all", "a"))
    assert len(choose(items, gpu_kinds=(), names=names, host_gpus=HOST_GPUS)) == 2


def test_a_gpu_request_without_a_spec_is_refused() -> None:
    refused = outcome(ALL, names=device_names(()))
    assert (refused.cause, "no spec of nvidia.com/gpu" in refused.reason) == ("unknown_device", True)


def test_a_request_for_all_devices_of_a_kind_with_too_many_devices_is_refused() -> None:
    names = device_names(f"nvidia.com/gpu={number}" for number in range(300))
    assert outcome(ALL, names=names).cause == "too_much"


def test_the_reason_of_a_refusal_has_six_names_and_the_number_of_further_names() -> None:
    names = device_names(f"nvidia.com/gpu={number}" for number in range(64))
    reason = outcome("NVIDIA_VISIBLE_DEVICES=64", names=names).reason
    assert "nvidia.com/gpu has 0, 1, 2, 3, 4, 5 and 58 more" in reason


@pytest.mark.parametrize("kind", ["nvidia.com/gpu", "nvidia.com/gpu-compute"])
def test_the_policy_chooses_among_the_kinds_with_the_capabilities(kind: str) -> None:
    allow = allowed(kinds=(kind,))
    assert devices(ALL, allow=allow, gpu_kinds=COMPUTE) == (f"{kind}=all",)
    decision = outcome(ALL, "NVIDIA_DRIVER_CAPABILITIES=video", allow=allow, gpu_kinds=COMPUTE)
    assert decision.cause == ("" if kind == "nvidia.com/gpu" else "not_permitted")


def test_names_and_reasons_match_the_runtimes_view_of_the_specs(tmp_path: Path) -> None:
    here = Host(tmp_path / "host")
    here.write_spec(["0"])
    for file in ("b.json", "c.json"):
        here.write_spec(["0"], kind="nvidia.com/other", file=file)
    view = scan(("/run/cdi",), Root(str(here.root)), library="1.0.1")
    names = DeviceNames(view.names, lambda name: view.resolve(name).reason)
    assert devices("NVIDIA_VISIBLE_DEVICES=0", names=names) == ("nvidia.com/gpu=0",)
    refused = outcome(pod_annotations={"devices.cdigen.dev": "nvidia.com/other=0"}, names=names, allow=EVERY)
    assert "both define the device" in refused.reason
    assert names.has_kind("nvidia.com/gpu")
    assert not names.has_kind("nvidia.com/other")


def test_only_qualified_names_are_case_sensitive() -> None:
    names = device_names(["nvidia.com/gpu=GPU-A"])
    assert (
        names.find("nvidia.com/gpu", "gpu-a")
        == names.find("nvidia.com/gpu", "GPU-A", in_any_case=False)
        == "nvidia.com/gpu=GPU-A"
    )
    assert (
        names.find("nvidia.com/gpu", "gpu-a", in_any_case=False)
        == names.find("example.com/nic", "gpu-a")
        == ""
    )
