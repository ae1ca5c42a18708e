"""The daemon keeps the specs up to date while devices of AMD and Intel are added and removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.daemon.cycles import CycleRunner
from support.daemon.host import Host, daemon
from support.hosts import amd_tree, intel_tree

pytestmark = pytest.mark.usefixtures("real_nodes")
AMD, INTEL, NPU = "amd.com-gpu.json", "intel.com-gpu.json", "intel.com-npu.json"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host without any device, whose daemon reacts quickly."""
    made = Host(tmp_path / "host").prepare()
    made.configure()
    return made


def numbers(host: Host, name: str) -> int:
    """Return how many devices of the spec NAME have a number as their name."""
    return sum(device.isdigit() for device in host.devices(name))


def repartition(root: Path, *gpus: amd_tree.AmdGpu) -> None:
    """Replace the GPUs below ROOT by GPUS, as a write to current_compute_partition does."""
    for folder in ("sys/devices", "sys/class/kfd", "sys/bus/pci/drivers/amdgpu", "sys/bus/pci/devices"):
        shutil.rmtree(root / folder, ignore_errors=True)
    for node in (root / "dev/dri").iterdir():
        node.unlink()
    amd_tree.write(root, gpus)
    (root / "sys/class/kfd/kfd/topology/generation_id").write_text("2\n")


def test_specs_follow_the_partitioning_of_gpus(host: Host) -> None:
    whole, split = amd_tree.mi300x(1, count=2), amd_tree.mi300x(8, count=2)
    amd_tree.write(host.root, whole)
    with daemon(host) as running:
        assert numbers(host, AMD) == 2
        repartition(host.root, *split)
        running.sees(lambda: numbers(host, AMD) == 16 and running.state == "ready")
        repartition(host.root, *whole)
        running.sees(lambda: numbers(host, AMD) == 2 and running.state == "ready")


def test_while_a_gpu_is_being_partitioned_no_other_gpu_gets_its_numbers(host: Host) -> None:
    host.configure(settle_timeout_s=3600)
    gpus = amd_tree.mi300x(4, count=2)
    amd_tree.write(host.root, gpus)
    nodes = host.root / amd_tree.NODES
    topology = host.root / "sys/class/kfd/kfd/topology/generation_id"
    with daemon(host) as running:
        running.rests()
        before = (host.specs / AMD).read_bytes()
        lost = [amd_tree.node_of(host.root, render).parent for render in gpus[0].renders]
        for folder in lost:
            folder.rename(host.root / f"kfd-{folder.name}")
        topology.write_text("2\n")
        running.sees(lambda: running.state == "settling")
        assert "is in mode QPX, but KFD lists no part of the GPU" in running.status["vendors"][0]["reason"]
        assert (host.specs / AMD).read_bytes() == before
        for folder in lost:
            (host.root / f"kfd-{folder.name}").rename(nodes / folder.name)
        topology.write_text("3\n")
        running.sees(lambda: running.state == "ready")
        assert (host.specs / AMD).read_bytes() == before


def test_a_daemon_that_starts_during_a_partitioning_waits_before_it_assigns_numbers(host: Host) -> None:
    host.configure(settle_timeout_s=3600)
    gpus = amd_tree.mi300x(4, count=2)
    amd_tree.write(host.root, gpus)
    for render in gpus[0].renders:
        shutil.rmtree(amd_tree.node_of(host.root, render).parent)
    with daemon(host) as running:
        assert running.state == "settling"
        assert host.document(AMD) is None
        host.configure()
        # After the wait, the first GPU is left out. The other GPUs have the same numbers as in AMD's tools.
        running.sees(lambda: running.state == "degraded")
        assert numbers(host, AMD) == 4
        assert amd_tree.ADDRESSES[0] not in host.devices(AMD)


def test_a_permanently_missing_partition_delays_the_first_spec_by_only_five_seconds(host: Host) -> None:
    host.configure(settle_timeout_s=3600)
    gpus = amd_tree.mi300x(8, count=8)
    amd_tree.write(host.root, gpus)
    shutil.rmtree(amd_tree.node_of(host.root, gpus[3].renders[-1]).parent)
    cycles = CycleRunner(host)
    assert (cycles.state(), cycles.state(4.9), host.document(AMD)) == ("settling", "settling", None)
    report = cycles.run_cycle(0.2).report
    assert report.vendors[0].state == "degraded"
    assert "has 7 partitions in CPX, but another GPU of its type has 8" in report.vendors[0].reason
    assert numbers(host, AMD) == 63


def test_an_instinct_gpu_that_kfd_does_not_list_makes_the_host_degraded(host: Host) -> None:
    amd_tree.write(host.root, amd_tree.mi210(8))
    shutil.rmtree(amd_tree.node_of(host.root, 131).parent)
    with daemon(host) as running:
        assert running.state == "degraded"
        assert "cannot compute" in running.status["vendors"][0]["reason"]
        assert numbers(host, AMD) == 7
        assert amd_tree.ADDRESSES[3] not in host.devices(AMD)


