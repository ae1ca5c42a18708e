"""The list of a resource for the kubelet (``Listing``), and the status of a resource (``ResourceStatus``).

``Listings`` has the lists of all resources.
"""

from __future__ import annotations

from cdigen.kubelet.wire.messages import write_devices
from cdigen.service.descriptors import MessageError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.kubelet.registration.state_machine import State
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.wire.server import Allocator
    from cdigen.service.process.buffered_log import Logger


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


class Listings:
    """The present lists, as ``current`` by resource; ``problems`` has the reason why a list is invalid."""

    def __init__(self, logger: Logger) -> None:
        self.current: dict[str, Listing] = {}
        self.problems: dict[str, str] = {}
        self._log = logger

    def update(self, found: Iterable[tuple[Resource, Allocator]]) -> tuple[Listing, ...]:
        """Return the lists of the resources FOUND. An invalid list is logged, and the former list stays."""
        before, problems_before = self.current, self.problems
        self.current, self.problems = {}, {}
        for resource, allocator in found:
            name = resource.name
            try:
                self.current[name] = listing_of(resource, allocator)
            except MessageError as error:
                self.problems[name] = str(error)
                if str(error) != problems_before.get(name):
                    self._log.error("resource", resource=name, message=str(error))
                if name in before:
                    self.current[name] = before[name]
        return tuple(self.current.values())
