"""What each list of the API server changes in the index: ``Sink``, told by ``kubeapi.following``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    # Calls a function of the index with an argument, under the lock.
    Change = Callable[[Callable[[Any], object], Any], object]


class Sink:
    """Hands objects of one kind to PUT and DROP of the index; KNOWN has those that it has, by KEY."""

    def __init__(
        self,
        change: Change,
        *,
        put: Callable[[object], object],
        drop: Callable[[str], object],
        known: Callable[[], frozenset[str]],
        key: str,
    ) -> None:
        self._change = change
        self._put, self._drop, self._known = put, drop, known
        self._key = key
        self._before: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Take it that a list begins: what a bind learns from now on may be newer than what is in it."""
        self._change(self._note_known, None)

    def put(self, found: object) -> None:
        """Take an object as it is now."""
        self._change(self._put, found)

    def drop(self, found: Any) -> None:
        """Take it that the object FOUND is gone."""
        self._change(self._drop, found["metadata"][self._key])

    def keep(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Take it that what was known when the list began is gone, but those FOUND."""
        for gone in self._before - {metadata[self._key] for metadata in found}:
            self._change(self._drop, gone)

    def _note_known(self, _: object) -> None:
        self._before = self._known()
