"""Find the reason why no module of a vendor is loaded (``explain``): other drivers, settings, signatures."""

from __future__ import annotations

from cdigen.doctor.result import Remedy, listed, with_hint
from cdigen.host.kernelmodules import configuration_lines, kernel_name, module_exclusions, unload_order
from cdigen.host.procfs import kernel_release, read_line, read_text
from cdigen.host.sysfs import ACCELERATORS, PCI_DEVICES, PCI_DRIVERS, pci_devices
from cdigen.value import frozen
from cdigen.vendors import registry
from cdigen.vendors.kernel.log_messages import kernel_messages
from cdigen.vendors.kernel.modules import fitting_modules, is_loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.host.root import Root
    from cdigen.model.errors import HostError
    from cdigen.vendors.base import Vendor

    # PCI address and bound driver ("" if there is none).
    _Card = tuple[str, str]

# Parts of the names of drivers that hold a device for virtual machines: vfio-pci and the vendors' own VFIO
# drivers, pci-stub, Xen's pciback.
_FOR_GUESTS = ("vfio", "pci-stub", "pciback")
# The kernel's Documentation/admin-guide/kernel-parameters.txt, "module.sig_enforce"; kernel_lockdown(7).
_ENFORCED = "/sys/module/module/parameters/sig_enforce"
_LOCKDOWN = "/sys/kernel/security/lockdown"
# kernel/module/signing.c (module_sig_check) and security/lockdown/lockdown.c. Before Linux 5.12, the line
# about the signature begins without the module's name.
_REJECTED = ("Loading of ", "Lockdown: modprobe: unsigned module loading is restricted")
# The public keys of the programs that sign modules on this host: dkms 3, Ubuntu's and Debian's shim-signed,
# akmods (Fedora, RPM Fusion).
_KEYS = (
    "/var/lib/dkms/mok.pub",
    "/var/lib/shim-signed/mok/MOK.der",
    "/etc/pki/akmods/certs/public_key.der",
)
_MOKUTIL = "/usr/bin/mokutil"
# The programs that make an initramfs, which has its own copy of /etc/modprobe.d (initramfs-tools, dracut,
# mkinitcpio).
_INITRAMFS = (
    ("/usr/sbin/update-initramfs", "update-initramfs -u"),
    ("/usr/bin/dracut", "dracut --force"),
    ("/usr/bin/mkinitcpio", "mkinitcpio -P"),
)
_MODULES = "/lib/modules"
_MOST_KERNELS = 16
# The program of dkms, and its folder with a folder for each package and version (dkms(8), "dkms_tree").
_DKMS = ("/usr/sbin/dkms", "/usr/bin/dkms")
_DKMS_TREE = "/var/lib/dkms"


@frozen
class _Obstacle:
    """A reason why the module is not loaded, and the commands that remove the reason.

    ``is_last`` is true if the module cannot be loaded directly after ``remedies``: a file must be edited, or
    the machine rebooted. ``built`` is the module that exists only after ``remedies``.
    """

    text: str
    remedies: tuple[Remedy, ...] = ()
    is_last: bool = False
    built: str = ""


def load(module: str) -> Remedy:
    """Return the command that loads MODULE."""
    return Remedy(argv=("modprobe", module), why="load the driver module")


