"""MIG while NVML is silent: names stay as long as the instances do, and no number ever means another one.

The real NVML child loads the stand-in for NVIDIA's library, which answers, refuses, hangs or crashes.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.cycles import Looker
from support.daemon.host import OLD, Host, asking, daemon
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
# NVML's order of the instances is not that of their ids.
GI_OF_NUMBER = (9, 7, 8)
SILENT = ("* error 15", "load crash", "load exit 0", "nvmlDeviceGetMigMode error 999", "load hang")


class MigHost:
    """A host of two GPUs whose first is split into three, and its NVML."""

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
        """Make NVML answer, or fail in these ways; the library itself stays in its place."""
        machine = Machine(gpus=self.gpus(*gpu_faults), faults=faults)
        self.library = str(install(self._folder, machine))

    def gpus(self, *faults: str) -> tuple[Gpu, Gpu]:
        """Return the GPUs as NVML has them; it fails by FAULTS for the first."""
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
    def memory(self) -> Path:
        return self.host.root / "var/lib/cdigen/partition-names.json"

    @property
    def looker(self) -> Looker:
        """A daemon that has just started."""
        return Looker(self.host, "--nvml", self.library)

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
def looker(mig: MigHost) -> Looker:
    """Return the cycles of a daemon to which NVML has named the instances."""
    looker = mig.looker
    assert looker.state() == "ready"
    return looker


def said(looked: Any, rule: str) -> list[Any]:
    return [finding for finding in looked.report.findings if finding.rule == rule]


def test_the_daemon_keeps_the_names_while_nvml_hangs_and_says_why(mig: MigHost) -> None:
    with daemon(mig.host, "--nvml", mig.library) as running:
        running.sees(lambda: running.state == "ready")
        before = mig.host.spec.read_bytes()
        assert mig.meanings() == NAMED
        mig.nvml("load hang")
        # What is new has nothing to do with MIG: the daemon looks, and NVML does not answer.
        mig.host.put("etc/vulkan/icd.d/nvidia_layers.json", "{}")
        running.sees(lambda: running.state == "degraded")
        assert "NVML did not answer within 10 s" in running.status["vendors"][0]["reason"]
        assert mig.meanings() == NAMED
        mig.host.root.joinpath("etc/vulkan/icd.d/nvidia_layers.json").unlink()
        running.sees(lambda: mig.host.spec.read_bytes() == before)


def test_an_error_is_in_the_inventory_while_nvml_hangs_in_a_cycle(mig: MigHost, log: FakeLog) -> None:
    def partitions() -> list[set[str]]:
        parts = mig.host.accelerators()[0]["partitions"]
        return [{cause["cause"] for cause in part["causes"]} for part in parts]

    with daemon(mig.host, "--nvml", mig.library) as running:
        running.sees(lambda: running.state == "ready")
        cycles = running.rests()
        mig.nvml("load hang")
        mig.host.put("etc/vulkan/icd.d/nvidia_layers.json", "{}")
        # The cycle has begun, and waits for NVML.
        running.sees(lambda: asking(running.process.pid))
        log.write(xid(79, 1, example_gpus(1)[0].bdf))
        running.sees(lambda: all("xid-79" in causes for causes in partitions()))
        assert running.cycles == cycles


@pytest.mark.parametrize("fault", SILENT[:-1])
def test_a_good_spec_stays_byte_for_byte_when_nvml_falls_silent(
    mig: MigHost, looker: Looker, fault: str
) -> None:
    before = mig.host.spec.read_bytes()
    mig.nvml(fault)
    looked = looker.look()
    assert looked.report.vendors[0].state == "degraded"
    assert "keep the names" in looked.report.vendors[0].reason
    assert mig.host.spec.read_bytes() == before
    assert not said(looked, "mig-not-named")
    # It is asked again soon, and the state is good again when it answers.
    assert looked.needs_retry
    mig.nvml()
    assert looker.state() == "ready"
    assert mig.host.spec.read_bytes() == before


def test_names_outlive_a_restart_of_the_daemon(mig: MigHost) -> None:
    assert mig.looker.state() == "ready"
    mig.nvml("* error 15")
    assert mig.looker.state() == "degraded"
    assert mig.meanings() == NAMED


def test_the_command_keeps_names_as_the_daemon_does(mig: MigHost, cdigen: Run) -> None:
    options = ("generate", "--write", "--root", str(mig.host.root), "--nvml")
    assert cdigen(*options, mig.library).code == 0
    assert mig.meanings() == NAMED
    mig.nvml("* error 15")
    told = cdigen(*options, mig.library)
    assert told.code == 0
    assert "NVML refuses" in told.err
    assert "keep the names" in told.err
    assert mig.meanings() == NAMED
    # What only prints says the same.
    printed = cdigen("generate", "--root", str(mig.host.root), "--nvml", mig.library).out
    assert {device["name"] for device in json.loads(printed)["devices"]} >= NAMED.keys()


@pytest.mark.parametrize("fault", SILENT[:2])
def test_without_any_answer_ever_names_say_what_they_are(mig: MigHost, fault: str) -> None:
    mig.nvml(fault)
    looker = mig.looker
    looked = looker.look()
    assert looked.report.vendors[0].state == "degraded"
    assert mig.meanings() == UNNAMED
    (finding,) = said(looked, "mig-not-named")
    assert "was not asked" not in finding.message
    mig.nvml()
    assert looker.state() == "ready"
    assert mig.meanings() == NAMED


def test_that_nvml_was_not_asked_is_said_where_it_is_true(mig: MigHost) -> None:
    looked = Looker(mig.host, "--nvml", "off").look()
    assert looked.report.vendors[0].state == "ready"
    (finding,) = said(looked, "mig-not-named")
    assert (finding.severity, "NVML was not asked" in finding.message) == ("info", True)
    assert mig.meanings() == UNNAMED


def test_names_do_not_count_where_the_kernel_does_not_name_its_boot(mig: MigHost) -> None:
    (mig.host.root / BOOT).unlink()
    assert mig.looker.state() == "ready"
    assert mig.meanings() == NAMED
    mig.nvml("* error 15")
    mig.looker.look()
    assert mig.meanings() == UNNAMED


def test_no_number_outlives_a_change_of_the_instances(mig: MigHost, looker: Looker) -> None:
    mig.nvml("* error 15")
    mig.remove_instance(7)
    looker.look()
    remaining = {name: nodes for name, nodes in UNNAMED.items() if name != "0:gi7-ci0"}
    assert mig.meanings() == remaining
    # An instance that is made anew with the same ids may be another one.
    write_instance(mig.host.root, 0, 7)
    looker.look()
    assert mig.meanings() == UNNAMED


def test_one_gpu_of_which_nvml_fails_to_tell_all_keeps_its_names(mig: MigHost, looker: Looker) -> None:
    mig.nvml(gpu_faults=("nvmlDeviceGetComputeInstanceId error 999",))
    looked = looker.look()
    assert looked.report.vendors[0].state == "degraded"
    assert "nvmlDeviceGetComputeInstanceId" in said(looked, "mig-names-kept")[0].message
    assert mig.meanings() == NAMED


def test_names_stay_when_nvml_is_of_another_mind_before_it_falls_silent(mig: MigHost, looker: Looker) -> None:
    # NOT_FOUND: NVML answers, and has none of the instances that the kernel has.
    mig.nvml(gpu_faults=("nvmlDeviceGetMigDeviceHandleByIndex error 6",))
    assert looker.state() == "settling"
    mig.nvml("* error 15")
    assert looker.state() == "degraded"
    assert mig.meanings() == NAMED
    # A new daemon knows no spec of its own, only what is remembered.
    mig.host.spec.unlink()
    assert mig.looker.state() == "degraded"
    assert mig.meanings() == NAMED


@pytest.mark.parametrize("change", ["boot", "driver", "GPU"])
def test_names_of_another_boot_driver_or_gpu_do_not_count(mig: MigHost, change: str) -> None:
    assert mig.looker.state() == "ready"
    mig.nvml("* error 15")
    gpu = example_gpus(1)[0]
    match change:
        case "boot":
            mig.host.boot(2)
        case "driver":
            mig.host.install("550.200.07")
            mig.host.say_version("550.200.07")
        case _:
            information = mig.host.root / f"proc/driver/nvidia/gpus/{gpu.bdf}/information"
            write(information, information.read_text().replace(gpu.uuid, uuid(77)))
    mig.looker.look()
    assert mig.meanings() == UNNAMED


def test_names_stay_while_the_gpus_own_node_is_missing(mig: MigHost, looker: Looker) -> None:
    node = example_gpus(1)[0].nodes[0]
    mig.host.root.joinpath(node.path.lstrip("/")).unlink()
    looker.look()
    mig.nvml("* error 15")
    make_node(mig.host.root, node)
    looker.look()
    assert mig.meanings() == NAMED


def test_names_stay_while_the_drivers_libraries_are_replaced(mig: MigHost, looker: Looker) -> None:
    mig.host.uninstall()
    looker.look()
    mig.host.install(OLD)
    mig.nvml("* error 15")
    looker.look()
    assert mig.meanings() == NAMED


def test_a_look_at_another_vendor_takes_no_names(mig: MigHost, cdigen: Run) -> None:
    options = ("generate", "--write", "--root", str(mig.host.root), "--nvml")
    assert cdigen(*options, mig.library).code == 0
    assert cdigen(*options, mig.library, "--vendor", "amd").code == 3
    mig.nvml("* error 15")
    assert cdigen(*options, mig.library).code == 0
    assert mig.meanings() == NAMED


def test_names_go_with_the_driver(mig: MigHost, looker: Looker) -> None:
    shutil.move(mig.host.root / "proc/driver/nvidia", mig.host.root / "unloaded")
    looker.look()
    shutil.move(mig.host.root / "unloaded", mig.host.root / "proc/driver/nvidia")
    mig.nvml("* error 15")
    looker.look()
    assert mig.meanings() == UNNAMED


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 1, "boot": "", "gpus": 7}'])
def test_a_damaged_memory_costs_names_and_nothing_else(mig: MigHost, looker: Looker, content: str) -> None:
    mig.memory.write_text(content)
    loses_names_until_nvml_answers(mig, looker)


def loses_names_until_nvml_answers(mig: MigHost, looker: Looker) -> None:
    mig.nvml("* error 15")
    assert looker.state() == "degraded"
    assert mig.meanings() == UNNAMED
    mig.nvml()
    assert looker.state() == "ready"
    assert mig.meanings() == NAMED


def test_where_no_memory_can_be_kept_that_is_said(mig: MigHost) -> None:
    (mig.host.root / "var/lib/cdigen/partition-names.json").mkdir(parents=True)
    looked = mig.looker.look()
    assert [f.path for f in looked.report.findings if f.severity == "error"] == [
        f"{mig.host.root}/var/lib/cdigen/partition-names.json"
    ]
    assert mig.meanings() == NAMED


def test_a_host_without_partitions_has_no_memory(host: Host) -> None:
    assert Looker(host).state() == "ready"
    assert not (host.root / "var/lib/cdigen/partition-names.json").exists()


def test_while_kernel_and_nvml_disagree_the_good_spec_stays_for_a_while(mig: MigHost, looker: Looker) -> None:
    # NVML is a moment behind: it has not heard of an instance yet.
    write_instance(mig.host.root, 0, 10)
    assert looker.state() == "settling"
    assert mig.meanings() == NAMED
    assert looker.state(after_s=31) == "degraded"
    assert mig.meanings() == NAMED
    assert not any("gi10" in name for name in mig.meanings())


def test_numbers_that_nvml_has_otherwise_are_said(mig: MigHost) -> None:
    first, second = mig.gpus()
    agreeing = mig.looker.look()
    assert not said(agreeing, "gpu-numbers-differ")
    with trusted_folder() as folder:
        looked = Looker(mig.host, "--nvml", str(install(folder, Machine(gpus=(second, first))))).look()
    (finding,) = said(looked, "gpu-numbers-differ")
    assert f"{first.address} is GPU 0 here and 1 there" in finding.message
    assert f"{second.address} is GPU 1 here and 0 there" in finding.message
    # The names stay those of the addresses' order.
    assert mig.meanings() == NAMED
