"""Tell whether a kernel module is loaded, and of which build it is."""

from __future__ import annotations

import os

from cdigen.host.procfs import kernel_release, read_text
from cdigen.model.inventory import Driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

MODULES = "/sys/module"
# The kernel's word for its machine, from 6.1 on (Documentation/admin-guide/sysctl/kernel.rst, "arch").
ARCHITECTURE = "/proc/sys/kernel/arch"


def is_loaded(host: Root, module: str) -> bool:
    """Return whether MODULE is loaded, or built into the kernel and in use."""
    return host.exists(f"{MODULES}/{module}")


def read_driver(host: Root, module: str) -> Driver:
    """Read what there is to say of MODULE, which is loaded.

    Modules of the kernel's own tree have no version but the kernel's; those that DKMS builds have
    (``MODULE_VERSION``, which sysfs shows).
    """
    version = _line(host, f"{MODULES}/{module}/version")
    return Driver(
        version=version or kernel_release(host),
        flavour="dkms" if version else "in-tree",
        architecture=_architecture(host),
    )


def _architecture(host: Root) -> str:
    told = _line(host, ARCHITECTURE)
    plain = told.isascii() and told.replace("_", "").isalnum()
    return told if plain else os.uname().machine


def _line(host: Root, path: str) -> str:
    try:
        text = read_text(host, path).strip()
    except OSError:
        return ""
    return text if text.isprintable() else ""