def explain(context: Context, vendor: Vendor, error: HostError) -> tuple[str, tuple[Remedy, ...]]:
    """Return the known reasons for ERROR, which reports that no module of VENDOR is loaded, and the remedies.

    A remedy loads a module only if nothing prevents the loading.
    """
    host = context.host
    cards = [
        card
        for number in vendor.PCI_VENDORS
        for card in pci_devices(host, vendor=number, classes=ACCELERATORS)
    ]
    matching = fitting_modules(host, vendor.MODULES)
    fitting = tuple(name for name in matching if not is_loaded(host, name))
    if not cards and not fitting:
        # If the user named no vendor and the host has no GPU, the discovery's message already reports this.
        is_in_message = not context.request.are_named and len(context.request.vendors) > 1
        text = "" if is_in_message else f", and no GPU of {vendor.NAME} is on the PCI bus"
        return f"{error.message}{text}", ()
    # If a vendor has several modules, only the kernel's file modules.alias identifies a device's module.
    is_known = len(vendor.MODULES) == 1 and _can_bind(host, vendor, {driver for _, driver in cards})
    wanted = fitting or (vendor.MODULES if is_known else ())
    # The message of some vendors already has the drivers of the cards, and the hint has the next step.
    unnamed = [(address, driver) for address, driver in cards if f"bound to {driver}" not in error.message]
    held = tuple(_held(host, vendor, unnamed))
    obstacles = (*held, *_excluded(host, vendor, wanted or matching))
    if not any(each.is_last for each in obstacles):
        reasons = tuple(_incompatible(host, vendor)) or _logged(host, vendor, wanted)
        obstacles += (*_unbuilt(context, vendor), *reasons)
    if not obstacles:
        return (error.message, tuple(map(load, wanted))) if wanted else (with_hint(error), ())
    is_last = any(each.is_last for each in obstacles)
    # The other driver stays loaded if the module of the vendor cannot replace it.
    useful = [each for each in obstacles if not is_last or each not in held]
    remedies = tuple(remedy for each in useful for remedy in each.remedies)
    built = tuple(each.built for each in obstacles if each.built)
    loads = () if is_last else tuple(map(load, wanted or built))
    return f"{error.message}: {'; '.join(each.text for each in obstacles)}", (*remedies, *loads)


def _rivals(vendor: Vendor) -> tuple[str, ...]:
    known = registry.remedies(vendor.NAME)
    return known.rivals if known else ()


def _can_bind(host: Root, vendor: Vendor, drivers: set[str]) -> bool:
    """Return whether the module of VENDOR can bind the vendor's GPUs, after the rivals are unloaded.

    DRIVERS are the present drivers of the GPUs; an empty text is an unbound GPU. A driver does not bind a
    device that is bound to another driver. A loaded driver has already probed all unbound devices.
    """
    if drivers.intersection((*vendor.MODULES, *_rivals(vendor))):
        return True
    return "" in drivers and not any(is_loaded(host, name) for name in vendor.MODULES)


def _held(host: Root, vendor: Vendor, cards: list[_Card]) -> Iterator[_Obstacle]:
    """Yield an obstacle for each other driver that holds GPUs.

    A GPU without a driver, or with a driver of VENDOR, is sufficient for the module.
    """
    rivals = _rivals(vendor)
    others: dict[str, list[str]] = {}
    for address, driver in cards:
        if driver and driver not in vendor.MODULES:
            others.setdefault(driver, []).append(address)
    is_free = sum(map(len, others.values())) < len(cards)
    for driver, addresses in others.items():
        count = f"{len(addresses)} GPU{'' if len(addresses) == 1 else 's'}"
        held = f"{count} bound to the driver {driver} ({listed(addresses)})"
        if driver in rivals:
            module = _module_of(host, driver)
            unload = ("modprobe", "-r", *(unload_order(host, module) or (module,)))
            text = f"{held}; {_unloaded_at_boot(host, module)}"
            yield _Obstacle(text=text, remedies=(Remedy(argv=unload, why="free the GPUs"),))
        elif not is_free and not others.keys() & set(rivals):
            yield _Obstacle(text=f"{held}{_reservation(host, driver, addresses)}", is_last=True)


def _unloaded_at_boot(host: Root, module: str) -> str:
    """Return the step that keeps MODULE unloaded at boot, also in the initramfs."""
    command = next((text for path, text in _INITRAMFS if host.exists(path)), "")
    by = f" ({command!r})" if command else ""
    if excluded := module_exclusions(host, module):
        place = f"{excluded[0].place} excludes {module}"
        return f"{place}, but an older initramfs can load it: make the initramfs again{by} and reboot"
    return (
        f"the line 'blacklist {module}' in /etc/modprobe.d/*.conf keeps it unloaded at boot, after the "
        f"initramfs is made again{by}"
    )


def _module_of(host: Root, driver: str) -> str:
    """Return the module of DRIVER; the name of a driver can differ from the module's name (NovaCore)."""
    try:
        return host.resolve(f"{PCI_DRIVERS}/{driver}/module").rpartition("/")[2]
    except OSError:
        return kernel_name(driver)


