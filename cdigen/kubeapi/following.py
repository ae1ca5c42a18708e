"""Keep a list of objects up to date: ``Following`` lists, watches from there, and lists again when it must.

What it lists is consistent (no resourceVersion in the request): an object that it does not have is gone.
Sources: kubernetes.io, "Kubernetes API Concepts": chunks, bookmarks, 410 Gone.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from urllib.parse import quote, urlencode

from cdigen.kubeapi.calls import Call, Reply
from cdigen.kubeapi.client import Refusal
from cdigen.kubeapi.lists import ListPage, PageSize

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from cdigen.kubeapi.client import Client

    # What identifies an object.
    Kept = dict[str, str]

    class Sink(Protocol):
        """Who is told."""

        def put(self, found: object) -> None:
            """Take an object as it is now."""

        def drop(self, found: object) -> None:
            """Take it that an object is gone; FOUND is its last state."""

        def begin(self) -> None:
            """Take it that a list is asked for: what is heard of by other ways from now on may be newer."""

        def keep(self, found: Iterable[Kept]) -> None:
            """Take it that all objects that were known at ``begin`` but those FOUND are gone."""


# The server ends a watch then; it sends a bookmark each minute.
WATCH_S = 300
_SILENT_S = WATCH_S + 30.0
_FIRST_S, _LONGEST_S = 0.2, 30.0
# A watch that ends sooner with nothing is no watch, and is not asked for again and again without a pause.
_BRIEF_S = 1.0


class Following:
    """Follows PATH and tells SINK; ``run`` is a thread's work until STOP is set.

    SELECTOR and LABELS narrow the list: a fieldSelector and a labelSelector.
    """

    def __init__(  # noqa: PLR0913 - each is what one Following differs in
        self, client: Client, path: str, sink: Sink, stop: threading.Event, *,
        selector: str = "", labels: str = "",
        changed: Callable[[], object] = lambda: None, first_s: float = _FIRST_S,
    ) -> None:  # fmt: skip
        self.path = path
        # Whether the list was whole once; why nothing is heard now, ""; and the time of the last word.
        self.is_synced = False
        self.problem = ""
        self.status = 0
        self.heard_s = time.monotonic()
        self._client, self._sink, self._stop = client, sink, stop
        chosen = {"fieldSelector": selector, "labelSelector": labels}
        self._chosen = {key: value for key, value in chosen.items() if value}
        self._changed, self._first_s = changed, first_s
        self._version = ""
        self._page_size = PageSize()

    def run(self) -> None:
        """List and watch until told to stop; what fails is tried again, later each time."""
        wait_s = self._first_s
        while not self._stop.is_set():
            begun_s, is_brief = time.monotonic(), False
            try:
                if not self._version:
                    self._version = self._list()
                is_brief = self._watch()
            except Refusal as refusal:
                # 410: what we have seen last is forgotten there.
                self._version = ""
                self._say(refusal.reply.text, refusal.reply.status)
            except (OSError, http.client.HTTPException) as error:
                self._say(f"{type(error).__name__}: {error}")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                self._version = ""
                self._say(f"what it says cannot be read: {type(error).__name__}: {error}")
            wait_s = self._first_s if time.monotonic() - begun_s > _LONGEST_S else min(2 * wait_s, _LONGEST_S)
            if self.problem or is_brief:
                self._stop.wait(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - not all clients at once
            else:
                wait_s = self._first_s
        self._client.close()

    def _list(self) -> str:
        """Tell of all objects; returns the version of the list."""
        known: list[Kept] = []
        more = ""
        self._sink.begin()
        while True:
            page = self._page(more)
            for found in page.items():
                self._sink.put(found)
                metadata = found["metadata"]
                known.append({"name": metadata["name"], "uid": metadata["uid"]})
                del found, metadata  # before the next one is parsed
            self._page_size.received(page)
            more = page.next_page
            if not more:
                break
        self._page_size.finished()
        self._sink.keep(known)
        self.is_synced = True
        self._changed()
        self.heard_s = time.monotonic()
        return str(page.metadata.get("resourceVersion") or "")

    def _page(self, more: str) -> ListPage:
        query = {**self._chosen, "limit": str(self._page_size.limit), **({"continue": more} if more else {})}
        reply = self._client.send(Call(method="GET", path=self._with(query), is_raw=True))
        if not reply.is_done:
            self._page_size.failed()
            raise Refusal(reply)
        return ListPage(reply.content)

    def _watch(self) -> bool:
        """Tell of each event until the server ends the watch; returns whether it did so at once."""
        query = {**self._chosen, "watch": "1", "allowWatchBookmarks": "true",
                 "resourceVersion": self._version, "timeoutSeconds": str(WATCH_S)}  # fmt: skip
        if self._stop.is_set():
            return False
        begun_s, before = time.monotonic(), self._version
        lines = self._client.lines(self._with(query), _SILENT_S)
        self._say("")
        for line in lines:
            if self._stop.is_set():
                return False
            event = json.loads(line)
            kind, found = event["type"], event["object"]
            if kind == "ERROR":
                raise Refusal(Reply(status=int(found.get("code") or 0), body=found))
            if kind in {"ADDED", "MODIFIED"}:
                self._sink.put(found)
            elif kind == "DELETED":
                self._sink.drop(found)
            self._version = found["metadata"]["resourceVersion"]
            self.heard_s = time.monotonic()
            del event, found  # before the next one is parsed
        return self._version == before and time.monotonic() < begun_s + _BRIEF_S

    def _say(self, problem: str, status: int = 0) -> None:
        has_changed = (problem, status) != (self.problem, self.status)
        self.problem, self.status = problem, status
        if has_changed:
            self._changed()

    def _with(self, query: dict[str, str]) -> str:
        return f"{self.path}?{urlencode(query, quote_via=quote)}"
