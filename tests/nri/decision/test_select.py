"""From what is asked for to names that resolve, with real spec files and without."""

from pathlib import Path

import pytest
from support.nri.host import COMPUTE, DEVICES, MACHINE, allowed, devices, outcome
from support.nri.plugin import Host

from cdigen.host.root import Root
from cdigen.nri.decision.machine import Machine
from cdigen.nri.decision.request import DeviceRequest
from cdigen.nri.decision.select import DeviceNames, choose
from cdigen.runtimes.scan import scan

ALL = "NVIDIA_VISIBLE_DEVICES=all"
EVERY = allowed(kinds=("*",))
UNKNOWN = Machine(problem="there is no inventory")


def item(token: str, kind: str = "", *, qualified: bool = False) -> DeviceRequest:
    return DeviceRequest(token=token, kind=kind, origin="a test", qualified=qualified)


def test_items_keep_their_order_whatever_their_kinds() -> None:
    names = DeviceNames((*DEVICES, "example.com/nic=eth0"))
    items = (
        item("eth0", "example.com/nic", qualified=True),
        item("1:0"),
        item("all", "nvidia.com/gds"),
        item("0"),
    )
    found = choose(items, gpu_kinds=("nvidia.com/gpu",), names=names, machine=MACHINE)
    assert [choice.device for choice in found] == [
        "example.com/nic=eth0",
        "nvidia.com/gpu=1:0",
        "nvidia.com/gds=all",
        "nvidia.com/gpu=0",
    ]
    assert [choice.token for choice in found] == ["eth0", "1:0", "all", "0"]


def test_all_gpus_come_from_one_kind_the_first_that_has_them_all() -> None:
    names = DeviceNames(["nvidia.com/gpu-compute=0", "nvidia.com/gpu=0", "nvidia.com/gpu=1:0"])
    kinds = ("nvidia.com/gpu-compute", "nvidia.com/gpu")
    assert [
        choice.device
        for choice in choose((item("0"), item("1:0")), gpu_kinds=kinds, names=names, machine=MACHINE)
    ] == ["nvidia.com/gpu=0", "nvidia.com/gpu=1:0"]


def test_a_name_in_full_is_taken_as_it_is_written() -> None:
    names = DeviceNames(["example.com/nic=Eth0"])
    asked = {"devices.cdigen.dev": "example.com/nic=eth0"}
    assert outcome(asked=asked, names=names, allow=EVERY).cause == "unknown_device"


def test_without_an_inventory_names_of_the_specs_are_found_all_the_same() -> None:
    assert devices("NVIDIA_VISIBLE_DEVICES=0", machine=UNKNOWN) == ("nvidia.com/gpu=0",)
    refused = outcome("NVIDIA_VISIBLE_DEVICES=1b:00.0", machine=UNKNOWN)
    assert refused.cause == "unknown_device"
    assert "no such GPU" not in refused.reason


def test_beside_all_gpus_of_a_kind_none_counts_by_itself() -> None:
    asked = {
        "devices.cdigen.dev": "nvidia.com/gpu=0,nvidia.com/gds=all,nvidia.com/gpu=all,nvidia.com/gpu=1:0"
    }
    assert devices(asked=asked) == ("nvidia.com/gds=all", "nvidia.com/gpu=all")
    names = DeviceNames(["example.com/nic=all", "example.com/nic=a"])
    items = tuple(item(name, "example.com/nic", qualified=True) for name in ("all", "a"))
    assert len(choose(items, gpu_kinds=(), names=names, machine=MACHINE)) == 2


def test_without_any_spec_a_wish_for_gpus_is_refused() -> None:
    refused = outcome(ALL, names=DeviceNames(()))
    assert (refused.cause, "there is no spec of nvidia.com/gpu" in refused.reason) == ("unknown_device", True)


def test_a_kind_may_not_have_more_devices_than_a_container_can_get() -> None:
    names = DeviceNames(f"nvidia.com/gpu={number}" for number in range(300))
    assert outcome(ALL, names=names).cause == "too_much"


def test_a_reason_shows_some_names_and_counts_the_others() -> None:
    names = DeviceNames(f"nvidia.com/gpu={number}" for number in range(64))
    reason = outcome("NVIDIA_VISIBLE_DEVICES=64", names=names).reason
    assert "nvidia.com/gpu has 0, 1, 2, 3, 4, 5 and 58 more" in reason


@pytest.mark.parametrize("kind", ["nvidia.com/gpu", "nvidia.com/gpu-compute"])
def test_the_policy_chooses_among_kinds_that_give_enough(kind: str) -> None:
    allow = allowed(kinds=(kind,))
    assert devices(ALL, allow=allow, gpu_kinds=COMPUTE) == (f"{kind}=all",)
    wanted = outcome(ALL, "NVIDIA_DRIVER_CAPABILITIES=video", allow=allow, gpu_kinds=COMPUTE)
    assert wanted.cause == ("" if kind == "nvidia.com/gpu" else "not_permitted")


def test_names_and_reasons_come_from_the_specs_as_a_runtime_reads_them(tmp_path: Path) -> None:
    here = Host(tmp_path / "host")
    here.write_spec(["0"])
    for file in ("b.json", "c.json"):
        here.write_spec(["0"], kind="nvidia.com/other", file=file)
    view = scan(("/run/cdi",), Root(str(here.root)), library="1.0.1")
    names = DeviceNames.by_kind(view.names, lambda name: view.resolve(name).reason)
    assert devices("NVIDIA_VISIBLE_DEVICES=0", names=names) == ("nvidia.com/gpu=0",)
    refused = outcome(asked={"devices.cdigen.dev": "nvidia.com/other=0"}, names=names, allow=EVERY)
    assert "both define it" in refused.reason
    assert names.has_kind("nvidia.com/gpu")
    assert not names.has_kind("nvidia.com/other")


def test_a_name_in_full_has_its_own_letter_case_and_another_may_have_any() -> None:
    names = DeviceNames(["nvidia.com/gpu=GPU-A"])
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
