"""Load the kernel modules that a vendor's devices need in addition to the driver (``load_modules``).

cdigen runs modprobe(8), and the configuration of modprobe applies. modprobe runs ``install`` lines and reads
``options`` and ``softdep`` lines. With ``--use-blacklist``, a ``blacklist`` line applies to the name of a
module and to its aliases. The kernel rejects the modules in its parameter ``module_blacklist=``. cdigen reads
this parameter before it runs modprobe. If a module is not loaded, cdigen finds the reason in the
configuration and in the parameter. cdigen never loads the driver. It calls ``load_modules`` only if
``is_driver_loaded`` returns true.
"""

from __future__ import annotations

import os
import time

from cdigen.host import childprocess
from cdigen.host.kernelmodules import kernel_name, module_exclusion, module_state, refused_modules
from cdigen.host.procfs import read_text
from cdigen.host.root import reason
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.childprocess import ChildResult
    from cdigen.host.root import Root
    from cdigen.model.findings import Severity
    from cdigen.vendors.base import BootModule

MODPROBE = "modprobe"
# NVIDIA's modules need 1 to 3 s to load. The limit is higher because the disk is busy during boot.
LOAD_DEADLINE_S = 60.0
_POLL_S = 0.1
_KERNELS_MODPROBE = "/proc/sys/kernel/modprobe"  # Documentation/admin-guide/sysctl/kernel.rst


def is_driver_loaded(host: Root, names: Iterable[str], *, deadline_s: float) -> bool:
    """Return whether a driver in NAMES is loaded, and wait up to DEADLINE_S for its initialization.

    The kernel announces a module before its initialization. A driver registers its GPUs during its
    initialization. Raises HostError if the driver is still initializing after DEADLINE_S.
    """
    names = tuple(names)
    end = time.monotonic() + deadline_s
    while True:
        states = [module_state(host, name) for name in names]
        if "live" in states:
            return True
        if "coming" not in states:
            return False
        if time.monotonic() >= end:
            name = names[states.index("coming")]
            raise HostError(
                f"the driver {name} is still initializing after {deadline_s:.0f} s",
                hint=f"see 'dmesg | grep -i {name}'",
                kind="driver-initializing",
            )
        time.sleep(_POLL_S)


def load_modules(host: Root, modules: Iterable[BootModule], *, modprobe: str = "") -> tuple[Finding, ...]:
    """Load the missing modules in MODULES, and return a finding for each loaded module and each failure.

    The severity of a failure is error for a required module, and warning for other modules. If the
    configuration excludes a module, the severity is info.
    """
    program = modprobe or modprobe_program(host)
    findings = (_load(host, module, program) for module in modules)
    return tuple(finding for finding in findings if finding is not None)


def modprobe_program(host: Root, path: str = childprocess.ENVIRONMENT["PATH"]) -> str:
    """Return the name of modprobe, or its path in the kernel's setting if no folder of PATH has it.

    On NixOS, modprobe is not in the usual folders. The modprobe in the kernel's setting finds the modules of
    NixOS.
    """
    if any(os.access(f"{folder}/{MODPROBE}", os.X_OK) for folder in path.split(":")):
        return MODPROBE
    try:
        program = read_text(host, _KERNELS_MODPROBE).strip()
    except OSError:
        return MODPROBE
    return program if program.endswith(f"/{MODPROBE}") else MODPROBE


def _load(host: Root, module: BootModule, modprobe: str) -> Finding | None:
    if _is_loaded(host, module):
        return None
    if kernel_name(module.name) in refused_modules(host):
        return _excluded(module, module_exclusion(host, module.name))
    try:
        done = childprocess.run((modprobe, "--use-blacklist", module.name), deadline_s=LOAD_DEADLINE_S)
    except OSError as error:
        return _failed(module, f"{modprobe}: {reason(error)}")
    if _is_loaded(host, module):
        return _finding("info", "kernel-module-loaded", module, "was loaded")
    if place := module_exclusion(host, module.name, module.kernel_names):
        return _excluded(module, place)
    if done.by == "itself" and done.status == 0:
        return _excluded(module, "a blacklist or install line of modprobe.d(5)")
    return _failed(module, _ending(done))


def _ending(done: ChildResult) -> str:
    if done.by != "itself":
        return f"modprobe did not end within {LOAD_DEADLINE_S:.0f} s"
    return done.last_stderr_line or f"modprobe ended with status {done.status}"


def _is_loaded(host: Root, module: BootModule) -> bool:
    return any(module_state(host, name) == "live" for name in module.kernel_names)


def _excluded(module: BootModule, by: str) -> Finding:
    return _finding("info", "kernel-module-excluded", module, f"is not loaded: {by} excludes it")


def _failed(module: BootModule, why: str) -> Finding:
    severity: Severity = "error" if module.is_required else "warning"
    hint = f"modprobe {module.name}"
    return _finding(severity, "kernel-module-not-loaded", module, f"cannot be loaded: {why}", hint)


def _finding(severity: Severity, rule: str, module: BootModule, what: str, hint: str = "") -> Finding:
    message = f"the kernel module {module.name} {what}"
    return Finding(severity=severity, rule=rule, path=module.name, message=message, hint=hint)