def test_a_change_of_a_partition_file_causes_a_cycle(host: Host) -> None:
    amd_tree.write(host.root, amd_tree.mi300x(1, count=1))
    with daemon(host) as running:
        running.rests()
        file = next((host.root / "sys/devices").glob("*/*/current_memory_partition"))
        file.write_text("NPS4\n")
        running.sees(lambda: "current_memory_partition" in str(running.status["last_cycle"]["reasons"]))


def test_a_removed_gpu_is_removed_from_the_spec_and_the_other_gpu_stays(host: Host) -> None:
    amd_tree.write(host.root, amd_tree.mi210(2))
    with daemon(host) as running:
        assert host.devices(AMD) >= {"0", "1", amd_tree.ADDRESSES[1]}
        address = amd_tree.ADDRESSES[1]
        shutil.rmtree(amd_tree.node_of(host.root, 129).parent)
        for folder in ("bus/pci/devices", "bus/pci/drivers/amdgpu"):
            (host.root / "sys" / folder / address).unlink()
        shutil.rmtree(host.root / f"sys/devices/pci0000:00/{address}")
        (host.root / "dev/dri/renderD129").unlink()
        running.sees(lambda: numbers(host, AMD) == 1 and running.state == "ready")
        assert address not in host.devices(AMD)


def test_unloading_a_module_withdraws_its_spec_and_no_other_spec(host: Host) -> None:
    amd_tree.write(host.root, amd_tree.mi210(1))
    intel_tree.lay(host.root, intel_tree.npu())
    with daemon(host) as running:
        assert numbers(host, AMD) == 1
        shutil.rmtree(host.root / "sys/bus/pci/drivers/amdgpu")
        shutil.rmtree(host.root / "sys/module/amdgpu")
        running.sees(lambda: host.document(AMD) is None)
        assert numbers(host, NPU) == 1


def test_specs_follow_created_and_removed_virtual_functions(host: Host) -> None:
    intel_tree.lay(host.root, *intel_tree.flex_170(0))
    physical = host.root / "sys/bus/pci/devices/0000:4d:00.0"
    (physical / "sriov_numvfs").write_text("0\n")
    with daemon(host) as running:
        assert numbers(host, INTEL) == 2
        intel_tree.lay(host.root, *intel_tree.flex_170(3))
        running.sees(lambda: numbers(host, INTEL) == 5 and running.state == "ready")
        for function in intel_tree.flex_170(3)[2:]:
            (host.root / "sys/bus/pci/devices" / function.address).unlink()
            (host.root / f"sys/bus/pci/drivers/i915/{function.address}").unlink()
            shutil.rmtree(host.root / function.folder)
        (physical / "sriov_numvfs").write_text("0\n")
        running.sees(lambda: numbers(host, INTEL) == 2)


def test_a_late_node_of_udev_ends_the_state_settling(host: Host) -> None:
    host.configure(settle_timeout_s=3600)
    intel_tree.lay(host.root, *intel_tree.laptop())
    node = host.root / "dev/accel/accel0"
    node.unlink()
    with daemon(host) as running:
        assert running.state == "settling"
        assert numbers(host, INTEL) == 1
        intel_tree.lay_nodes(host.root, intel_tree.npu())
        running.sees(lambda: running.state == "ready" and numbers(host, NPU) == 1)


def test_missing_kfd_properties_make_the_host_settling_during_a_change(host: Host) -> None:
    host.configure(settle_timeout_s=3600)
    amd_tree.write(host.root, amd_tree.mi210(2))
    properties = amd_tree.node_of(host.root, 129)
    whole = properties.read_text()
    with daemon(host) as running:
        properties.write_text(
            "".join(line for line in whole.splitlines(keepends=True) if "location_id" not in line)
        )
        (host.root / "sys/class/kfd/kfd/topology/generation_id").write_text("2\n")
        running.sees(lambda: running.state == "settling")
        assert numbers(host, AMD) == 2
        properties.write_text(whole)
        running.sees(lambda: running.state == "ready")


# Each row has a vendor, a pattern for devices of this machine that can send an event, and the subsystem of
# these devices. A machine has only some of these devices.
EVENTS = [
    ("amd", "bus/pci/devices/*", "pci"),
    ("amd", "devices/platform/*", "platform"),
    ("amd", "module/*", "module"),
    ("amd", "class/drm/card*", "drm"),
    ("intel", "bus/pci/devices/*", "pci"),
    ("intel", "module/*", "module"),
    ("intel", "class/drm/card*", "drm"),
    ("intel", "class/accel/*", "accel"),
]
HERE = [row for row in EVENTS if any(Path("/sys").glob(f"{row[1]}/uevent"))]


@pytest.mark.usefixtures("uevents")
@pytest.mark.parametrize(("lay", "pattern", "subsystem"), HERE)
def test_an_event_of_the_kernel_causes_a_cycle(host: Host, lay: str, pattern: str, subsystem: str) -> None:
    files = sorted(Path("/sys").glob(f"{pattern}/uevent"))
    if lay == "amd":
        amd_tree.write(host.root, amd_tree.mi210(1))
    else:
        intel_tree.lay(host.root, *intel_tree.laptop())
    with daemon(host, "--vendor", lay) as running:
        running.rests()
        files[0].write_text("change")
        expected = f"{subsystem} change {files[0].parent.name}"
        running.sees(lambda: expected in str(running.status["last_cycle"]["reasons"]))
