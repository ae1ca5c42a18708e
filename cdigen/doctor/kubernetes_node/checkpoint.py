"""Parse the kubelet's own record of devices, kubelet_internal_checkpoint.

Source: kubernetes pkg/kubelet/cm/devicemanager/checkpoint. The kubelet owns the file and its format. The
parser omits parts with an unexpected format. Checks report the content as the kubelet's record,
never as a fact.
"""

from __future__ import annotations

import json

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "kubelet_internal_checkpoint"
# 5,000 replicas of a resource take 300 kB. Each container with devices takes up to 4 kB.
MAX_SIZE = 8 << 20
_MAX_ENTRIES = 20_000
_MAX_TEXT = 512


@frozen
class AllocatedContainer:
    """The devices of a container in the kubelet's record."""

    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]


@frozen
class Checkpoint:
    """The record: the registered resources, and the devices of containers.

    ``problem`` is the reason why the record cannot be used, or empty. ``is_closed`` is true if the user may
    not read the record.
    """

    registered: tuple[str, ...] = ()
    held: tuple[AllocatedContainer, ...] = ()
    problem: str = ""
    is_closed: bool = False


def parse(content: bytes) -> Checkpoint:
    """Return the record in CONTENT; only ``problem`` is set if CONTENT is not a record."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return Checkpoint(problem="it is not JSON")
    data = found.get("Data") if isinstance(found, dict) else None
    if not isinstance(data, dict):
        return Checkpoint(problem="it has no member 'Data'")
    listed, rows = data.get("RegisteredDevices"), data.get("PodDeviceEntries")
    entries = list(listed.items())[:_MAX_ENTRIES] if isinstance(listed, dict) else []
    # Go writes null for a resource without devices.
    registered = (name for name, ids in entries if _is_text(name) and (ids is None or _are_texts(ids)))
    held = map(_held, rows[:_MAX_ENTRIES] if isinstance(rows, list) else ())
    return Checkpoint(registered=tuple(sorted(registered)), held=tuple(filter(None, held)))


def _held(row: object) -> AllocatedContainer | None:
    if not isinstance(row, dict):
        return None
    names = [row.get(key) for key in ("PodUID", "ContainerName", "ResourceName")]
    ids = list(_ids(row.get("DeviceIDs")))
    if not _are_texts(ids) or not _are_texts(names):
        return None
    pod, container, resource = map(str, names)
    return AllocatedContainer(pod=pod, container=container, resource=resource, ids=tuple(map(str, ids)))


def _ids(value: object) -> Iterator[object]:
    """Yield the device IDs in VALUE; since Kubernetes 1.20, VALUE has a separate list for each NUMA node."""
    if isinstance(value, dict):
        for listed in value.values():
            yield from listed if isinstance(listed, list) else (listed,)
    elif isinstance(value, list):
        yield from value
    elif value is not None:
        yield value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_TEXT
