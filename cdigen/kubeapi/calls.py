"""Requests to the API server and its replies, as values: ``Call``, ``Reply``, and the paths of objects."""

from __future__ import annotations

from urllib.parse import quote

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

JSON = "application/json"
MERGE = "application/merge-patch+json"
# The status of a reply that never came: the server may have done it, or not, or may still do it.
UNKNOWN = 0
# An event of Kubernetes has room for 1 kB, and a line of a log should be read.
_MAX_TEXT = 400


@frozen
class Call:
    """A request: BODY is the JSON to send, None for none.

    ``is_raw``: the reply has its JSON in ``content``, unparsed, as for a page of a list (``lists.ListPage``).
    """

    method: str
    path: str
    body: object = None
    content_type: str = JSON
    is_raw: bool = False


@frozen
class Reply:
    """An answer: HTTP's status and the object; or UNKNOWN with ``reason``.

    The reply to a raw request has its JSON in ``content`` and an empty body.
    """

    status: int
    body: Mapping[str, object]
    reason: str = ""
    content: bytes = b""

    @property
    def is_done(self) -> bool:
        """Whether the server says that it did what was asked."""
        return 200 <= self.status < 300

    @property
    def is_unknown(self) -> bool:
        """Whether nobody can tell what became of the request: no answer, or an error of the server's own."""
        return self.status == UNKNOWN or self.status >= 500

    @property
    def text(self) -> str:
        """The server's own words in one line, or why there are none."""
        message = self.body.get("message")
        words = (message if isinstance(message, str) else "") or self.reason or f"status {self.status}"
        return " ".join(words[:_MAX_TEXT].split())


def pod_path(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def configmap_path(namespace: str, name: str = "") -> str:
    """Return the path of a ConfigMap, or without NAME of all of NAMESPACE."""
    folder = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"
    return f"{folder}/{quote(name, safe='')}" if name else folder
