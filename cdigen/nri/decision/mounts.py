"""What a container requests by mounts of /dev/null, the other way to list devices: ``by_mounts``. Pure.

NVIDIA's device plugin makes such mounts (strategy volume-mounts), where the environment, which any image may
set, is not to be trusted: a mount of the host's /dev/null at ``ROOT``/ID asks for the GPU ID, at
``ROOT``/cdi/VENDOR/CLASS/NAME for a device of CDI, at ``ROOT``/imex/N for a channel. They stay in the
container, as with NVIDIA's runtime.

Semantics: nvidia-container-toolkit 1.20, internal/config/image/cuda_image.go (requestsFromMounts,
visibleDevicesFromMounts, imexChannelsFromMounts). It also takes a folder beside ``ROOT`` whose name begins
as that one's, passes over a name of CDI that is none, and splits at commas; here the first is nothing, and
the others are refused as names that nothing has.
"""

from __future__ import annotations

import posixpath

from cdigen.nri.decision.environment import IMEX_KIND
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.nri.decision.request import DeviceRequest, bounded, is_qualified, qualified_request
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.nri.pods import ContainerMount

ROOT = "/var/run/nvidia-container-devices"
ORIGIN = f"mount in {ROOT}"
_SOURCE = "/dev/null"
# What every spelling of a path below ROOT has.
_FOLDER = "nvidia-container-devices"
# Linux's PATH_MAX: what is longer is mounted nowhere.
_MAX_PATH = 4096
_CDI, _IMEX = "cdi/", "imex/"
_ALONE = frozenset(("all", "none"))


@frozen
class DeviceLists:
    """The ``gpus`` that mounts ask for, with other devices of CDI, and the ``channels`` of IMEX."""

    gpus: tuple[DeviceRequest, ...] = ()
    channels: tuple[DeviceRequest, ...] = ()


NO_LISTS = DeviceLists()


def lists_devices(mounts: Iterable[ContainerMount]) -> bool:
    """Return whether any of MOUNTS asks for a device."""
    return any(_names(mounts))


def by_mounts(mounts: Iterable[ContainerMount]) -> DeviceLists:
    """Return what MOUNTS ask for, without repetitions; raises Refusal."""
    names = tuple(_names(mounts))
    if not names:
        return NO_LISTS
    channels = [name[len(_IMEX) :] for name in names if name.startswith(_IMEX)]
    return DeviceLists(
        gpus=bounded(_device(name) for name in names if not name.startswith(_IMEX)),
        channels=bounded(DeviceRequest(token=name, kind=IMEX_KIND, origin=ORIGIN) for name in channels),
    )


def _names(mounts: Iterable[ContainerMount]) -> Iterator[str]:
    """Yield what stands after ROOT in the destinations that ask."""
    for mount in mounts:
        # Every container has mounts, and next to none has these.
        if _FOLDER not in mount.destination or len(mount.destination) > _MAX_PATH:
            continue
        path = _cleaned(mount.destination)
        if path.startswith(f"{ROOT}/") and _cleaned(mount.source[:_MAX_PATH]) == _SOURCE:
            yield path[len(ROOT) + 1 :]


def _cleaned(path: str) -> str:
    """Return PATH as Go's filepath.Clean does: of two slashes in front, which POSIX keeps, one is left."""
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
        wanted = f"{ROOT}/{_CDI}VENDOR/CLASS/NAME"
        raise Refusal("malformed", f"the {ORIGIN} holds {quote(name)}, which is not of the form {wanted}")
    return qualified_request(full, ORIGIN)
