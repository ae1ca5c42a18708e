"""Binds of an extender that a test runs request by request: `Bind`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdigen.extender.binding import BindConfig, BindRequest, bind
from cdigen.kubeapi.reflector import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.extender.index import Index
    from cdigen.kubeapi.calls import Call, Reply


def bind_request(name: str, node: str = "node1", uid: str = "") -> BindRequest:
    """Return the request of a scheduler to bind the pod NAME to NODE."""
    return BindRequest(namespace="default", name=name, uid=uid or f"uid-{name}", node=node)


def pod_store(index: Index) -> ObjectStore:
    """Return a store for a list of pods; the store updates INDEX."""
    return ObjectStore(key="uid", put=index.put_pod, drop=index.drop_pod, known=index.pods)


def end_list(store: ObjectStore, known: frozenset[str], listed: Iterable[Any] = ()) -> None:
    """Remove the pods that were KNOWN when a list began, and whose metadata are not in LISTED."""
    for uid in known.difference(metadata["uid"] for metadata in listed):
        store.drop(uid)


class Bind:
    """A bind in progress: its steps, and the request whose reply it waits for."""

    def __init__(self, index: Index, request: BindRequest, token: str) -> None:
        self.steps = bind(request, index, BindConfig(namespace="kube-system", token=token, now_ns=7))
        self.call: Call | None = next(self.steps)
        self.answer: str | None = None

    def go_on(self, reply: Reply) -> None:
        """Continue with REPLY to the request."""
        try:
            self.call = self.steps.send(reply)
        except StopIteration as end:
            self.call, self.answer = None, str(end.value)
