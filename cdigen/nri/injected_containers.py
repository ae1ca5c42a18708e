"""``InjectedContainers``: the existing containers into which the plugin has injected devices."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.nri.pods import ContainerName

# MAX_CONTAINERS is larger than the number of containers with devices on a node. MAX_DEVICES is the maximum
# number of device names that are stored for a container.
MAX_CONTAINERS = 512
MAX_DEVICES = 64
# The number of characters that are read from an annotation. 64 device names with UUIDs have fewer characters.
_MAX_MARKER = 1 << 12


def devices_in_marker(marker: str) -> tuple[str, ...]:
    """Return the first MAX_DEVICES devices in MARKER, the value of the annotation cdigen.dev/injected."""
    return tuple(marker[:_MAX_MARKER].split(",", MAX_DEVICES)[:MAX_DEVICES])


@frozen
class InjectedContainer:
    """A container and the fully qualified CDI names of its injected ``devices``.

    ``id`` is the runtime's id of the container. ``at_s`` is the time of the injection (time.time), or None if
    the time is unknown.
    """

    id: str
    name: ContainerName
    devices: tuple[str, ...]
    at_s: float | None = None


class InjectedContainers:
    """The containers with injected devices, oldest first.

    If there are more than MAX_CONTAINERS, the oldest containers are dropped. The link's thread adds and
    removes containers. The main thread adds existing containers and reads the list. Each step is one
    operation on a dictionary, so no lock is necessary.
    """

    def __init__(self) -> None:
        self._containers: dict[str, InjectedContainer] = {}

    def add(self, container: InjectedContainer) -> None:
        """Add CONTAINER just after the injection of its devices."""
        self._containers[container.id] = container
        self._limit()

    def add_existing(self, containers: Iterable[InjectedContainer]) -> None:
        """Add the CONTAINERS that are not in the list; they were created before the registration."""
        for container in containers:
            self._containers.setdefault(container.id, container)
        self._limit()

    def remove(self, container: str) -> bool:
        """Remove the container with the id CONTAINER; return whether it was in the list."""
        return self._containers.pop(container, None) is not None

    def clear(self) -> None:
        """Remove all containers; the main thread then adds the containers that the runtime reports."""
        self._containers.clear()

    def containers(self) -> tuple[InjectedContainer, ...]:
        """Return all containers in the list."""
        return tuple(self._containers.values())

    def _limit(self) -> None:
        while len(self._containers) > MAX_CONTAINERS:
            self._containers.pop(next(iter(self._containers)), None)
