"""Checks of the driver: mounted host files, loaded module, files of the same version, usable GPUs."""

from __future__ import annotations

import re
import sys
from collections import Counter

from cdigen.doctor.checks import driver_module
from cdigen.doctor.result import Remedy, Topic, with_hint
from cdigen.host import mounts
from cdigen.host.containers import host_hint, is_guest
from cdigen.host.kernelmodules import unload_order
from cdigen.host.procfs import is_wsl_release, kernel_release
from cdigen.pipeline import discovery
from cdigen.value import replace
from cdigen.vendors import registry
from cdigen.vendors.exclusion import exclusion_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.model.errors import HostError
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory

TOPIC = Topic(name="driver")
LOADED, VERSION, FILES, GPUS, TOOL, DIAGNOSTIC, MODULE = (
    "driver-loaded",
    "driver-version",
    "driver-files",
    "gpus",
    "driver-library",
    "driver-diagnostic",
    "nvml-module",
)
CONTAINER, MOUNTS = "in-container", "host-mounts"
# The topics of checks whose remedies load modules, install drivers and create device nodes. These remedies
# work only on the host.
_OF_HOST = frozenset(("driver", "nodes"))
# The checks whose failure can prevent all specs. Other failures may be consequences of this failure.
CAUSES = (CONTAINER, LOADED, GPUS, VERSION, FILES, "node-missing", "node-wrong")

# HostError.kind -> failed check. nodes.py handles the errors of nodes.
_FAILED = {
    "driver-not-loaded": LOADED,
    "no-gpu": GPUS,
    "no-usable-device": GPUS,
    "no-mig-instances": GPUS,
    "vendor-defect": GPUS,
    "node-claimed-twice": GPUS,
    "node-impossible": GPUS,
    "version-mismatch": VERSION,
    "driver-broken": FILES,
    "driver-not-found": FILES,
}
_NO_PYNVML, _LINUX_DRIVER, _UNBOUND = "nvml-module-missing", "wsl-linux-driver", "gpu-not-bound"
# The instruction beside the commands that load the module of the libraries' version.
_RELOAD = "stop the programs that use the GPUs before the module is loaded again, or reboot"
# Rule of a finding -> check that reports the finding. The check GPUS reports each other finding whose rule is
# not in _UNREPORTED.
_RULES = {
    "library-missing": FILES,
    "library-incomplete": FILES,
    "library-unusable": FILES,
    "capability-incomplete": FILES,
    "file-unusable": FILES,
    "manifest-unreadable": FILES,
    _LINUX_DRIVER: FILES,
    "ld-cache-unreadable": FILES,
    "kernel-file-unusable": LOADED,
    "nvml-failed": TOOL,
    "nvml-gpu-failed": TOOL,
    "nvml-timeout": TOOL,
    "nvml-crashed": TOOL,
    "nvml-invalid-output": TOOL,
    "nvml-untrusted": TOOL,
    _NO_PYNVML: MODULE,
    "nvml-not-queried": MODULE,
}
# The rules of findings about nodes, which nodes.py reports.
NODE_RULES = frozenset({
    "control-node-missing", "gpu-node-missing", "drm-node-missing", "accel-node-missing",
    "family-node-unusable", "mig-instance-unusable",
})  # fmt: skip
# The rules of findings that are no failures: a usual setting, and the way to change it.
_FACTS = frozenset({"profilers-restricted", "virtual-gpu"})
# The findings that nodes.py reports, and warnings that no check reports.
_UNREPORTED = NODE_RULES | {
    "uuid-unknown", "wsl-several-stores", "csv-line-unknown", "csv-path-unusable", "csv-unreadable",
}  # fmt: skip
# Rule of a finding -> command that fixes the problem.
_TRIGGER_UDEV = (Remedy(argv=("udevadm", "trigger"), why="make udev set the groups and modes of nodes"),)
_REMEDIES = {
    "ld-cache-unreadable": (Remedy(argv=("ldconfig",), why="write the cache again"),),
    "render-group": _TRIGGER_UDEV,
    "kfd-mode": _TRIGGER_UDEV,
}
# The file lists of Debian's NVML packages: libnvidia-ml1, libnvidia-tesla-535-ml1.
_NVML_PACKAGE = re.compile(r"libnvidia-(?:tesla-(?:[0-9]+-)?)?ml1(?::[a-z0-9]+)?\.list$")
# Device class -> its name in messages. Other classes appear in messages unchanged.
_CLASS_NAMES = {"gpu": "GPU", "npu": "NPU", "gaudi": "Gaudi"}


