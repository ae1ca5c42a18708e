"""Modules that are loaded on hosts without a device of theirs: absence, where nobody named the vendor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import Looker
from support.daemon.host import Host
from support.hosts import amd_tree, intel_tree
from support.hosts.driver_files import link, put

from cdigen.host.root import Root
from cdigen.model.errors import HostError
from cdigen.pipeline import discovery
from cdigen.vendors import registry

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")


def lay_idle(root: Path) -> None:
    """Lay amdgpu, loaded by whatever asked for it, without a device."""
    (root / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True)
    link(root / "sys/module/amdgpu/drivers/pci:amdgpu", "../../../bus/pci/drivers/amdgpu")


def lay_on_bus(root: Path) -> None:
    folder = root / "sys/bus/pci/devices/0000:03:00.0"
    put(folder / "vendor", b"0x1002\n")
    put(folder / "class", b"0x030000\n")


@pytest.fixture
def laptop(laptop: Path) -> Path:
    """Return a host with one GPU of Intel's, and amdgpu."""
    lay_idle(laptop)
    return laptop


def told(root: Path, kinds: dict[str, str], inventories: tuple[str, ...] = ()) -> list[str]:
    """Return which vendors are told of, whose failures are of KINDS."""
    failures = {name: HostError("it failed", hint="", kind=kind) for name, kind in kinds.items()}
    found = dict.fromkeys(inventories)
    return list(discovery.relevant_failures(found, failures, Root(str(root))))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", registry.VENDORS)
def test_a_module_without_a_device_is_not_told_beside_a_vendor_that_is_there(
    tmp_path: Path, name: str
) -> None:
    assert told(tmp_path, {name: "no-gpu"}, ("other",)) == []


def test_a_module_that_has_not_taken_its_gpu_is_told(tmp_path: Path) -> None:
    lay_on_bus(tmp_path)
    assert told(tmp_path, {"amd": "no-gpu"}, ("intel",)) == ["amd"]


def test_where_nothing_else_is_the_module_without_a_device_is_told(tmp_path: Path) -> None:
    kinds = {"nvidia": "driver-not-loaded", "amd": "no-gpu", "intel": "driver-not-loaded"}
    assert told(tmp_path, kinds) == ["amd"]


def test_a_gpu_whose_module_is_not_loaded_comes_before_a_module_without_a_gpu(tmp_path: Path) -> None:
    lay_on_bus(tmp_path)
    assert told(tmp_path, {"nvidia": "no-gpu", "amd": "driver-not-loaded"}) == ["amd"]


def test_diff_is_content_beside_a_module_without_a_device(cdigen: Run, laptop: Path) -> None:
    assert cdigen("generate", "--root", laptop, "--write").code == 0
    done = cdigen("diff", "--root", laptop)
    assert (done.code, done.out) == (0, "")


def test_doctor_finds_nothing_wrong_with_a_module_without_a_device(cdigen: Run, laptop: Path) -> None:
    rows = cdigen("doctor", "--root", laptop, "--json").json
    assert "no GPU: the module amdgpu" not in str(rows)


def test_a_vendor_that_was_named_is_told_all_the_same(cdigen: Run, laptop: Path) -> None:
    assert cdigen("generate", "--root", laptop, "--vendor", "amd").failed(3, "the module amdgpu is loaded")


def test_the_daemon_does_not_wait_for_a_module_without_a_device(tmp_path: Path) -> None:
    host = Host(tmp_path / "host").prepare()
    host.configure()
    intel_tree.lay(host.root, *intel_tree.laptop())
    lay_idle(host.root)
    cycle = Looker(host).look()
    assert (cycle.report.result, cycle.needs_retry) == ("changed", False)


def test_the_daemon_waits_for_a_gpu_that_a_module_has_not_taken_yet(tmp_path: Path) -> None:
    host = Host(tmp_path / "host").prepare()
    host.configure()
    amd_tree.write(host.root, ())
    lay_on_bus(host.root)
    assert Looker(host).look().needs_retry
