"""The stores of the reflectors (``kubeapi.reflector``): an ``IndexStore`` updates the index from one list."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    # Calls a function of the index with an argument, while the lock is held.
    Update = Callable[[Callable[[Any], object], Any], object]


class IndexStore:
    """Passes the objects of one list to the functions PUT and DROP of the index.

    KEY is the member of the metadata that identifies an object. KNOWN returns this member of each object in
    the index.
    """

    def __init__(
        self,
        update: Update,
        *,
        put: Callable[[object], object],
        drop: Callable[[str], object],
        known: Callable[[], frozenset[str]],
        key: str,
    ) -> None:
        self._update = update
        self._put, self._drop, self._known = put, drop, known
        self._key = key
        self._before: frozenset[str] = frozenset()

    def begin_list(self) -> None:
        """Record the objects in the index, because a bind may add objects before ``end_list``."""
        self._update(self._remember_known, None)

    def put(self, found: object) -> None:
        """Store an object in its present state."""
        self._update(self._put, found)

    def delete(self, found: Any) -> None:
        """Delete the object FOUND."""
        self._update(self._drop, found["metadata"][self._key])

    def end_list(self, listed: Iterable[Mapping[str, Any]]) -> None:
        """Delete the objects that were in the index at ``begin_list`` but are not in LISTED."""
        for deleted in self._before - {metadata[self._key] for metadata in listed}:
            self._update(self._drop, deleted)

    def _remember_known(self, _: object) -> None:
        self._before = self._known()
