"""Compare the flavour of NVIDIA's kernel module (open or proprietary) with the GPUs of the host.

Source: NVIDIA's README of the driver 580, "Open Linux Kernel Modules". The open module needs a GSP, which
GPUs have from Turing on. The proprietary module supports no GPU from Blackwell on. The lowest PCI device
numbers of these GPUs are from pci.ids.
"""

from __future__ import annotations

import re
from contextlib import suppress

from cdigen.host import sysfs
from cdigen.host.kernelmodules import kernel_name
from cdigen.host.procfs import kernel_release, read_line, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import OpenFile, Root

PCI_DRIVER = "nvidia"
PCI_VENDOR = 0x10DE
PCI_CLASSES = (0x0300, 0x0302)  # VGA and 3D controllers (PCI Code and ID Assignment, class 03)
OPEN, PROPRIETARY = "open", "proprietary"
_FIRST_GSP, _FIRST_BLACKWELL = "1e02", "2900"  # TU102; GB100 has 2901
# The drivers of the kernel's own tree, which the module of NVIDIA can replace.
_REPLACEABLE = frozenset({"", "nouveau", "NovaCore"})
# The line of the module's section .modinfo (modinfo(8)).
_LICENSE = re.compile(rb"license=(Dual MIT/GPL|NVIDIA)\0")
_FLAVOURS = {b"Dual MIT/GPL": OPEN, b"NVIDIA": PROPRIETARY}
# Bytes of a part of the file, and of the longest unpacked module that is searched.
_PART, _LONGEST = 1 << 20, 1 << 28
_LONGEST_LINE = 32
# The packages of negativo17 build the module that this file of the package nvidia-kmod-common selects.
_SELECTION, _SELECTED_OPEN = "/etc/nvidia/kernel.conf", "kernel-open"
_AKMODS = ("/usr/sbin/akmods", "/usr/bin/akmods")


def unsupported(flavour: str, device: str) -> str:
    """Return the reason why the module of FLAVOUR does not support the PCI device number DEVICE, or "".

    DEVICE has four hexadecimal digits (``1d01``). The reason contains the next step.
    """
    if len(device) != len(_FIRST_GSP):
        return ""
    if flavour == OPEN and device < _FIRST_GSP:
        return (
            "the open kernel module does not support GPUs before Turing: install the proprietary module "
            "(branch <= 580)"
        )
    if flavour == PROPRIETARY and device >= _FIRST_BLACKWELL:
        return (
            "the proprietary kernel module does not support GPUs from Blackwell on: install the open module"
        )
    return ""


def device_number(host: Root, address: str) -> str:
    """Return the PCI device number of ADDRESS as lower-case digits, or "" if it cannot be read."""
    return read_line(host, f"{sysfs.PCI_DEVICES}/{address}/device").removeprefix("0x").lower()


def mismatch(host: Root) -> str:
    """Return why the installed module supports no GPU of the host, with the next step; "" if it may.

    The module does not stay loaded if it supports no GPU.
    """
    gpus = [
        address
        for address, driver in sysfs.pci_devices(host, vendor=PCI_VENDOR, classes=PCI_CLASSES)
        if driver in _REPLACEABLE
    ]
    flavour = _installed(host) if gpus else ""
    reasons = [unsupported(flavour, device_number(host, address)) for address in gpus]
    if not reasons or not all(reasons):
        return ""
    return f"{', '.join(gpus)}: {reasons[0]}{_selection(host) if flavour == OPEN else ''}"


def _selection(host: Root) -> str:
    """Return the setting that selects the proprietary module, as the continuation of a sentence, or ""."""
    if not _selects_open(host):
        return ""
    build = "run 'akmods --rebuild'" if any(map(host.exists, _AKMODS)) else "build the module again"
    return f"; for this, set MODULE_VARIANT=kernel in {_SELECTION}, {build} and reboot"


def _selects_open(host: Root) -> bool:
    try:
        lines = read_text(host, _SELECTION).splitlines()
    except OSError:
        return False
    values = [line.partition("=")[2].strip(" \"'") for line in lines if line.startswith("MODULE_VARIANT=")]
    return values[-1:] == [_SELECTED_OPEN]


def _installed(host: Root) -> str:
    """Return the flavour of the module of the running kernel by its licence, or "" if it is not known."""
    folder = f"/lib/modules/{kernel_release(host) or '-'}"
    try:
        lines = read_text(host, f"{folder}/modules.dep", limit=4 << 20).splitlines()
    except OSError:
        lines = []
    for line in lines:
        file = line.partition(":")[0]
        if kernel_name(file.rpartition("/")[2].partition(".ko")[0]) != PCI_DRIVER:
            continue
        flavour = _flavour_of(host, file if file.startswith("/") else f"{folder}/{file}")
        return flavour or (OPEN if _selects_open(host) else "")
    return ""


def _flavour_of(host: Root, path: str) -> str:
    """Return the flavour of the module file PATH; "" if it has no known licence or cannot be unpacked."""
    last = b""
    try:
        with host.open(path) as file:
            for part in _unpacked(file, path):
                found = _LICENSE.search(last + part)
                if found:
                    return _FLAVOURS[found[1]]
                last = part[-_LONGEST_LINE:]
    except OSError:
        pass
    return ""


def _unpacked(file: OpenFile, path: str) -> Iterator[bytes]:
    """Yield the content of the module FILE in parts; nothing more if it is damaged.

    The packing .zst is not read, because Python has no library for it before 3.14.
    """
    if path.endswith(".ko"):
        yield from (file.read_at(offset, _PART) for offset in range(0, min(file.size, _LONGEST), _PART))
    if not path.endswith(".ko.xz"):
        return
    import lzma  # noqa: PLC0415 - only the doctor unpacks modules

    unpacker = lzma.LZMADecompressor(memlimit=_LONGEST)
    read = unpacked = 0
    with suppress(lzma.LZMAError, EOFError):
        while not unpacker.eof and unpacked < _LONGEST:
            packed = file.read_at(read, _PART) if unpacker.needs_input else b""
            if unpacker.needs_input and not packed:
                return
            read += len(packed)
            part = unpacker.decompress(packed, _PART)
            unpacked += len(part)
            yield part
