"""Recognize GPUs of Windows that Linux in WSL2 reaches only by /dev/dxg (``windows_gpu``).

WSL2 has no driver of AMD or Intel, so the device nodes of their drivers do not exist. The folders of Windows'
driver store have the names of the drivers' INF files.
"""

from __future__ import annotations

import re

from cdigen.model.errors import HostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.context import DiscoveryContext

STORES = "/usr/lib/wsl/drivers"
_NODE = "/dev/dxg"


def windows_gpu(context: DiscoveryContext, vendor: str, inf: str, node: str) -> HostError | None:
    """Return a HostError if Windows, under which WSL2 runs, has a driver of VENDOR; otherwise None.

    INF is a regular expression for the beginning of the driver's INF file. NODE is the missing device node.
    """
    if not any(re.match(inf, name, flags=re.IGNORECASE) for name in context.driver.names(STORES)):
        return None
    return HostError(
        f"cdigen does not support GPUs of {vendor} in WSL2: {node} does not exist there, and programs use "
        f"{_NODE} with the libraries of {vendor} for WSL",
        hint="start Linux without Windows; only NVIDIA's GPUs work in WSL2, with NVIDIA's driver in Windows",
        kind="no-gpu",
    )
