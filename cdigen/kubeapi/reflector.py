"""``Reflector`` keeps a store of objects up to date with lists and watches.

After 410 Gone, the reflector lists the objects again. Lists are consistent reads (no resourceVersion in the
request). So an object that is not in a list does not exist. The sources are kubernetes.io, "Kubernetes API
Concepts" (chunks, bookmarks, 410 Gone), and client-go, tools/cache.
"""

from __future__ import annotations

import http.client
import json
import random
import time

from cdigen.kubeapi.calls import Call, Reply, query_path
from cdigen.kubeapi.client import ApiStatusError
from cdigen.kubeapi.lists import ListPage, PageSize
from cdigen.model.times.backoff import Backoff
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from typing import Any

    from cdigen.kubeapi.client import Client


@frozen
class ObjectStore:
    """The functions that store objects; the member ``key`` of the metadata identifies an object.

    ``put`` adds or updates an object. ``drop`` removes the object with a key. ``known`` returns the keys of
    all stored objects.
    """

    key: str
    put: Callable[[Any], object]
    drop: Callable[[str], object]
    known: Callable[[], frozenset[str]]


# The server ends a watch after this time. The server sends a bookmark each minute.
WATCH_S = 300
_IDLE_TIMEOUT_S = WATCH_S + 30.0
BACKOFF = Backoff(first_s=0.2, most_s=30.0)
# If a watch ends before this time without events, the next watch waits for the backoff.
_BRIEF_S = 1.0


class Reflector:
    """Lists and watches PATH, and updates STORE.

    A thread calls ``run``, which returns after STOP is set. ON_CHANGE is called after each list, and after
    each change of ``problem``.
    """

    def __init__(  # noqa: PLR0913 - each parameter is a setting of a reflector
        self, client: Client, path: str, store: ObjectStore, stop: threading.Event, *,
        field_selector: str = "", label_selector: str = "",
        on_change: Callable[[], object] = lambda: None, backoff: Backoff = BACKOFF,
    ) -> None:  # fmt: skip
        self.path = path
        # Whether a list was complete at least once.
        self.is_synced = False
        # The reason why the list or the watch fails now, or "".
        self.problem = ""
        # The HTTP status of the problem, or 0.
        self.status = 0
        # The monotonic time of the last event.
        self.last_event_s = time.monotonic()
        self._client, self._store, self._stop = client, store, stop
        self._selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        self._on_change, self._backoff = on_change, backoff
        self._version = ""
        self._page_size = PageSize()

    def run(self) -> None:
        """List and watch until STOP is set; after an error, try again with exponential backoff."""
        failures = 0
        while not self._stop.is_set():
            begun_s, is_brief = time.monotonic(), False
            try:
                if not self._version:
                    self._version = self._list()
                is_brief = self._watch()
            except ApiStatusError as refusal:
                # The status 410 means that the server no longer has this resourceVersion.
                self._version = ""
                self._set_problem(refusal.reply.text, refusal.reply.status)
            except (OSError, http.client.HTTPException) as error:
                self._set_problem(f"{type(error).__name__}: {error}")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                self._version = ""
                self._set_problem(f"unreadable reply: {type(error).__name__}: {error}")
            failures = 0 if time.monotonic() - begun_s > self._backoff.most_s else failures + 1
            if self.problem or is_brief:
                spread = random.uniform(0.5, 1.0)  # noqa: S311 - spreads the clients' attempts
                self._stop.wait(self._backoff.delay(failures) * spread)
            else:
                failures = 0
        self._client.close()

    def _list(self) -> str:
        """Store all objects; return the resourceVersion of the list."""
        # Objects that are stored from now on may be newer than the list, so the list does not remove them.
        known, listed = self._store.known(), set()
        next_page = ""
        while True:
            page = self._page(next_page)
            for found in page.items():
                self._store.put(found)
                listed.add(found["metadata"][self._store.key])
                del found  # frees the memory for the next object
            self._page_size.received(page)
            next_page = page.next_page
            if not next_page:
                break
        self._page_size.finished()
        for key in known - listed:
            self._store.drop(key)
        self.is_synced = True
        self._on_change()
        self.last_event_s = time.monotonic()
        return str(page.metadata.get("resourceVersion") or "")

    def _page(self, token: str) -> ListPage:
        query = {**self._selectors, "limit": str(self._page_size.limit), "continue": token}
        reply = self._client.send(Call(method="GET", path=query_path(self.path, query), is_raw=True))
        if not reply.is_done:
            self._page_size.failed()
            raise ApiStatusError(reply)
        return ListPage(reply.content)

    def _watch(self) -> bool:
        """Store each event until the server ends the watch; return whether the watch was brief and empty."""
        query = {**self._selectors, "watch": "1", "allowWatchBookmarks": "true",
                 "resourceVersion": self._version, "timeoutSeconds": str(WATCH_S)}  # fmt: skip
        if self._stop.is_set():
            return False
        begun_s, before = time.monotonic(), self._version
        lines = self._client.lines(query_path(self.path, query), _IDLE_TIMEOUT_S)
        self._set_problem("")
        for line in lines:
            if self._stop.is_set():
                return False
            event = json.loads(line)
            kind, found = event["type"], event["object"]
            if kind == "ERROR":
                raise ApiStatusError(Reply(status=int(found.get("code") or 0), body=found))
            if kind in {"ADDED", "MODIFIED"}:
                self._store.put(found)
            elif kind == "DELETED":
                self._store.drop(found["metadata"][self._store.key])
            self._version = found["metadata"]["resourceVersion"]
            self.last_event_s = time.monotonic()
            del event, found  # frees the memory for the next object
        return self._version == before and time.monotonic() < begun_s + _BRIEF_S

    def _set_problem(self, problem: str, status: int = 0) -> None:
        has_changed = (problem, status) != (self.problem, self.status)
        self.problem, self.status = problem, status
        if has_changed:
            self._on_change()
