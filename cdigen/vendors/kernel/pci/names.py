"""Read the names of PCI devices from the host's lists: amdgpu.ids of libdrm, and pci.ids.

The lists are updated with the packages of the host. They contain the names of devices that are newer than
cdigen. Formats: libdrm, data/amdgpu.ids; pciutils, pci.ids(5).
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

# libdrm-common in Debian and Fedora; /usr/local in builds from source.
AMDGPU_IDS = ("/usr/share/libdrm/amdgpu.ids", "/usr/local/share/libdrm/amdgpu.ids")
# Debian and Arch (hwdata); Fedora, SUSE and Debian's hwdata.
PCI_IDS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
# In bytes. amdgpu.ids has 20 KB, and pci.ids has 1.6 MB (2026).
_MAX_SIZE = 8 << 20
_MAX_NAME = 100
_NEXT_VENDOR = re.compile(rb"^[^\t#\s]", re.MULTILINE)
_NUMBER = re.compile(r"0x[0-9a-f]{4}", re.ASCII)


def amdgpu_name(host: Root, device: str, revision: str) -> str:
    """Return the product name of an AMD GPU, such as ``AMD Radeon RX 9070 XT``, or "".

    DEVICE (``0x7550``) and REVISION (``0xc0``) are the values in /sys.
    """
    wanted = [device.removeprefix("0x").upper(), revision.removeprefix("0x").upper()]
    for line in _content(host, AMDGPU_IDS).decode("utf-8", "replace").splitlines():
        fields = [field.strip() for field in line.split(",", 2)]
        if len(fields) == 3 and [field.upper() for field in fields[:2]] == wanted:
            return _plain(fields[2])
    return ""


def pci_name(host: Root, vendor: int, device: str) -> str:
    """Return the name of the device DEVICE (``0xb080``) of VENDOR in pci.ids, or "".

    A name such as ``Navi 48 [Radeon RX 9070/9070 XT]`` contains the product in brackets. The result is then
    only the product.
    """
    if _NUMBER.fullmatch(device) is None:
        return ""
    for line in _vendor_block(_content(host, PCI_IDS), vendor).decode("utf-8", "replace").splitlines():
        if line.lower().startswith(f"\t{device.removeprefix('0x')} "):
            name = line[5:].strip()
            found = re.search(r"\[([^][]+)\]$", name)
            return _plain(found[1] if found else name)
    return ""


def _vendor_block(content: bytes, vendor: int) -> bytes:
    """Return the lines of VENDOR in CONTENT of pci.ids, without decoding the other vendors' 40,000 lines."""
    start = content.find(b"\n%04x " % vendor) + 1
    if not start:
        return b""
    end = _NEXT_VENDOR.search(content, start + 1)
    return content[start : end.start() if end else len(content)]


def _content(host: Root, paths: tuple[str, ...]) -> bytes:
    """Return the content of the first readable file in PATHS, or nothing."""
    for path in paths:
        try:
            return host.read(path, limit=_MAX_SIZE)
        except OSError:
            continue
    return b""


def _plain(name: str) -> str:
    return name[:_MAX_NAME] if name.isprintable() else ""
