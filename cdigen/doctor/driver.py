"""The driver: whether its module is loaded, its files belong to it, and its GPUs are well."""

from __future__ import annotations

from cdigen.doctor.verdict import Topic, command_in
from cdigen.host.procfs import kernel_release
from cdigen.host.sysfs import pci_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.verdict import Verdict
    from cdigen.host.root import Root
    from cdigen.model.errors import HostError
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory

TOPIC = Topic(name="driver")
LOADED, VERSION, FILES, GPUS, TOOL = (
    "driver-loaded",
    "driver-version",
    "driver-files",
    "gpus",
    "driver-library",
)
# What keeps a host from having any spec: other failures may be their consequence.
CAUSES = (LOADED, GPUS, VERSION, FILES, "node-missing", "node-wrong")

# HostError.kind -> the check that has failed. What is about nodes is said in nodes.py.
_FAILED = {
    "driver-not-loaded": LOADED,
    "no-gpu": GPUS,
    "no-mig-instances": GPUS,
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
    "gpu-repeated": GPUS,
    "gpu-information-unreadable": GPUS,
    "gpu-address-unknown": GPUS,
    "mig-empty": GPUS,
    "mig-contradiction": GPUS,
    "mig-minors-unreadable": GPUS,
    "kernel-file-unusable": LOADED,
    "nvml-failed": TOOL,
    "nvml-gpu-failed": TOOL,
    "nvml-timeout": TOOL,
    "nvml-crashed": TOOL,
    "nvml-garbage": TOOL,
    "nvml-untrusted": TOOL,
}
NVIDIA_PCI = 0x10DE
_DISPLAY = (0x0300, 0x0302)


def check(context: Context) -> Iterator[Verdict]:
    """Say how each vendor's driver and its GPUs stand."""
    for error in context.failures.values():
        if error.kind in _FAILED:
            yield _failure(context, error)
    for inventory in context.inventories.values():
        yield from _findings(context, inventory)
        yield from _good(inventory)


def _failure(context: Context, error: HostError) -> Verdict:
    remedy = command_in(error.hint)
    detail = f"{error.message}; {error.hint}" if error.hint else error.message
    if error.kind == "driver-not-loaded":
        detail, remedy = _not_loaded(context.host, error)
    elif error.kind == "version-mismatch":
        remedy = "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia"
    elif error.kind in {"driver-broken", "driver-not-found"}:
        remedy = _reinstall(context, "libcuda.so.1", "libnvidia-ml.so.1")
    return TOPIC.error(_FAILED[error.kind], detail, remedy)


def _not_loaded(host: Root, error: HostError) -> tuple[str, str]:
    """Return why no module runs, as far as the host tells, and what to do."""
    cards = pci_devices(host, vendor=NVIDIA_PCI, classes=_DISPLAY)
    if not cards and host.exists("/sys/bus/pci/devices"):
        return f"{error.message}, and no NVIDIA GPU is on the PCI bus", ""
    holders = {driver for _, driver in cards if driver and driver != "nvidia"}
    if "nouveau" in holders:
        text = f"{error.message}: the driver nouveau holds {_count(len(cards), 'GPU')}"
        return text, "modprobe -r nouveau && modprobe nvidia"
    release = kernel_release(host)
    known = _text(host, f"/lib/modules/{release}/modules.dep") if release else ""
    if known and "nvidia" not in known:
        text = f"{error.message}: there is no module of it for the kernel {release}"
        has_dkms = host.exists("/usr/sbin/dkms")
        return text, "dkms autoinstall && modprobe nvidia" if has_dkms else ""
    return f"{error.message}; {error.hint}", "modprobe nvidia"


def _text(host: Root, path: str) -> str:
    try:
        return host.read(path, limit=4 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def _findings(context: Context, inventory: Inventory) -> Iterator[Verdict]:
    for finding in inventory.findings:
        check_name = _RULES.get(finding.rule)
        if check_name is None or finding.severity == "info":
            continue
        detail = f"{finding.message}; {finding.hint}" if finding.hint else finding.message
        remedy = _remedy(context, finding)
        say = TOPIC.error if finding.severity == "error" else TOPIC.warning
        yield say(check_name, detail, remedy)


def _remedy(context: Context, finding: Finding) -> str:
    if finding.rule in {"library-missing", "library-incomplete", "library-unusable"}:
        return _reinstall(context, finding.path.rpartition("/")[2])
    if finding.rule == "ld-cache-unreadable":
        return "ldconfig"
    return command_in(finding.hint)


def _reinstall(context: Context, *names: str) -> str:
    """Return the command that installs again the Debian packages that hold files NAMES, if any is known."""
    if not context.host.exists("/usr/bin/apt-get"):
        return ""
    folder = "/var/lib/dpkg/info"
    found: dict[str, None] = {}
    for entry in context.host.names(folder):
        package = entry.removesuffix(".list").partition(":")[0]
        if not entry.endswith(".list") or not ("nvidia" in package or "cuda" in package):
            continue
        listed = _text(context.host, f"{folder}/{entry}")
        if any(f"/{name}" in listed for name in names):
            found[package] = None
    return f"apt-get install --reinstall --yes {' '.join(found)}" if found else ""


def _good(inventory: Inventory) -> Iterator[Verdict]:
    """Say what stands well of INVENTORY; what a finding speaks of is left out by ``examine``."""
    driver = inventory.driver
    yield TOPIC.good(LOADED, f"{inventory.vendor} {driver.version} ({driver.flavour}) is loaded")
    yield TOPIC.good(VERSION, f"libraries and module are {driver.version}")
    libraries = [file for file in inventory.files if file.kind == "library"]
    yield TOPIC.good(FILES, f"{_count(len(libraries), 'library', 'libraries')} of the driver")
    usable = [gpu for gpu in inventory.accelerators if gpu.usable]
    others = (
        f" and {_count(len(inventory.groups), 'family', 'families')} of other devices"
        if inventory.groups
        else ""
    )
    yield TOPIC.good(GPUS, f"{_count(len(usable), 'GPU')}{others}")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
