"""The list of a resource for the kubelet (``Listing``), and the status of a resource (``ResourceStatus``)."""

from __future__ import annotations

from cdigen.kubelet.wire.messages import write_devices
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.kubelet.registration import State
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.wire.server import Allocator


@frozen
class Listing:
    """The list of devices that the kubelet receives for ``resource``.

    ``devices`` is the encoded list, with ``count`` devices. ``healthy`` are the ids of the healthy devices.
    ``allocator`` answers the kubelet's requests.
    """

    resource: str
    devices: bytes
    count: int
    healthy: frozenset[str]
    allocator: Allocator


@frozen
class ResourceStatus:
    """The status of a resource.

    ``state`` and ``reason`` are from the ``Registration``. ``since_s`` is the Unix time of the last change of
    the state. ``registrations`` is the number of times that the resource became registered. If
    ``is_confirmed`` is set, the kubelet has shown the devices in its list of allocatable resources.
    """

    resource: str
    state: State
    reason: str
    since_s: float
    socket: str
    count: int
    healthy: int
    registrations: int
    is_confirmed: bool


def listing_of(resource: Resource, allocator: Allocator) -> Listing:
    """Return the listing of RESOURCE, or raise MessageError if the kubelet would reject the list."""
    return Listing(
        resource=resource.name,
        devices=write_devices(resource.units),
        count=len(resource.units),
        healthy=frozenset(unit.id for unit in resource.units if unit.health != "unhealthy"),
        allocator=allocator,
    )