def _mounts(context: Context) -> Iterator[CheckResult]:
    """Report missing mounts if the host is a folder of this machine."""
    if context.host.is_this_machine:
        yield TOPIC.passed(MOUNTS, "the host is this machine")
        return
    writable = (context.request.spec_dirs[-1], context.request.state_dir)
    found = mounts.findings(context.host.outer, writable)
    for one in found:
        yield TOPIC.error(MOUNTS, f"{one.message}; {one.hint}")
    if not found:
        yield TOPIC.passed(MOUNTS, "all required host files are mounted, or the folder is not a running host")


def _failures(context: Context) -> Iterator[CheckResult]:
    """Report the vendors without usable devices."""
    for name, error in context.failures.items():
        if not context.concerns(name):
            continue
        if error.kind == "driver-not-loaded":
            detail, remedies = driver_module.explain(context, registry.load(name), error)
            yield TOPIC.error(LOADED, detail, remedies)
        elif error.kind in _FAILED:
            remedies = _remedies_of_failure(context, name, error)
            because = ("node-missing", "node-wrong") if error.kind == "no-mig-instances" else ()
            is_reload = error.kind == "version-mismatch" and remedies
            rejected = driver_module.rejected_devices(context.host, registry.load(name))
            reason = next((text for address, text in rejected.items() if address in error.message), "")
            step = _RELOAD if is_reload else reason
            detail = f"{error.message}; {step}" if step else with_hint(error)
            yield TOPIC.error(_FAILED[error.kind], detail, remedies, because)


def _unloaded(context: Context) -> Iterator[CheckResult]:
    """Report devices without a loaded driver on a host where another vendor has usable devices."""
    present = {*context.inventories, *context.failures}
    others = [name for name in context.request.vendors if name not in present]
    for finding in discovery.without_driver(others, context.host):
        yield TOPIC.finding(LOADED, finding)


def _inventories(context: Context) -> Iterator[CheckResult]:
    """Report the findings on each vendor's driver and GPUs, and the passed checks."""
    for inventory in context.inventories.values():
        if context.concerns(inventory.vendor):
            yield from _findings(context, inventory)
        yield from _passed(inventory)


def _diagnostics(context: Context) -> Iterator[CheckResult]:
    """Report a vendor's known problems that discovery does not find."""
    has_module = True
    if context.inventories:
        yield TOPIC.passed(DIAGNOSTIC, f"no known problem of {' and '.join(context.inventories)}")
    for name in context.request.vendors:
        inventory = context.inventories.get(name)
        if (inventory is None and name not in context.failures) or not context.concerns(name):
            continue  # not requested, or not present
        failure = context.failures.get(name)
        reported = failure.message if failure else ""
        # The reason why the module is not loaded is in the result of the check LOADED.
        explained = _UNBOUND if failure and failure.kind == discovery.NOT_LOADED else ""
        for finding in discovery.diagnostics(name, context.request.discovery_context, inventory):
            if _RULES.get(finding.rule) == MODULE:
                has_module = False
                # The missing Python module is not a failure, because containers get their devices without it.
                found = TOPIC.finding(MODULE, finding, _remedies(context, name, finding))
                yield replace(found, ok=True, severity="info", is_checked=False)
            elif finding.rule in _FACTS:
                yield TOPIC.passed(DIAGNOSTIC, with_hint(finding))
            elif finding.message not in reported and finding.rule != explained:
                yield TOPIC.finding(DIAGNOSTIC, finding, _remedies(context, name, finding))
    for known in filter(None, map(registry.remedies, context.inventories)):
        if has_module and known.python_module:
            # ``examine`` drops this result if discovery has reported that the module is missing.
            yield TOPIC.passed(MODULE, f"the Python module {known.python_module} is installed")