def _reservation(host: Root, driver: str, addresses: list[str]) -> str:
    """Return the setting that binds the devices ADDRESSES to DRIVER, as the continuation of a sentence."""
    if not any(part in driver for part in _FOR_GUESTS):
        return f"; to use them in containers, unbind them from {driver}"
    wanted = {_device_id(host, address) for address in addresses}
    places = [
        f"{path}:{number}"
        for path, number, row in configuration_lines(host)
        if row[:1] == ["options"] and kernel_name(row[1]) == kernel_name(driver) and _lists(row[-1], wanted)
    ]
    command_line = _words(host, "/proc/cmdline")
    if any(word.startswith(f"{driver}.ids=") and _lists(word, wanted) for word in command_line):
        places.append(f"{driver}.ids= on the kernel command line")
    if any(read_line(host, f"{PCI_DEVICES}/{each}/driver_override") == driver for each in addresses):
        places.append(f"driver_override in {PCI_DEVICES}/{addresses[0]}")
    where = f" ({listed(places)})" if places else ""
    return f", for virtual machines{where}; to use them in containers, remove this setting and reboot"


def _device_id(host: Root, address: str) -> str:
    numbers = (read_line(host, f"{PCI_DEVICES}/{address}/{name}") for name in ("vendor", "device"))
    return ":".join(number.removeprefix("0x") for number in numbers)


def _lists(text: str, ids: set[str]) -> bool:
    words = text.replace("=", " ").replace(",", " ").lower().split()
    return any(":".join(word.split(":")[:2]) in ids for word in words)


def _words(host: Root, path: str) -> list[str]:
    try:
        return read_text(host, path).split()
    except OSError:
        return []


def _excluded(host: Root, vendor: Vendor, wanted: tuple[str, ...]) -> Iterator[_Obstacle]:
    """Yield the settings of modprobe.d(5) and of the kernel command line that exclude the modules WANTED."""
    nodes = registry.boot_nodes(vendor.NAME)
    for module in wanted:
        names = nodes.drivers if nodes and module in nodes.drivers else ()
        for found in module_exclusions(host, module, names):
            place = found.place.replace("= on", f"={module} on")
            effect = "prevents" if found.is_strict else "prevents the automatic loading of"
            after = " and reboot" if "command line" in place else ""
            text = f"{place} {effect} {module}: remove it{after}"
            yield _Obstacle(text=text, is_last=found.is_strict)


def _unbuilt(context: Context, vendor: Vendor) -> Iterator[_Obstacle]:
    """Yield an obstacle if the running kernel has no module of VENDOR; other kernels may have the module."""
    release = kernel_release(context.host)
    if not release or not _modules_of(context, release) or _has_module(context, vendor, release):
        return
    others = [name for name in context.host.names(_MODULES) if name != release][:_MOST_KERNELS]
    built = [name for name in others if _has_module(context, vendor, name)]
    text = f"no module for the kernel {release}{f' (only for {listed(built)})' if built else ''}"
    module, package, version, log = _dkms_source(context, vendor)
    if log:
        text += (
            f": dkms failed to build {package}/{version}, see {log}; install a release of the driver that "
            "supports this kernel, or boot a kernel that this release supports"
        )
        yield _Obstacle(text=text, is_last=True)
    elif package:
        if not context.host.exists(f"{_MODULES}/{release}/build"):
            text += "; dkms needs the headers of this kernel"
        build = Remedy(argv=("dkms", "autoinstall"), why="build the module for this kernel")
        yield _Obstacle(text=text, remedies=(build,), built=module)
    else:
        text += "; install the driver again, or the package with its module for this kernel"
        yield _Obstacle(text=text, is_last=True)


def _modules_of(context: Context, release: str) -> str:
    return context.text(f"{_MODULES}/{release}/modules.dep", limit=4 << 20)


def _has_module(context: Context, vendor: Vendor, release: str) -> bool:
    """Return whether the kernel RELEASE has a module of VENDOR.

    Debian appends words to the names of modules (nvidia-tesla-470). Other modules of the kernel's own tree
    have such names too (i2c-nvidia-gpu, nvidia-wmi-ec-backlight).
    """
    for line in _modules_of(context, release).splitlines():
        file = line.partition(":")[0]
        name = kernel_name(file.rpartition("/")[2].partition(".ko")[0])
        is_own = not file.startswith("kernel/")
        if any(name == own or (is_own and name.startswith(f"{own}_")) for own in vendor.MODULES):
            return True
    return False


