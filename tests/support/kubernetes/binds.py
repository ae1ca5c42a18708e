"""Binds of an extender that a test runs request by request: `Bind`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdigen.extender.binding import BindConfig, BindRequest, bind
from cdigen.extender.stores import IndexStore

if TYPE_CHECKING:
    from cdigen.extender.index import Index
    from cdigen.kubeapi.calls import Call, Reply


def bind_request(name: str, node: str = "node1", uid: str = "") -> BindRequest:
    """Return the request of a scheduler to bind the pod NAME to NODE."""
    return BindRequest(namespace="default", name=name, uid=uid or f"uid-{name}", node=node)


def pod_store(index: Index) -> IndexStore:
    """Return a store for a list of pods; the store updates INDEX."""
    return IndexStore(
        lambda update, found: update(found),
        put=index.put_pod,
        drop=index.drop_pod,
        known=index.pods,
        key="uid",
    )


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
