"""``Listing``: a resource as the kubelet gets it; ``ResourceStatus``: how it is. Both threads have them."""

from __future__ import annotations

from cdigen.kubelet.wire.messages import write_devices
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.kubelet.registration import State
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.wire.server import Answers


@frozen
class Listing:
    """The resource named ``resource``: its list as the kubelet gets it, the ids of those that are healthy.

    ``answers`` decides what containers get.
    """

    resource: str
    devices: bytes
    count: int
    healthy: frozenset[str]
    answers: Answers


@frozen
class ResourceStatus:
    """How a resource is: ``state`` and ``reason`` are those of its ``Registration``, ``since_s`` a Unix time.

    ``registrations`` counts those that were proved; ``is_confirmed``: the kubelet has shown our devices.
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


def listing_of(resource: Resource, answers: Answers) -> Listing:
    """Return RESOURCE as it is served. MessageError: the kubelet would not take its list."""
    return Listing(
        resource=resource.name,
        devices=write_devices(resource.units),
        count=len(resource.units),
        healthy=frozenset(unit.id for unit in resource.units if unit.health != "unhealthy"),
        answers=answers,
    )
