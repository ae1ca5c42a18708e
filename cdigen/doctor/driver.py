"""Checks of the driver: that its module is loaded, its files belong to it, and its GPUs can be used."""

from __future__ import annotations

from collections import Counter

from cdigen.doctor.result import Remedy, Topic, with_hint
from cdigen.host.procfs import kernel_release
from cdigen.host.sysfs import ACCELERATORS, PCI_DEVICES, pci_devices
from cdigen.pipeline import discovery
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.host.root import Root
    from cdigen.model.errors import HostError
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import Vendor

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
# The checks whose failure prevents any spec: other failures may be their consequence.
CAUSES = (LOADED, GPUS, VERSION, FILES, "node-missing", "node-wrong")

# HostError.kind -> the check that has failed. nodes.py handles those about nodes.
_FAILED = {
    "driver-not-loaded": LOADED,
    "no-gpu": GPUS,
    "no-mig-instances": GPUS,
    "vendor-defect": GPUS,
    "node-claimed-twice": GPUS,
    "node-impossible": GPUS,
    "version-mismatch": VERSION,
    "driver-broken": FILES,
    "driver-not-found": FILES,
}
# Rules of findings -> the check that they belong to.
_RULES = {
    "library-missing": FILES,
    "library-incomplete": FILES,
    "library-unusable": FILES,
    "capability-incomplete": FILES,
    "file-unusable": FILES,
    "manifest-unreadable": FILES,
    "ld-cache-unreadable": FILES,
    "gpu-lost": GPUS,
    "gpu-without-device": GPUS,
    "gpu-repeated": GPUS,
    "gpu-information-unreadable": GPUS,
    "gpu-address-unknown": GPUS,
    "mig-empty": GPUS,
    "mig-contradiction": GPUS,
    "mig-names-kept": GPUS,
    "mig-not-named": GPUS,
    "gpu-numbers-differ": GPUS,
    "mig-minors-unreadable": GPUS,
    "kernel-file-unusable": LOADED,
    "nvml-failed": TOOL,
    "nvml-gpu-failed": TOOL,
    "nvml-timeout": TOOL,
    "nvml-crashed": TOOL,
    "nvml-garbage": TOOL,
    "nvml-untrusted": TOOL,
    "nvml-module-missing": MODULE,
}
# Other vendors' findings of any rule are about their GPUs; those about nodes are said in nodes.py.
_NODE_RULES = ("control-node-missing", "gpu-node-missing", "drm-node-missing", "accel-node-missing")
# Findings that one command fixes -> that command.
_TRIGGER_UDEV = (Remedy(argv=("udevadm", "trigger"), why="udev gives nodes their groups and modes"),)
_REMEDIES = {
    "ld-cache-unreadable": (Remedy(argv=("ldconfig",), why="write the cache anew"),),
    "render-group": _TRIGGER_UDEV,
    "kfd-mode": _TRIGGER_UDEV,
}
# NVIDIA's modules, each before those that it uses.
_MODULES = ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
# The usual names of the devices of a class; other classes have their own name.
_WORDS = {"gpu": "GPU", "npu": "NPU", "gaudi": "Gaudi"}


def _failures(context: Context) -> Iterator[CheckResult]:
    """Report the vendors that offer nothing."""
    for name, error in context.failures.items():
        if error.kind == "driver-not-loaded":
            detail, remedies = _not_loaded(context, registry.load(name), error)
            yield TOPIC.error(LOADED, detail, remedies)
        elif error.kind in _FAILED:
            yield TOPIC.error(
                _FAILED[error.kind], with_hint(error), _remedies_of_failure(context, name, error)
            )


def _inventories(context: Context) -> Iterator[CheckResult]:
    """Report what discovery found wrong with each vendor's driver and GPUs, and what is right."""
    for inventory in context.inventories.values():
        yield from _findings(context, inventory)
        yield from _good(inventory)


def _diagnostics(context: Context) -> Iterator[CheckResult]:
    """Report known problems of a vendor that discovery does not find."""
    if context.inventories:
        yield TOPIC.good(DIAGNOSTIC, f"none that is known of {' and '.join(context.inventories)}")
    for name in context.request.vendors:
        inventory = context.inventories.get(name)
        if inventory is None and name not in context.failures:
            continue  # not requested, and not present
        said = context.failures[name].message if name in context.failures else ""
        for finding in discovery.diagnostics(name, context.request.discovery_context, inventory):
            if finding.message not in said:
                yield TOPIC.finding(DIAGNOSTIC, finding, _remedies(context, finding))


CHECKS = (_failures, _inventories, _diagnostics)


def _remedies_of_failure(context: Context, name: str, error: HostError) -> tuple[Remedy, ...]:
    if name != "nvidia":
        return ()
    if error.kind == "version-mismatch":
        loaded = tuple(module for module in _MODULES if context.host.exists(f"/sys/module/{module}"))
        return (
            Remedy(argv=("rmmod", *(loaded or _MODULES)), why="unload the old driver"),
            _load("nvidia"),
        )
    if error.kind in {"driver-broken", "driver-not-found"}:
        return _reinstall(context, "libcuda.so.1", "libnvidia-ml.so.1")
    return ()


def _load(module: str) -> Remedy:
    return Remedy(argv=("modprobe", module), why="load the driver's module")


