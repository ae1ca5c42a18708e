"""Which containers have which devices from the plugin: ``Book``, until the runtime removes them."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.nri.pods import ContainerName

# More containers than a node has with devices; each has so many names of devices at most.
MAX_HELD = 512
MAX_DEVICES = 64
# Characters of a mark: 64 names of UUIDs and more.
_MAX_MARK = 1 << 12


def marked(mark: str) -> tuple[str, ...]:
    """Return the devices that a container's MARK names, cut."""
    return tuple(mark[:_MAX_MARK].split(",", MAX_DEVICES)[:MAX_DEVICES])


@frozen
class Held:
    """A container with ``devices`` (CDI names), by the runtime's ``id``; ``at_s``: since when, if known."""

    id: str
    name: ContainerName
    devices: tuple[str, ...]
    at_s: float | None = None


class Book:
    """The containers that have devices, oldest first; beyond MAX_HELD the oldest go.

    The link's thread notes and forgets them, the main thread adds those that were there before and reads.
    Each of their steps is one of a dictionary, so that no lock is needed.
    """

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def note(self, held: Held) -> None:
        """Note HELD, which was given its devices just now."""
        self._held[held.id] = held
        self._limit()

    def add(self, those: Iterable[Held]) -> None:
        """Note THOSE that were there before, unless they are known."""
        for held in those:
            self._held.setdefault(held.id, held)
        self._limit()

    def forget(self, container: str) -> bool:
        """Forget the CONTAINER of this id; returns whether it was known."""
        return self._held.pop(container, None) is not None

    def clear(self) -> None:
        """Forget all: the runtime tells anew which there are."""
        self._held.clear()

    def held(self) -> tuple[Held, ...]:
        """Return those that are known now."""
        return tuple(self._held.values())

    def _limit(self) -> None:
        while len(self._held) > MAX_HELD:
            self._held.pop(next(iter(self._held)), None)
