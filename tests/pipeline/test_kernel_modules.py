"""Kernel modules: loaded modules, modules that the configuration excludes, and failures.

The tests have their own modprobe program, because a test cannot load NVIDIA's modules. If kmod is installed,
tests also run the real modprobe(8) with `blacklist` and `install` lines.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.waiting import PATIENCE_S, limited

from cdigen.host.root import Root
from cdigen.model.errors import HostError
from cdigen.pipeline.driver.kernel_modules import is_driver_loaded, load_modules, modprobe_program
from cdigen.vendors.nvidia.boot_nodes import BOOT_NODES

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.findings import Finding

UVM, MODESET = BOOT_NODES.modules


class Machine:
    """A host in a folder whose kernel has no loaded modules, and a modprobe program that runs `code`."""

    def __init__(self, top: Path) -> None:
        self.root = Root(str(top / "root"))
        self.modules = top / "root/sys/module"
        self.modules.mkdir(parents=True)
        self.log = top / "calls"
        self.program = top / "modprobe"

    def modprobe(self, code: str) -> None:
        self.program.write_text(f'#!/bin/sh\necho "$*" >>{self.log}\n{code}\n')
        self.program.chmod(0o755)

    def command_line(self, text: str) -> None:
        (self.modules.parents[1] / "proc").mkdir()
        (self.modules.parents[1] / "proc/cmdline").write_text(f"{text}\n")

    def configure(self, text: str) -> None:
        file = self.modules.parents[1] / "etc/modprobe.d/test.conf"
        file.parent.mkdir(parents=True)
        file.write_text(text)

    def load(self, *modules: object) -> tuple[Finding, ...]:
        return load_modules(self.root, modules or BOOT_NODES.modules, modprobe=str(self.program))  # type: ignore[arg-type]

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.modprobe(f'mkdir {made.modules}/"$(echo "$2" | tr - _)"')
    return made


def test_the_additional_modules_are_loaded_but_not_the_driver(machine: Machine) -> None:
    findings = machine.load()
    assert [(each.severity, each.rule) for each in findings] == [("info", "kernel-module-loaded")] * 2
    assert machine.calls() == ["--use-blacklist nvidia-uvm", "--use-blacklist nvidia-modeset"]


def test_a_loaded_module_is_not_loaded_again(machine: Machine) -> None:
    (machine.modules / "nvidia_uvm").mkdir()
    (machine.modules / "nvidia_current_modeset").mkdir()
    assert machine.load() == ()
    assert machine.calls() == []


@pytest.mark.parametrize("name", ["nvidia_uvm", "nvidia-uvm"])
def test_a_module_that_the_kernels_command_line_excludes_is_not_loaded(machine: Machine, name: str) -> None:
    machine.command_line(f"ro quiet module_blacklist=nouveau,{name} splash")
    (finding,) = machine.load(UVM)
    assert (finding.severity, finding.rule) == ("info", "kernel-module-excluded")
    assert "module_blacklist=" in finding.message
    assert machine.calls() == []


def test_another_module_on_the_kernel_command_line_does_not_exclude_the_module(machine: Machine) -> None:
    machine.command_line("module_blacklist=nvidia modprobe.blacklist=nvidia_drm")
    assert machine.load(UVM)[0].rule == "kernel-module-loaded"


def test_a_module_that_modprobe_excludes_is_reported_with_the_kernel_parameter(machine: Machine) -> None:
    machine.command_line("modprobe.blacklist=nouveau,nvidia-uvm")
    machine.modprobe("exit 0")
    (finding,) = machine.load(UVM)
    assert (finding.severity, finding.rule) == ("info", "kernel-module-excluded")
    assert "modprobe.blacklist= on the kernel command line" in finding.message


def test_a_module_is_excluded_by_its_debian_name_on_the_kernel_command_line(machine: Machine) -> None:
    machine.command_line("module_blacklist=nvidia_current_uvm")
    machine.modprobe("echo 'modprobe: ERROR: could not insert: Operation not permitted' >&2; exit 1")
    assert machine.load(UVM)[0].rule == "kernel-module-excluded"


def test_the_kernels_modprobe_is_used_if_no_usual_folder_has_modprobe(machine: Machine) -> None:
    setting = machine.modules.parents[1] / "proc/sys/kernel/modprobe"
    setting.parent.mkdir(parents=True)
    setting.write_text("/run/current-system/sw/bin/modprobe\n")
    assert modprobe_program(machine.root) == "modprobe"
    assert modprobe_program(machine.root, "/nowhere") == "/run/current-system/sw/bin/modprobe"
    setting.write_text("/bin/false\n")
    assert modprobe_program(machine.root, "/nowhere") == "modprobe"


def test_a_blacklist_line_is_information_and_no_failure(machine: Machine) -> None:
    machine.modprobe("exit 0")
    (finding,) = machine.load(UVM)
    assert (finding.severity, finding.rule) == ("info", "kernel-module-excluded")
    assert "blacklist or install line" in finding.message


@pytest.mark.parametrize("spelling", ["nvidia_uvm", "nvidia-uvm"])
def test_an_install_line_that_runs_false_is_no_failure(machine: Machine, spelling: str) -> None:
    machine.configure(f"install {spelling} /bin/false\n")
    machine.modprobe("exit 1")
    (finding,) = machine.load(UVM)
    assert (finding.severity, finding.rule) == ("info", "kernel-module-excluded")
    assert "/etc/modprobe.d/test.conf:1 excludes it" in finding.message


def test_an_install_line_of_debians_driver_does_not_hide_a_failure(machine: Machine) -> None:
    machine.configure("install nvidia_uvm modprobe nvidia ; modprobe -i nvidia-current-uvm\n")
    machine.modprobe('echo "modprobe: FATAL: no memory" >&2\nexit 1')
    (finding,) = machine.load(UVM)
    assert (finding.severity, finding.rule) == ("error", "kernel-module-not-loaded")
    assert "no memory" in finding.message


def test_a_failure_is_an_error_only_for_a_required_module(machine: Machine) -> None:
    machine.modprobe("exit 1")
    assert [finding.severity for finding in machine.load()] == ["error", "warning"]


def test_a_host_without_modprobe_is_an_error_of_one_line(machine: Machine) -> None:
    machine.program.unlink()
    (finding,) = machine.load(UVM)
    assert finding.severity == "error"
    assert "No such file" in finding.message
    assert "\n" not in finding.line()


def test_control_characters_in_the_output_of_modprobe_are_escaped(machine: Machine) -> None:
    machine.modprobe("printf 'bad \\033[31m\\n' >&2; exit 1")
    assert "\033" not in machine.load(UVM)[0].message


@limited(5.0)
def test_is_driver_loaded_does_not_wait_for_a_missing_driver(machine: Machine, within_s: float) -> None:
    began = time.monotonic()
    assert not is_driver_loaded(machine.root, BOOT_NODES.drivers, deadline_s=10 * PATIENCE_S)
    assert time.monotonic() - began < within_s


@pytest.mark.parametrize("name", ["nvidia", "nvidia_current"])
def test_is_driver_loaded_waits_while_a_driver_initializes(machine: Machine, name: str) -> None:
    state = machine.modules / name / "initstate"
    state.parent.mkdir()
    state.write_text("coming\n")
    live = state.with_name("live")
    live.write_text("live\n")
    # The timer renames a file, because a file is empty for a moment while it is written.
    timer = threading.Timer(0.3, live.rename, [state])
    timer.start()
    assert is_driver_loaded(machine.root, BOOT_NODES.drivers, deadline_s=30)
    timer.join()


def test_a_driver_that_fails_to_initialize_is_not_loaded(machine: Machine) -> None:
    state = machine.modules / "nvidia/initstate"
    state.parent.mkdir()
    state.write_text("coming\n")
    timer = threading.Timer(0.3, shutil.rmtree, [state.parent])
    timer.start()
    assert not is_driver_loaded(machine.root, BOOT_NODES.drivers, deadline_s=30)
    timer.join()


def test_a_driver_that_initializes_longer_than_the_deadline_is_an_error(machine: Machine) -> None:
    state = machine.modules / "nvidia/initstate"
    state.parent.mkdir()
    state.write_text("coming\n")
    with pytest.raises(HostError, match="the driver nvidia is still initializing") as caught:
        is_driver_loaded(machine.root, BOOT_NODES.drivers, deadline_s=0.3)
    assert caught.value.kind == "driver-initializing"


@pytest.fixture
def kmod(tmp_path: Path) -> str:
    """Return a program that runs kmod's modprobe with the configuration of the test's host."""
    real = shutil.which("modprobe", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if real is None:
        cannot_run("modprobe is not installed: apt-get install kmod")
    program = tmp_path / "kmod"
    program.write_text(f'#!/bin/sh\nexec {real} -C {tmp_path}/root/etc/modprobe.d "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ("install nvidia-uvm /bin/mkdir {folder}\n", "kernel-module-loaded"),
        ("install nvidia-uvm /bin/mkdir {folder}\nblacklist nvidia-uvm\n", "kernel-module-excluded"),
        ("install nvidia-uvm /bin/true\n", "kernel-module-excluded"),
        ("install nvidia-uvm /bin/false\n", "kernel-module-excluded"),
        ("install nvidia-uvm /bin/sh -c 'exit 3'\n", "kernel-module-not-loaded"),
        ("alias nvidia-uvm off\n", "kernel-module-excluded"),
        ("install nvidia-uvm :\n", "kernel-module-excluded"),
        ("install nvidia-uvm \\\n  /bin/false\n", "kernel-module-excluded"),
    ],
)
def test_the_real_modprobe_obeys_its_configuration(
    machine: Machine, kmod: str, lines: str, rule: str
) -> None:
    machine.configure(lines.format(folder=machine.modules / "nvidia_uvm"))
    (finding,) = load_modules(machine.root, (UVM,), modprobe=kmod)
    assert finding.rule == rule