def with_cause(context: Context, found: list[CheckResult]) -> list[CheckResult]:
    """Return FOUND; in a container, add the cause ``in-container`` to the failures of drivers and nodes.

    These failures then have no remedies, because modules and nodes belong to the host.
    """
    affected = [result for result in found if not result.ok and result.topic in _OF_HOST]
    if not context.in_container or not affected:
        return found
    is_error = any(result.severity == "error" for result in affected)
    cause = TOPIC.failed(CONTAINER, f"{discovery.NO_HOST}; {host_hint()}", is_error=is_error)
    explained = [
        replace(result, remedies=(), because=(*result.because, CONTAINER)) if result in affected else result
        for result in found
    ]
    return [cause, *explained]


def _container(context: Context) -> Iterator[CheckResult]:
    """Report the number of GPUs that belong to the container, if the host is a container."""
    if not is_guest(context.host):
        return
    for inventory in context.inventories.values():
        usable = sum(gpu.usable for gpu in inventory.accelerators)
        text = f"{usable} of the {len(inventory.accelerators)} devices of its host"
        yield TOPIC.passed(CONTAINER, f"this is a container, which has {text} ({inventory.vendor})")


CHECKS = (_mounts, _container, _failures, _unloaded, _inventories, _diagnostics)


def _remedies_of_failure(context: Context, name: str, error: HostError) -> tuple[Remedy, ...]:
    known = registry.remedies(name)
    if known is None:
        return ()
    if error.kind == "version-mismatch":
        loaded = unload_order(context.host, *known.modules)
        return (
            Remedy(argv=("rmmod", *(loaded or known.modules)), why="unload the old driver"),
            driver_module.load(registry.load(name).MODULES[0]),
        )
    if error.kind in {"driver-broken", "driver-not-found"}:
        return _reinstall(context, name, *known.libraries)
    return ()


def _findings(context: Context, inventory: Inventory) -> Iterator[CheckResult]:
    reported = [one for one in inventory.findings if one.severity != "info" and one.rule not in _UNREPORTED]
    vendor = registry.load(inventory.vendor) if reported else None
    rejected = driver_module.rejected_devices(context.host, vendor) if vendor else {}
    for each in reported:
        finding = replace(each, hint=rejected.get(each.path, each.hint))
        remedies = _remedies(context, inventory.vendor, finding)
        yield TOPIC.finding(_RULES.get(finding.rule, GPUS), finding, remedies)


def _remedies(context: Context, vendor: str, finding: Finding) -> tuple[Remedy, ...]:
    if finding.rule in {"library-missing", "library-incomplete", "library-unusable"}:
        return _reinstall(context, vendor, finding.path.rpartition("/")[2])
    if finding.rule == _LINUX_DRIVER:
        packages = _packages(context, vendor, finding.path.rpartition("/")[2])
        command = ("apt-get", "remove", "--yes", *packages)
        return (Remedy(argv=command, why="remove the driver for Linux"),) if packages else ()
    if finding.rule == _NO_PYNVML:
        return _install_module(context)
    known = registry.remedies(vendor)
    for fix in known.commands if known else ():
        if fix.rule == finding.rule and not finding.hint:
            return (Remedy(argv=fix.argv, why=fix.why),)
    return _REMEDIES.get(finding.rule, ())