def _not_loaded(context: Context, vendor: Vendor, error: HostError) -> tuple[str, tuple[Remedy, ...]]:
    """Return why no module of VENDOR is loaded, as far as can be found out, and what to do."""
    host, module = context.host, vendor.MODULES[0]
    cards = [
        card
        for number in vendor.PCI_VENDORS
        for card in pci_devices(host, vendor=number, classes=ACCELERATORS)
    ]
    if not cards and host.exists(PCI_DEVICES):
        # Where all vendors were asked, and none has a GPU here, discovery itself says so.
        is_said = not context.request.are_named and len(context.request.vendors) > 1
        text = "" if is_said else f", and no GPU of {vendor.NAME} is on the PCI bus"
        return f"{error.message}{text}", ()
    holders = {driver for _, driver in cards if driver and driver not in vendor.MODULES}
    if "nouveau" in holders:
        text = f"{error.message}: the driver nouveau holds {_count(len(cards), 'GPU')}"
        return text, (Remedy(argv=("modprobe", "-r", "nouveau"), why="free the GPUs"), _load(module))
    release = kernel_release(host)
    known = context.text(f"/lib/modules/{release}/modules.dep", limit=4 << 20) if release else ""
    if known and not any(name in known for name in vendor.MODULES):
        text = f"{error.message}: there is no module of it for the kernel {release}"
        if not host.exists("/usr/sbin/dkms"):
            return text, ()
        return text, (Remedy(argv=("dkms", "autoinstall"), why="build it for this kernel"), _load(module))
    is_futile = cards and not _would_take(host, vendor, {driver for _, driver in cards})
    return with_hint(error), () if is_futile else (_load(module),)


def _would_take(host: Root, vendor: Vendor, drivers: set[str]) -> bool:
    """Return whether loading a module of VENDOR may help its GPUs, which DRIVERS have (empty: none has).

    A driver takes no device bound to another one, and a loaded driver was offered all unbound ones.
    """
    if drivers.intersection(vendor.MODULES):
        return True
    return "" in drivers and not any(host.exists(f"/sys/module/{name}") for name in vendor.MODULES)


def _findings(context: Context, inventory: Inventory) -> Iterator[CheckResult]:
    for finding in inventory.findings:
        check_name = _RULES.get(finding.rule, "" if inventory.vendor == "nvidia" else GPUS)
        if check_name and finding.severity != "info" and finding.rule not in _NODE_RULES:
            yield TOPIC.finding(check_name, finding, _remedies(context, finding))


def _remedies(context: Context, finding: Finding) -> tuple[Remedy, ...]:
    if finding.rule in {"library-missing", "library-incomplete", "library-unusable"}:
        return _reinstall(context, finding.path.rpartition("/")[2])
    return _REMEDIES.get(finding.rule, ())


def _reinstall(context: Context, *names: str) -> tuple[Remedy, ...]:
    """Return the command that installs again the Debian packages that hold files NAMES, if any is known."""
    if not context.host.exists("/usr/bin/apt-get"):
        return ()
    folder = "/var/lib/dpkg/info"
    found: dict[str, None] = {}
    for entry in context.host.names(folder):
        package = entry.removesuffix(".list").partition(":")[0]
        if not entry.endswith(".list") or not ("nvidia" in package or "cuda" in package):
            continue
        listed = context.text(f"{folder}/{entry}", limit=4 << 20)
        if any(f"/{name}" in listed for name in names):
            found[package] = None
    command = ("apt-get", "install", "--reinstall", "--yes", *found)
    return (Remedy(argv=command, why="install the driver's files again"),) if found else ()


def _good(inventory: Inventory) -> Iterator[CheckResult]:
    """Report what is right in INVENTORY; ``examine`` leaves out the checks that have failed."""
    driver = inventory.driver
    own = f"the driver of {inventory.vendor} is loaded: the one of the kernel {driver.version}"
    other = f"the driver of {inventory.vendor} is loaded: {driver.version} ({driver.flavour})"
    yield TOPIC.good(LOADED, own if driver.flavour == "in-tree" else other)
    libraries = [file for file in inventory.files if file.kind == "library"]
    if libraries:  # of other makers than NVIDIA images bring their own
        yield TOPIC.good(VERSION, f"libraries and module are {driver.version}")
        yield TOPIC.good(FILES, f"{_count(len(libraries), 'library', 'libraries')} of the driver")
    yield TOPIC.good(GPUS, f"of {inventory.vendor}: {_offered(inventory)}")
    if inventory.vendor == "nvidia":
        yield TOPIC.good(MODULE, "nothing here is missed for want of the Python module pynvml (nvidia-ml-py)")


def _offered(inventory: Inventory) -> str:
    """Return how many devices an inventory offers: ``2 GPUs and 1 NPU, 16 partitions``."""
    usable = [each for each in inventory.accelerators if each.usable]
    classes = Counter(each.device_class for each in usable)
    parts = sum(part.usable for each in usable for part in each.partitions)
    split = f", {_count(parts, 'partition')}" if parts else ""
    told = [f"{_count(number, _WORDS.get(name, name))}" for name, number in classes.items()] or ["0 GPUs"]
    if inventory.groups:
        told.append(f"{_count(len(inventory.groups), 'family', 'families')} of other devices")
    return f"{' and '.join(told)}{split}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
