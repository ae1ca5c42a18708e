"""``by_mounts``: pure functions that read device requests from mounts of /dev/null in a container.

NVIDIA's device plugin adds such mounts (strategy volume-mounts) in clusters that do not permit requests by
variables, because every image can set variables. The mounted file is the host's /dev/null. A mount at
``ROOT``/ID requests the GPU ID. A mount at ``ROOT``/cdi/VENDOR/CLASS/NAME requests a CDI device. A mount at
``ROOT``/imex/N requests an IMEX channel. The mounts stay in the container, as in NVIDIA's runtime.

The mounts have the same meaning as in nvidia-container-toolkit 1.20, internal/config/image/cuda_image.go
(requestsFromMounts, visibleDevicesFromMounts, imexChannelsFromMounts), with three exceptions. The toolkit
accepts sibling folders of ``ROOT`` whose name starts with the name of ``ROOT``. cdigen ignores such folders.
The toolkit ignores invalid CDI names. cdigen refuses the container. The toolkit splits a name at commas.
cdigen refuses the container, because no device has such a name.
"""

from __future__ import annotations

import posixpath

from cdigen.nri.decision.request.device_request import (
    DeviceRequest,
    deduplicated,
    is_qualified,
    qualified_request,
)
from cdigen.nri.decision.request.environment import IMEX_KIND
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.nri.pods import ContainerMount

ROOT = "/var/run/nvidia-container-devices"
ORIGIN = f"mount in {ROOT}"
_SOURCE = "/dev/null"
# Each spelling of a path below ROOT contains this text.
_FOLDER = "nvidia-container-devices"
# PATH_MAX of Linux. The path of a mount cannot be longer.
_MAX_PATH = 4096
_CDI, _IMEX = "cdi/", "imex/"
_ALONE = frozenset(("all", "none"))


@frozen
class DeviceLists:
    """The requests in the mounts of a container.

    ``gpus`` are the requests for GPUs and other CDI devices. ``channels`` are the requests for IMEX channels.
    """

    gpus: tuple[DeviceRequest, ...] = ()
    channels: tuple[DeviceRequest, ...] = ()


NO_LISTS = DeviceLists()


def lists_devices(mounts: Iterable[ContainerMount]) -> bool:
    """Return whether at least one of MOUNTS requests a device."""
    return any(_names(mounts))


def by_mounts(mounts: Iterable[ContainerMount]) -> DeviceLists:
    """Return the requests in MOUNTS, without repetitions; raise InjectionRefusal for an invalid name."""
    names = tuple(_names(mounts))
    if not names:
        return NO_LISTS
    channels = [name[len(_IMEX) :] for name in names if name.startswith(_IMEX)]
    return DeviceLists(
        gpus=deduplicated(_device(name) for name in names if not name.startswith(_IMEX)),
        channels=deduplicated(DeviceRequest(token=name, kind=IMEX_KIND, origin=ORIGIN) for name in channels),
    )


def _names(mounts: Iterable[ContainerMount]) -> Iterator[str]:
    """Yield the path of each mount that requests a device, relative to ROOT."""
    for mount in mounts:
        # This check is fast. Every container has mounts, but few containers have mounts below ROOT.
        if _FOLDER not in mount.destination or len(mount.destination) > _MAX_PATH:
            continue
        path = _cleaned(mount.destination)
        if path.startswith(f"{ROOT}/") and _cleaned(mount.source[:_MAX_PATH]) == _SOURCE:
            yield path[len(ROOT) + 1 :]


def _cleaned(path: str) -> str:
    """Return PATH in the form of Go's filepath.Clean.

    Two leading slashes become one slash. Python's normpath keeps two leading slashes, as POSIX permits.
    """
    clean = posixpath.normpath(path)
    return clean[1:] if clean.startswith("//") else clean


def _device(name: str) -> DeviceRequest:
    if not name.startswith(_CDI):
        word = name.lower()
        return DeviceRequest(token=word if word in _ALONE else name, kind="", origin=ORIGIN)
    rest = name[len(_CDI) :]
    vendor, _, more = rest.partition("/")
    device_class, _, device = more.partition("/")
    full = rest if is_qualified(rest) else f"{vendor}/{device_class}={device}"
    if not is_qualified(full):
        form = f"{ROOT}/{_CDI}VENDOR/CLASS/NAME"
        raise InjectionRefusal(
            "malformed", f"the {ORIGIN} contains {quote(name)}, which is not of the form {form}"
        )
    return qualified_request(full, ORIGIN)
