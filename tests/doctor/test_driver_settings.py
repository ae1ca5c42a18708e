"""Settings of NVIDIA's driver for suspension and profilers, and modules that only graphics needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.doctor.broken_host import BrokenHost

UNITS = ("nvidia-suspend.service", "nvidia-resume.service")
ENABLE = "systemctl enable nvidia-suspend.service nvidia-resume.service"


def set_parameters(host: BrokenHost, text: str) -> None:
    """Add TEXT to the driver's parameters, and make the host one on which systemd runs."""
    file = host.path("proc/driver/nvidia/params")
    own = {line.partition(":")[0] for line in text.splitlines()}
    kept = [line for line in file.read_text().splitlines() if line.partition(":")[0] not in own]
    file.write_text("\n".join((*kept, text)))
    (host.root / "run/systemd/system").mkdir(parents=True)


def diagnostics(host: BrokenHost, part: str) -> list[dict[str, Any]]:
    rows = host.results()
    return [row for row in rows if row["check"] == "driver-diagnostic" and part in row["detail"]]


@pytest.mark.parametrize("enabled", [(), UNITS[:1], UNITS])
def test_the_units_must_be_enabled_if_the_driver_preserves_memory(
    host: BrokenHost, enabled: tuple[str, ...]
) -> None:
    set_parameters(host, "PreserveVideoMemoryAllocations: 1\nUseKernelSuspendNotifiers: 0\n")
    for unit in UNITS:
        host.put(f"usr/lib/systemd/system/{unit}", "[Unit]\n")
    for unit in enabled:
        host.put(f"etc/systemd/system/systemd-suspend.service.requires/{unit}", "")
    rows = diagnostics(host, "the host cannot suspend")
    assert [host.remedy_on_host(row) for row in rows] == [ENABLE] * (len(enabled) < 2)


def test_the_script_of_systemd_sleep_replaces_the_unit_for_the_resume(host: BrokenHost) -> None:
    set_parameters(host, "PreserveVideoMemoryAllocations: 1\n")
    host.put("etc/systemd/system/systemd-suspend.service.wants/nvidia-suspend.service", "")
    host.put("usr/lib/systemd/system-sleep/nvidia", "")
    assert diagnostics(host, "suspend") == []


@pytest.mark.parametrize("parameters", ["", "UseKernelSuspendNotifiers: 1\n"])
def test_kernel_notifiers_need_no_unit(host: BrokenHost, parameters: str) -> None:
    set_parameters(host, f"PreserveVideoMemoryAllocations: 2\n{parameters}")
    assert bool(diagnostics(host, "install the units of the driver")) != bool(parameters)


@pytest.mark.parametrize(
    ("file", "text", "is_reported"),
    [
        ("sys/power/suspend_stats/success", "3\n", True),
        ("sys/power/suspend_stats/success", "0\n", False),
        ("sys/class/dmi/id/chassis_type", "10\n", True),
        ("sys/class/dmi/id/chassis_type", "23\n", False),
    ],
)
def test_lost_memory_is_reported_for_hosts_that_suspend(
    host: BrokenHost, file: str, text: str, *, is_reported: bool
) -> None:
    set_parameters(host, "PreserveVideoMemoryAllocations: 0\n")
    host.put(file, text)
    assert bool(diagnostics(host, "lose their GPU memory")) == is_reported


def test_restricted_profilers_are_reported_without_a_failure(host: BrokenHost) -> None:
    set_parameters(host, "RmProfilingAdminOnly: 1\n")
    (row,) = diagnostics(host, "NVreg_RestrictProfilingToAdminUsers=0")
    assert row["ok"]


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("dep", ["updates/dkms/nvidia-modeset.ko.xz:\n", "updates/dkms/nvidia.ko.xz:\n"])
def test_an_installed_nvidia_modeset_that_is_not_loaded_is_reported(
    host: BrokenHost, dep: str, *, is_loaded: bool
) -> None:
    host.put("proc/sys/kernel/osrelease", "6.12.1-amd64\n")
    host.put("lib/modules/6.12.1-amd64/modules.dep", dep)
    if is_loaded:
        host.put("sys/module/nvidia_modeset/initstate", "live\n")
    rows = [row for row in host.results() if row["check"] == "node-modules" and not row["ok"]]
    assert bool(rows) == ("modeset" in dep and not is_loaded)
    assert all(row["remedy"] == f"cdigen create-nodes --root {host.root}" for row in rows)
    assert all(row["severity"] == "warning" for row in rows)