def _dkms_source(context: Context, vendor: Vendor) -> tuple[str, str, str, str]:
    """Return the module, package and version of VENDOR's source in dkms, and the log of a failed build.

    After a successful build, dkms moves the log to another folder (dkms 3.2, dkms.in, do_build). The texts
    are empty if there is no source, or no failed build.
    """
    host = context.host
    if not any(host.exists(path) for path in _DKMS):
        return "", "", "", ""
    for package in host.names(_DKMS_TREE):
        names = (name for name in vendor.MODULES if package == name or package.startswith(f"{name}-"))
        module = next(names, "")
        if not module:
            continue
        for version in reversed(host.names(f"{_DKMS_TREE}/{package}")):
            folder = f"{_DKMS_TREE}/{package}/{version}"
            if not version.startswith("kernel-") and host.exists(f"{folder}/source/dkms.conf"):
                log = f"{folder}/build/make.log"
                return module, package, version, log if host.exists(log) else ""
    return "", "", "", ""


def _incompatible(host: Root, vendor: Vendor) -> Iterator[_Obstacle]:
    """Yield an obstacle if the installed module supports no device of the host."""
    known = registry.remedies(vendor.NAME)
    if known and known.mismatch and (text := known.mismatch(host)):
        yield _Obstacle(text=text, is_last=True)


def rejected_devices(host: Root, vendor: Vendor) -> dict[str, str]:
    """Return the unbound devices that the loaded module of VENDOR has rejected: address -> meaning.

    The meanings are those of the newest messages in the kernel log, with the next steps.
    """
    known = registry.remedies(vendor.NAME)
    cards = (
        card
        for number in vendor.PCI_VENDORS
        for card in pci_devices(host, vendor=number, classes=ACCELERATORS)
    )
    unbound = [address for address, driver in cards if not driver]
    found: dict[str, str] = {}
    if not known or not known.refusals or not unbound:
        return found
    for text in kernel_messages(host, known.log_beginnings):
        meaning = next((meaning for phrase, meaning in known.refusals if phrase in text), "")
        found.update((address, meaning) for address in unbound if meaning and address in text)
    return found


def _logged(host: Root, vendor: Vendor, wanted: tuple[str, ...]) -> Iterator[_Obstacle]:
    """Yield the reason that the kernel log has, or Secure Boot as a possible reason.

    The kernel has rejected the module, or the module has rejected the GPUs.
    """
    known, nodes = registry.remedies(vendor.NAME), registry.boot_nodes(vendor.NAME)
    names = (*wanted, *(nodes.drivers if nodes else ()))
    rejected = (*_REJECTED, *(f"{name}: loading of " for name in names))
    of_vendor = known.log_beginnings if known else ()
    for text in reversed(kernel_messages(host, (*rejected, *of_vendor))):
        if text.startswith(rejected) and ("rejected" in text or "restricted" in text):
            yield _unsigned(host, text)
            return
        for phrase, meaning in known.refusals if known else ():
            if phrase in text and text.startswith(of_vendor):
                yield _Obstacle(text=meaning, is_last=True)
                return
    if is_signature_required(host):
        yield _unsigned(host)


def _unsigned(host: Root, message: str = "") -> _Obstacle:
    """Return the obstacle that the kernel loads only modules with the signature of an enrolled key.

    MESSAGE is the kernel's message about a rejected module. Without MESSAGE, the signature is only a possible
    reason.
    """
    key = next((path for path in _KEYS if host.exists(path)), "")
    command = ("mokutil", "--import", key or "KEY")
    step = f"enrol the key that signed it ('{' '.join(command)}'), reboot, and confirm the enrolment at boot"
    if not message:
        return _Obstacle(text=f"Secure Boot: if modprobe reports 'Key was rejected by service', {step}")
    enrol = Remedy(argv=command, why="enrol the key that signs the modules of this host")
    remedies = (enrol,) if key and host.exists(_MOKUTIL) else ()
    return _Obstacle(
        text=f"Secure Boot: the kernel log has {message!r}; {step}", remedies=remedies, is_last=True
    )


def is_signature_required(host: Root) -> bool:
    """Return whether the kernel loads only signed modules, by its parameter or by lockdown (Secure Boot)."""
    state = read_line(host, _LOCKDOWN)
    return read_line(host, _ENFORCED) == "Y" or ("[" in state and "[none]" not in state)
