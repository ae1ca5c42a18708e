"""Binds of an extender, request by request: `Bind`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdigen.extender.binding import Terms, Wanted, bind
from cdigen.extender.sinks import Sink

if TYPE_CHECKING:
    from cdigen.extender.index import Index
    from cdigen.kubeapi.calls import Call, Reply


def wanted(name: str, node: str = "node1", uid: str = "") -> Wanted:
    """Return the request of a scheduler to bind the pod NAME to NODE."""
    return Wanted(namespace="default", name=name, uid=uid or f"uid-{name}", node=node)


def pod_sink(index: Index) -> Sink:
    """Return the end of a list of pods that INDEX follows."""
    return Sink(
        lambda what, found: what(found), put=index.put_pod, drop=index.drop_pod, known=index.pods, key="uid"
    )


class Bind:
    """A bind under way: its steps, and the request that it waits for."""

    def __init__(self, index: Index, wanted: Wanted, token: str) -> None:
        self.steps = bind(wanted, index, Terms(namespace="kube-system", token=token, now_ns=7))
        self.call: Call | None = next(self.steps)
        self.answer: str | None = None

    def go_on(self, reply: Reply) -> None:
        """Go on with REPLY to the request."""
        try:
            self.call = self.steps.send(reply)
        except StopIteration as end:
            self.call, self.answer = None, str(end.value)
