"""List the folders in which the kernel looks for firmware, and the files there."""

from __future__ import annotations

from cdigen.host.procfs import kernel_release, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

# The kernel's own search path, after that of its parameter (Documentation/driver-api/firmware/
# fw_search_path.rst).
_FOLDERS = (
    "/lib/firmware/updates/{release}",
    "/lib/firmware/updates",
    "/lib/firmware/{release}",
    "/lib/firmware",
)
_PARAMETER = "/sys/module/firmware_class/parameters/path"


def search_path(host: Root) -> tuple[str, ...]:
    """Return the folders in which the kernel of HOST looks for firmware, the first one first."""
    release = kernel_release(host)
    try:
        given = read_text(host, _PARAMETER).strip()
    except OSError:
        given = ""
    folders = (folder.format(release=release) for folder in _FOLDERS)
    return (*((given,) if given.startswith("/") and "\0" not in given else ()), *folders)


def names(host: Root, folder: str) -> tuple[str, ...]:
    """Return the names of the firmware files in FOLDER (``amdgpu``) of all that the kernel searches."""
    return tuple(name for place in search_path(host) for name in host.names(f"{place}/{folder}"))