def _install_module(context: Context) -> tuple[Remedy, ...]:
    """Return the command that installs pynvml for the system's Python; empty if NVML is not from a package.

    python3-pynvml depends on a Debian package of NVML. NVML's packages conflict with a driver from another
    source.
    """
    packages = context.host.names("/var/lib/dpkg/info") if context.is_live and sys.prefix == "/usr" else ()
    if not any(_NVML_PACKAGE.match(name) for name in packages):
        return ()
    command = ("apt-get", "install", "--yes", "python3-pynvml")
    return (Remedy(argv=command, why="install the Python module of NVML (section contrib)"),)


def _reinstall(context: Context, vendor: str, *names: str) -> tuple[Remedy, ...]:
    """Return the command that reinstalls the packages with VENDOR's files NAMES; empty if none has them."""
    if is_wsl_release(kernel_release(context.host)):
        return ()  # Windows has the driver
    command = ("apt-get", "install", "--reinstall", "--yes", *_packages(context, vendor, *names))
    return (Remedy(argv=command, why="reinstall the files of the driver"),) if command[4:] else ()


def _packages(context: Context, vendor: str, *names: str) -> tuple[str, ...]:
    """Return the Debian packages with VENDOR's files NAMES."""
    known = registry.remedies(vendor)
    if known is None or not context.host.exists("/usr/bin/apt-get"):
        return ()
    folder = "/var/lib/dpkg/info"
    found: dict[str, None] = {}
    for entry in context.host.names(folder):
        package = entry.removesuffix(".list").partition(":")[0]
        if not entry.endswith(".list") or not any(word in package for word in known.package_words):
            continue
        listed = context.text(f"{folder}/{entry}", limit=4 << 20)
        if any(f"/{name}" in listed for name in names):
            found[package] = None
    return tuple(found)


def _passed(inventory: Inventory) -> Iterator[CheckResult]:
    """Report the passed checks of INVENTORY; ``examine`` drops a passed result if its check also failed."""
    driver = inventory.driver
    own = f"the driver of {inventory.vendor} is loaded: in-tree, kernel {driver.version}"
    other = f"the driver of {inventory.vendor} is loaded: {driver.version} ({driver.flavour})"
    yield TOPIC.passed(LOADED, own if driver.flavour == "in-tree" else other)
    libraries = [file for file in inventory.files if file.kind == "library"]
    if libraries:  # the images of most other vendors contain the libraries
        yield TOPIC.passed(VERSION, f"libraries and module have the version {driver.version}")
        yield TOPIC.passed(FILES, f"{_count(len(libraries), 'library', 'libraries')} of the driver")
    yield TOPIC.passed(GPUS, f"{inventory.vendor}: {_usable_devices(inventory)}")


def _usable_devices(inventory: Inventory) -> str:
    """Return the numbers of usable devices as text, such as ``2 GPUs and 1 NPU, 16 partitions``."""
    usable = [each for each in inventory.accelerators if each.usable]
    classes = Counter(each.device_class for each in usable)
    parts = sum(part.usable for each in usable for part in each.partitions)
    split = f", {_count(parts, 'partition')}" if parts else ""
    by_row: dict[str, list[str]] = {}
    for each in inventory.accelerators:
        if each.excluded:
            name = _CLASS_NAMES.get(each.device_class, each.device_class)
            by_row.setdefault(each.excluded, []).append(f"{name} {each.index}")
    split += "".join(f"; {', '.join(names)}: {exclusion_problem(row)}" for row, names in by_row.items())
    counts = [_count(number, _CLASS_NAMES.get(name, name)) for name, number in classes.items()]
    # On some hosts, the devices of a group are the GPUs (WSL, Tegra).
    undivided = [one for one in inventory.groups if inventory.is_undivided and one.device_class == "gpu"]
    names = [device.name for group in undivided for device in group.devices]
    counts += [f"the GPUs of the host as the device {' or '.join(names)}"] if names else []
    counts = counts or ["0 GPUs"]
    if others := len(inventory.groups) - len(undivided):
        counts.append(f"{_count(others, 'family', 'families')} of other devices")
    return f"{' and '.join(counts)}{split}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
