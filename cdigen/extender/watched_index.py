"""``WatchedIndex``: the index and its lock, with a reflector for each list of the API server.

Each list has a thread. All threads share the index. A thread holds the lock of the index for milliseconds,
and never during a request to the API server.
"""

from __future__ import annotations

import threading
import time
from functools import partial

from cdigen.extender.index import Index
from cdigen.extender.status import ListState
from cdigen.gpushare.names import UNHEALTHY_NAMESPACE
from cdigen.gpushare.pods import NOT_ENDED
from cdigen.kubeapi.calls import configmap_path, object_name
from cdigen.kubeapi.reflector import ObjectStore, Reflector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cdigen.gpushare.names import Resources
    from cdigen.kubeapi.client import Client

# The selector of ConfigMaps that are not ledgers. Each bind changes a ledger. If ledgers are in kube-system,
# the watch would otherwise receive these changes.
NO_LEDGERS = "app.kubernetes.io/managed-by!=cdigen"
FORBIDDEN = 403
_MAX_NAME = 253
_MAX_UNREADABLE = 100


class WatchedIndex:
    """The index of RESOURCES, which ``start`` keeps up to date through CLIENT.

    A thread that uses ``index`` holds ``lock``. ON_CHANGE is called after each list, and after each change of
    a problem. LOG is called with the name of an object that cannot be read, and the reason.
    """

    def __init__(
        self,
        client: Client,
        resources: Resources,
        *,
        on_change: Callable[[], object],
        log: Callable[[str, str], object],
    ) -> None:
        self.index = Index(resources)
        self.lock = threading.Lock()
        self._log = log
        self._unreadable: set[str] = set()
        self.stopping = threading.Event()
        index = self.index
        pods = self._store("uid", index.put_pod, index.drop_pod, index.pods)
        nodes = self._store("name", index.put_node, index.drop_node, index.nodes)
        unhealthy = self._store("name", index.put_unhealthy, index.drop_unhealthy, index.unhealthy_lists)
        configmaps = configmap_path(UNHEALTHY_NAMESPACE)
        watch = partial(Reflector, client, stop=self.stopping, on_change=on_change)
        self._reflectors = {
            # With this selector, the API server sends DELETED when a pod ends.
            "pods": watch("/api/v1/pods", pods, field_selector=NOT_ENDED),
            "nodes": watch("/api/v1/nodes", nodes),
            "unhealthy": watch(configmaps, unhealthy, label_selector=NO_LEDGERS),
        }
        self._threads = [
            threading.Thread(target=each.run, name=name, daemon=True)
            for name, each in self._reflectors.items()
        ]

    def start(self) -> None:
        """Start the threads, which end after ``stopping`` is set."""
        for each in self._threads:
            each.start()

    def not_ready(self) -> str:
        """Return the reason why a list is missing, or ""."""
        problems = [
            f"{name}: {each.problem or 'not listed yet'}"
            for name, each in self._reflectors.items()
            if not (each.is_synced or _is_optional(name, each))
        ]
        return f"the extender is not ready ({'; '.join(problems)})" if problems else ""

    def ended_thread(self) -> str:
        """Return a message about a thread that has ended, or ""."""
        ended = [each.name for each in self._threads if not each.is_alive()]
        return f"the thread that watches {ended[0]} has ended" if ended else ""

    def lists(self) -> tuple[ListState, ...]:
        """Return the state of each list."""
        offset_s = time.time() - time.monotonic()
        return tuple(
            ListState(name=name, problem=each.problem, last_event_s=offset_s + each.last_event_s)
            for name, each in self._reflectors.items()
        )

    def _store(self, key: str, put: Any, drop: Any, known: Callable[[], frozenset[str]]) -> ObjectStore:
        """Return a store whose functions call functions of the index while the lock is held."""

        def locked_known() -> frozenset[str]:
            with self.lock:
                return known()

        return ObjectStore(
            key=key, put=partial(self._update, put), drop=partial(self._update, drop), known=locked_known
        )

    def _update(self, update: Callable[[Any], object], found: Any) -> None:
        """Call UPDATE, a function of the index, with FOUND; ignore and log an object that cannot be read."""
        try:
            with self.lock:
                update(found)
        except (ValueError, KeyError, TypeError) as error:
            name = object_name(found)[:_MAX_NAME] or "an object"
            if name not in self._unreadable and len(self._unreadable) < _MAX_UNREADABLE:
                self._unreadable.add(name)
                self._log(name, str(error))


def _is_optional(name: str, reflector: Reflector) -> bool:
    """Return whether the list NAME of REFLECTOR may be missing.

    Only the list of ConfigMaps may be missing, if the account has no permission to list ConfigMaps.
    """
    return name == "unhealthy" and reflector.status == FORBIDDEN
