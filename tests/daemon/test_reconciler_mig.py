"""The names of MIG devices while NVML fails.

A name stays as long as its instance exists, and never means another instance. The real NVML child loads a
stand-in for NVIDIA's library. The stand-in responds, fails, hangs or crashes.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.cycles import CycleRunner
from support.daemon.host import OLD, Host, daemon, nvml_children
from support.daemon.kernel_records import xid
from support.hosts.mig import cap_paths, write_instance, write_minors
from support.hosts.nvidia_kernel import example_gpus, make_node, write
from support.nvml.standin import Gpu, Instance, Machine, install, trusted_folder, uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.command.fixtures import Run
    from support.daemon.kernel_records import FakeLog

pytestmark = pytest.mark.usefixtures("real_nodes")

BOOT = "proc/sys/kernel/random/boot_id"
# NVML does not list the instances in the order of their IDs.
GI_OF_NUMBER = (9, 7, 8)
FAULTS = ("* error 15", "load crash", "load exit 0", "nvmlDeviceGetMigMode error 999", "load hang")


class MigHost:
    """A host with two GPUs, and its NVML. The first GPU is split into three instances."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self.library = ""
        self._folder = folder
        host.boot()
        write_minors(host.root, 2)
        for gi in GI_OF_NUMBER:
            write_instance(host.root, 0, gi)
        self.nvml()

    def nvml(self, *faults: str, gpu_faults: tuple[str, ...] = ()) -> None:
        """Install an NVML with FAULTS, and GPU_FAULTS for the first GPU. The path of NVML stays the same."""
        machine = Machine(gpus=self.gpus(*gpu_faults), faults=faults)
        self.library = str(install(self._folder, machine))

    def gpus(self, *faults: str) -> tuple[Gpu, Gpu]:
        """Return the GPUs in NVML; the first GPU has FAULTS."""
        first, second = example_gpus(2)
        instances = tuple(
            Instance(gpu_instance=gi, compute_instance=0, uuid=uuid(gi, "MIG"), profile="2g.20gb")
            for gi in GI_OF_NUMBER
        )
        return (
            Gpu(address=first.bdf, uuid=first.uuid, minor=0, mig=True, instances=instances, faults=faults),
            Gpu(address=second.bdf, uuid=second.uuid, minor=1),
        )

    def remove_instance(self, gi: int) -> None:
        shutil.rmtree(self.host.root / f"proc/driver/nvidia/capabilities/gpu0/mig/gi{gi}")

    @property
    def names_file(self) -> Path:
        return self.host.root / "var/lib/cdigen/partition-names.json"

    @property
    def cycles(self) -> CycleRunner:
        """The cycles of a daemon that has just started."""
        return CycleRunner(self.host, "--nvml", self.library)

    def meanings(self) -> dict[str, tuple[str, ...]]:
        """Return the nodes of each device of the first GPU in the spec on the disk."""
        document = self.host.document() or {"devices": []}
        return {
            device["name"]: tuple(sorted(node["path"] for node in device["containerEdits"]["deviceNodes"]))
            for device in document["devices"]
            if device["name"].startswith(("0:", "MIG-"))
        }


NAMED = {
    name: tuple(sorted({"/dev/nvidia0", *cap_paths(0, gi)}))
    for number, gi in enumerate(GI_OF_NUMBER)
    for name in (f"0:{number}", uuid(gi, "MIG"))
}
UNNAMED = {f"0:gi{gi}-ci0": tuple(sorted({"/dev/nvidia0", *cap_paths(0, gi)})) for gi in sorted(GI_OF_NUMBER)}


@pytest.fixture
def mig(host: Host) -> Iterator[MigHost]:
    with trusted_folder() as folder:
        yield MigHost(host, folder)


@pytest.fixture
def cycles(mig: MigHost) -> CycleRunner:
    """Return the cycles of a daemon that has written the spec."""
    cycles = mig.cycles
    assert cycles.state() == "ready"
    return cycles


def findings(done: Any, rule: str) -> list[Any]:
    return [finding for finding in done.report.findings if finding.rule == rule]


def test_the_daemon_keeps_the_names_while_nvml_hangs_and_reports_the_reason(mig: MigHost) -> None:
    with daemon(mig.host, "--nvml", mig.library) as running:
        running.sees(lambda: running.state == "ready")
        before = mig.host.spec.read_bytes()
        assert mig.meanings() == NAMED
        mig.nvml("load hang")
        # This change does not concern MIG. It causes a cycle in which NVML does not respond.
        mig.host.put("etc/vulkan/icd.d/nvidia_layers.json", "{}")
        running.sees(lambda: running.state == "degraded")
        assert "NVML did not answer within 10 s" in running.status["vendors"][0]["reason"]
        assert mig.meanings() == NAMED
        mig.host.root.joinpath("etc/vulkan/icd.d/nvidia_layers.json").unlink()
        running.sees(lambda: mig.host.spec.read_bytes() == before)


