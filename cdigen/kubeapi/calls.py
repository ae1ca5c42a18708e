"""Requests to the API server (``Call``) and replies (``Reply``) as values, and the paths of objects.

``drive`` runs a generator of requests.
"""

from __future__ import annotations

from contextlib import closing
from urllib.parse import quote, urlencode

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Generator, Mapping
    from typing import TypeVar

    T = TypeVar("T")

JSON = "application/json"
MERGE = "application/merge-patch+json"
# The form of a list that has only metadata. A server without this form returns whole objects.
METADATA = f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,{JSON}"
# The status if there is no reply. The server may have processed the request, or may process it later.
UNKNOWN = 0
# The limit for a message of a Kubernetes event is 1 kB, and log lines should be short.
_MAX_TEXT = 400


@frozen
class Call:
    """A request to the API server.

    ``body`` is the JSON to send, or None for no body. If ``is_raw`` is set, the reply has unparsed JSON in
    ``content``, for example for a page of a list (``lists.ListPage``). ``accept`` is the form of the reply.
    """

    method: str
    path: str
    body: object = None
    content_type: str = JSON
    is_raw: bool = False
    accept: str = JSON


@frozen
class Reply:
    """A reply of the API server.

    ``status`` is the HTTP status, and ``body`` is the object. If there is no valid reply, ``status`` is
    UNKNOWN with a ``reason``. The reply to a raw request has the JSON in ``content``, and an empty ``body``.
    """

    status: int
    body: Mapping[str, object]
    reason: str = ""
    content: bytes = b""

    @property
    def is_done(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status < 300

    @property
    def is_unknown(self) -> bool:
        """Whether the result is unknown, because there is no reply or the server had an error."""
        return self.status == UNKNOWN or self.status >= 500

    @property
    def text(self) -> str:
        """The server's message in one line, or the reason why there is no message."""
        message = self.body.get("message")
        text = (message if isinstance(message, str) else "") or self.reason or f"status {self.status}"
        return " ".join(text[:_MAX_TEXT].split())


def pod_path(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def configmap_path(namespace: str, name: str = "") -> str:
    """Return the path of the ConfigMap NAME, or of all ConfigMaps of NAMESPACE if NAME is ""."""
    folder = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"
    return f"{folder}/{quote(name, safe='')}" if name else folder


def query_path(path: str, query: Mapping[str, str]) -> str:
    """Return PATH with the parameters QUERY; parameters with an empty value are left out."""
    return f"{path}?{urlencode({name: value for name, value in query.items() if value}, quote_via=quote)}"


def object_name(document: object) -> str:
    """Return the name in the metadata of DOCUMENT, or "" if there is no name."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def drive(
    steps: Generator[Call, Reply, T], lock: threading.Lock, send: Callable[[Call, Reply | None], Reply]
) -> T:
    """Send each call of STEPS by SEND, and return the result of STEPS.

    LOCK is held while STEPS compute, but not during calls. SEND also gets the reply to the previous call, or
    None. If SEND raises an error, STEPS end.
    """
    reply: Reply | None = None
    with closing(steps):
        while True:
            try:
                with lock:
                    call = next(steps) if reply is None else steps.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            reply = send(call, reply)
