"""Check the settings of NVIDIA's driver for suspension and for profilers (``findings``).

Sources: NVIDIA's README of the driver 595, "Configuring Power Management Support"; NVIDIA's page on
ERR_NVGPUCTRPERM. The names in /proc/driver/nvidia/params have no prefix NVreg_.
"""

from __future__ import annotations

from cdigen.host.procfs import read_line, read_text
from cdigen.model.findings import Finding
from cdigen.vendors.nvidia.devices.nodes import PARAMETERS
from cdigen.vendors.nvidia.kernel_module import parse_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.findings import Severity

# The rules of the findings.
UNITS, MEMORY, PROFILERS = "suspend-units-disabled", "suspend-loses-memory", "profilers-restricted"
SUSPEND, RESUME = "nvidia-suspend.service", "nvidia-resume.service"
# This script of systemd-sleep(8) has the task of nvidia-resume.service.
_SLEEP_SCRIPTS = ("/usr/lib/systemd/system-sleep/nvidia", "/lib/systemd/system-sleep/nvidia")
_RELOAD = "stop its programs and run 'modprobe -r nvidia_uvm && modprobe nvidia_uvm'"
_UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
# The number of suspensions since boot (the kernel's Documentation/ABI/testing/sysfs-power).
_SUSPENSIONS = "/sys/power/suspend_stats/success"
# Portable computers: portable, laptop, notebook, sub-notebook, tablet, convertible, detachable (SMBIOS 3.7,
# table 17).
_CHASSIS, _PORTABLE = "/sys/class/dmi/id/chassis_type", {"8", "9", "10", "14", "30", "31", "32"}
# The batteries of the host and of its peripherals, which have the scope Device (the kernel's
# Documentation/ABI/testing/sysfs-class-power; drivers/hid).
_SUPPLIES = "/sys/class/power_supply"


def findings(host: Root) -> tuple[Finding, ...]:
    """Return the findings on the parameters of the loaded driver."""
    try:
        parameters = parse_numbers(read_text(host, PARAMETERS))
    except OSError:
        return ()
    return (*_suspension(host, parameters), *_profilers(parameters))


def _suspension(host: Root, parameters: dict[str, int]) -> Iterator[Finding]:
    """Yield a finding if the host suspends, and GPUs fail or lose their memory.

    With UseKernelSuspendNotifiers, the open module saves the memory itself. Otherwise, the units of the
    driver start the saving, and the kernel cannot suspend without these units.
    """
    preserves = parameters.get("PreserveVideoMemoryAllocations")
    if parameters.get("UseKernelSuspendNotifiers") == 1:
        return
    if preserves is None:
        # Old drivers do not have the parameter, for example 384.111.
        if parameters and _is_suspended(host):
            yield _finding(
                "warning",
                MEMORY,
                "the driver has no parameter PreserveVideoMemoryAllocations: CUDA fails after a suspension",
                f"after each suspension, {_RELOAD}; newer drivers preserve the memory of the GPUs",
            )
        return
    if preserves == 0:
        if _is_suspended(host):
            yield _finding(
                "warning",
                MEMORY,
                "PreserveVideoMemoryAllocations is 0: programs in containers lose their GPU memory when the "
                "host suspends",
                "set NVreg_PreserveVideoMemoryAllocations=1 for the module nvidia, run "
                f"'systemctl enable {SUSPEND} {RESUME}', and reboot; if CUDA fails after a suspension, "
                f"{_RELOAD}",
            )
        return
    missing = [SUSPEND] if not _is_enabled(host, SUSPEND) else []
    if not _is_enabled(host, RESUME) and not any(map(host.exists, _SLEEP_SCRIPTS)):
        missing.append(RESUME)
    if missing and _has_sleep(host):
        yield _finding(
            "warning",
            UNITS,
            f"PreserveVideoMemoryAllocations is {preserves}, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not enabled: the host cannot suspend",
            "" if all(_exists(host, unit) for unit in missing) else "install the units of the driver",
        )


def _has_sleep(host: Root) -> bool:
    """Return whether the host may suspend: systemd runs, and the sleep target is not masked."""
    if not host.exists("/run/systemd/system"):
        return False
    try:
        return host.resolve_new("/etc/systemd/system/sleep.target") != "/dev/null"
    except OSError:
        return True


def _is_suspended(host: Root) -> bool:
    suspensions = read_line(host, _SUSPENSIONS)
    if suspensions not in {"", "0"} or read_line(host, _CHASSIS) in _PORTABLE:
        return True
    types = (read_line(host, f"{_SUPPLIES}/{name}/type") for name in host.names(_SUPPLIES))
    scopes = (read_line(host, f"{_SUPPLIES}/{name}/scope") for name in host.names(_SUPPLIES))
    return ("Battery", "") in zip(types, scopes, strict=True)


def _is_enabled(host: Root, unit: str) -> bool:
    return any(
        unit in host.names(f"{folder}/{name}")
        for folder in _UNIT_FOLDERS
        for name in host.names(folder)
        if name.endswith((".wants", ".requires"))
    )


def _exists(host: Root, unit: str) -> bool:
    return any(unit in host.names(folder) for folder in _UNIT_FOLDERS)


def _profilers(parameters: dict[str, int]) -> Iterator[Finding]:
    if parameters.get("RmProfilingAdminOnly") == 1:
        yield _finding(
            "info",
            PROFILERS,
            "RmProfilingAdminOnly is 1: profilers such as Nsight Compute need the capability SYS_ADMIN in "
            "containers",
            "to permit them to all users, set NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia",
        )


def _finding(severity: Severity, rule: str, message: str, hint: str) -> Finding:
    return Finding(severity=severity, rule=rule, path=PARAMETERS, message=message, hint=hint)