def test_a_kernel_error_is_in_the_inventory_while_nvml_hangs_in_a_cycle(mig: MigHost, log: FakeLog) -> None:
    def partitions() -> list[set[str]]:
        parts = mig.host.accelerators()[0]["partitions"]
        return [{cause["cause"] for cause in part["causes"]} for part in parts]

    with daemon(mig.host, "--nvml", mig.library) as running:
        running.sees(lambda: running.state == "ready")
        cycles = running.rests()
        mig.nvml("load hang")
        mig.host.put("etc/vulkan/icd.d/nvidia_layers.json", "{}")
        # The cycle has begun, and waits for NVML.
        running.sees(lambda: nvml_children(running.process.pid))
        log.write(xid(79, 1, example_gpus(1)[0].bdf))
        running.sees(lambda: all("xid-79" in causes for causes in partitions()))
        assert running.cycles == cycles


@pytest.mark.parametrize("fault", FAULTS[:-1])
def test_the_spec_is_unchanged_if_nvml_fails(mig: MigHost, cycles: CycleRunner, fault: str) -> None:
    before = mig.host.spec.read_bytes()
    mig.nvml(fault)
    done = cycles.run_cycle()
    assert done.report.vendors[0].state == "degraded"
    assert "keep their last known names" in done.report.vendors[0].reason
    assert mig.host.spec.read_bytes() == before
    assert not findings(done, "mig-not-named")
    # NVML is queried again soon. When NVML responds, the state is ready.
    assert done.needs_retry
    mig.nvml()
    assert cycles.state() == "ready"
    assert mig.host.spec.read_bytes() == before


def test_names_are_kept_over_a_restart_of_the_daemon(mig: MigHost) -> None:
    assert mig.cycles.state() == "ready"
    mig.nvml("* error 15")
    assert mig.cycles.state() == "degraded"
    assert mig.meanings() == NAMED


def test_the_command_keeps_names_as_the_daemon_does(mig: MigHost, cdigen: Run) -> None:
    options = ("generate", "--write", "--root", str(mig.host.root), "--nvml")
    assert cdigen(*options, mig.library).code == 0
    assert mig.meanings() == NAMED
    mig.nvml("* error 15")
    result = cdigen(*options, mig.library)
    assert result.code == 0
    assert "NVML call failed" in result.err
    assert "keep their last known names" in result.err
    assert mig.meanings() == NAMED
    # A command that only prints has the same content.
    printed = cdigen("generate", "--root", str(mig.host.root), "--nvml", mig.library).out
    assert {device["name"] for device in json.loads(printed)["devices"]} >= NAMED.keys()


@pytest.mark.parametrize("fault", FAULTS[:2])
def test_if_nvml_has_never_responded_names_come_from_the_kernel(mig: MigHost, fault: str) -> None:
    mig.nvml(fault)
    cycles = mig.cycles
    done = cycles.run_cycle()
    assert done.report.vendors[0].state == "degraded"
    assert mig.meanings() == UNNAMED
    (finding,) = findings(done, "mig-not-named")
    assert "was not queried" not in finding.message
    mig.nvml()
    assert cycles.state() == "ready"
    assert mig.meanings() == NAMED


def test_the_finding_reports_that_nvml_was_not_queried(mig: MigHost) -> None:
    done = CycleRunner(mig.host, "--nvml", "off").run_cycle()
    assert done.report.vendors[0].state == "ready"
    (finding,) = findings(done, "mig-not-named")
    assert (finding.severity, "NVML was not queried" in finding.message) == ("info", True)
    assert mig.meanings() == UNNAMED


def test_saved_names_are_ignored_if_the_kernel_reports_no_boot_id(mig: MigHost) -> None:
    (mig.host.root / BOOT).unlink()
    assert mig.cycles.state() == "ready"
    assert mig.meanings() == NAMED
    mig.nvml("* error 15")
    mig.cycles.run_cycle()
    assert mig.meanings() == UNNAMED


def test_names_come_from_the_kernel_after_an_instance_changed(mig: MigHost, cycles: CycleRunner) -> None:
    mig.nvml("* error 15")
    mig.remove_instance(7)
    cycles.run_cycle()
    remaining = {name: nodes for name, nodes in UNNAMED.items() if name != "0:gi7-ci0"}
    assert mig.meanings() == remaining
    # An instance that is created again with the same IDs may be another instance.
    write_instance(mig.host.root, 0, 7)
    cycles.run_cycle()
    assert mig.meanings() == UNNAMED


def test_a_gpu_with_an_incomplete_nvml_response_keeps_its_names(mig: MigHost, cycles: CycleRunner) -> None:
    mig.nvml(gpu_faults=("nvmlDeviceGetComputeInstanceId error 999",))
    done = cycles.run_cycle()
    assert done.report.vendors[0].state == "degraded"
    assert "nvmlDeviceGetComputeInstanceId" in findings(done, "mig-names-kept")[0].message
    assert mig.meanings() == NAMED


def test_names_are_kept_if_nvml_contradicts_the_kernel_before_it_fails(
    mig: MigHost, cycles: CycleRunner
) -> None:
    # Error 6 is NOT_FOUND. NVML responds, but lists none of the kernel's instances.
    mig.nvml(gpu_faults=("nvmlDeviceGetMigDeviceHandleByIndex error 6",))
    assert cycles.state() == "settling"
    mig.nvml("* error 15")
    assert cycles.state() == "degraded"
    assert mig.meanings() == NAMED
    # A new daemon without a spec has only the saved names.
    mig.host.spec.unlink()
    assert mig.cycles.state() == "degraded"
    assert mig.meanings() == NAMED


