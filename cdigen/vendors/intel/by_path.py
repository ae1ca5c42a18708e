"""udev's names of DRM nodes by the place of their device: /dev/dri/by-path/pci-0000:03:00.0-render.

Intel's software finds GPUs by them: oneCCL opens what is in /dev/dri/by-path and gives up without the
folder (src/common/global/ze/ze_fd_manager.cpp, oneCCL issue 121), and the compute runtime looks there
before it tries /dev/dri/renderD128 and on (shared/source/os_interface/linux/drm_neo.cpp,
Drm::discoverDevices). In a container they are nodes of their own, made from the real ones: CDI refuses a
link as the source of a node. Only names that the host has are given, because a runtime without root binds
what lies at the same path on the host.
"""

from __future__ import annotations

import re

from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode

FOLDER = "/dev/dri/by-path"
# As udev's 60-drm.rules writes them.
_NAME = re.compile(r"(?:pci|platform)-[0-9A-Za-z:._-]{1,80}-(card|render)")


def read_names(dev: Root) -> dict[str, tuple[str, ...]]:
    """Return the paths in /dev/dri/by-path by the node to which each leads, as the host names it."""
    names: dict[str, tuple[str, ...]] = {}
    for name in dev.names(FOLDER):
        if _NAME.fullmatch(name) is None:
            continue
        path = f"{FOLDER}/{name}"
        try:
            real = dev.host_path(dev.resolve(path))
        except OSError:
            # The link of a node that is gone; udev removes it in a moment.
            continue
        names[real] = (*names.get(real, ()), path)
    return names


def with_names(node: HostNode, names: dict[str, tuple[str, ...]]) -> tuple[HostNode, ...]:
    """Return NODE, and once more for each of its NAMES that says what it is: a card, or a render node."""
    fitting = (path for path in names.get(node.host_path, ()) if path.endswith(f"-{node.role}"))
    return (node, *(replace(node, path=path) for path in fitting))