@pytest.mark.parametrize("change", ["boot", "driver", "GPU"])
def test_saved_names_of_another_boot_driver_or_gpu_are_ignored(mig: MigHost, change: str) -> None:
    assert mig.cycles.state() == "ready"
    mig.nvml("* error 15")
    gpu = example_gpus(1)[0]
    match change:
        case "boot":
            mig.host.boot(2)
        case "driver":
            mig.host.install("550.200.07")
            mig.host.set_version("550.200.07")
        case _:
            information = mig.host.root / f"proc/driver/nvidia/gpus/{gpu.bdf}/information"
            write(information, information.read_text().replace(gpu.uuid, uuid(77)))
    mig.cycles.run_cycle()
    assert mig.meanings() == UNNAMED


def test_names_stay_while_the_gpus_own_node_is_missing(mig: MigHost, cycles: CycleRunner) -> None:
    node = example_gpus(1)[0].nodes[0]
    mig.host.root.joinpath(node.path.lstrip("/")).unlink()
    cycles.run_cycle()
    mig.nvml("* error 15")
    make_node(mig.host.root, node)
    cycles.run_cycle()
    assert mig.meanings() == NAMED


def test_names_stay_while_the_drivers_libraries_are_replaced(mig: MigHost, cycles: CycleRunner) -> None:
    mig.host.uninstall()
    cycles.run_cycle()
    mig.host.install(OLD)
    mig.nvml("* error 15")
    cycles.run_cycle()
    assert mig.meanings() == NAMED


def test_a_command_for_another_vendor_removes_no_names(mig: MigHost, cdigen: Run) -> None:
    options = ("generate", "--write", "--root", str(mig.host.root), "--nvml")
    assert cdigen(*options, mig.library).code == 0
    assert cdigen(*options, mig.library, "--vendor", "amd").code == 3
    mig.nvml("* error 15")
    assert cdigen(*options, mig.library).code == 0
    assert mig.meanings() == NAMED


def test_names_are_dropped_when_the_driver_is_unloaded(mig: MigHost, cycles: CycleRunner) -> None:
    shutil.move(mig.host.root / "proc/driver/nvidia", mig.host.root / "unloaded")
    cycles.run_cycle()
    shutil.move(mig.host.root / "unloaded", mig.host.root / "proc/driver/nvidia")
    mig.nvml("* error 15")
    cycles.run_cycle()
    assert mig.meanings() == UNNAMED


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 1, "boot": "", "gpus": 7}'])
def test_a_damaged_names_file_loses_only_the_names(mig: MigHost, cycles: CycleRunner, content: str) -> None:
    mig.names_file.write_text(content)
    loses_names_until_nvml_answers(mig, cycles)


def loses_names_until_nvml_answers(mig: MigHost, cycles: CycleRunner) -> None:
    mig.nvml("* error 15")
    assert cycles.state() == "degraded"
    assert mig.meanings() == UNNAMED
    mig.nvml()
    assert cycles.state() == "ready"
    assert mig.meanings() == NAMED


def test_an_unwritable_names_file_is_reported(mig: MigHost) -> None:
    (mig.host.root / "var/lib/cdigen/partition-names.json").mkdir(parents=True)
    done = mig.cycles.run_cycle()
    assert [f.path for f in done.report.findings if f.severity == "error"] == [
        f"{mig.host.root}/var/lib/cdigen/partition-names.json"
    ]
    assert mig.meanings() == NAMED


def test_a_host_without_partitions_has_no_names_file(host: Host) -> None:
    assert CycleRunner(host).state() == "ready"
    assert not (host.root / "var/lib/cdigen/partition-names.json").exists()


def test_while_the_kernel_and_nvml_disagree_the_spec_is_unchanged(mig: MigHost, cycles: CycleRunner) -> None:
    # NVML does not report the new instance yet.
    write_instance(mig.host.root, 0, 10)
    assert cycles.state() == "settling"
    assert mig.meanings() == NAMED
    assert cycles.state(after_s=31) == "degraded"
    assert mig.meanings() == NAMED
    assert not any("gi10" in name for name in mig.meanings())


def test_gpu_numbers_that_differ_in_cdigen_and_nvml_are_reported(mig: MigHost) -> None:
    first, second = mig.gpus()
    agreeing = mig.cycles.run_cycle()
    assert not findings(agreeing, "gpu-numbers-differ")
    with trusted_folder() as folder:
        done = CycleRunner(
            mig.host, "--nvml", str(install(folder, Machine(gpus=(second, first))))
        ).run_cycle()
    (finding,) = findings(done, "gpu-numbers-differ")
    assert f"{first.address} is GPU 0 in cdigen and 1 in NVML" in finding.message
    assert f"{second.address} is GPU 1 in cdigen and 0 in NVML" in finding.message
    # The names keep the order of the addresses.
    assert mig.meanings() == NAMED
