"""HTTP/1.1 messages: ``parse_head`` reads the head of a request, ``encode`` writes a response.

The grammar is that of RFC 9112, without its tolerances: lines end in CRLF, and no header is folded.
"""

from __future__ import annotations

import re
from email.utils import formatdate

from cdigen.service.http.routes import RefusedRequest
from cdigen.service.http.security import HEADERS, POLICY
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cdigen.service.http.routes import Response

# Bytes. A query may name ten thousand devices.
MAX_HEAD = 64 << 10
# A filter request of kube-scheduler with the names of 5,000 nodes has 300 kB. A request with 1,000 whole Node
# objects exceeds this limit.
MAX_BODY = 8 << 20
_HEAD = re.compile(
    rb"([A-Z]+) ([!-~]+) HTTP/1\.([01])\r\n((?:[!#-'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*)\r\n"
)


@frozen
class RequestHead:
    """The head of a request; ``is_kept`` is whether another request may follow on the connection.

    ``headers`` are the values of each header by its name in lower case.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, Sequence[str]]
    is_kept: bool

    def header(self, name: str) -> str:
        """Return the value of the header NAME; several headers are one list (RFC 9110, 5.3)."""
        return ", ".join(self.headers.get(name.lower(), ()))


def parse_head(data: bytes) -> RequestHead:
    """Return the head in DATA, which ends with the empty line, or raise RefusedRequest."""
    matched = _HEAD.fullmatch(data)
    if matched is None:
        raise RefusedRequest("400 Bad Request", "the request is not HTTP/1.1")
    method, target, minor, fields = (group.decode("latin-1") for group in matched.groups())
    # The parser of http.client needs 30 s for some headers of 64 KiB (email.message, _parseparam).
    headers: dict[str, list[str]] = {}
    for line in fields.split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), []).append(value.strip("\t "))
    path, _, query = target.partition("?")
    is_kept = minor == "1" and "close" not in ",".join(headers.get("connection", ())).lower()
    return RequestHead(method=method, path=path, query=query, headers=headers, is_kept=is_kept)


def body_length(head: RequestHead) -> int:
    """Return the number of bytes in the body of a request, or raise RefusedRequest."""
    length, is_chunked = head.header("Content-Length"), "transfer-encoding" in head.headers
    if head.method != "POST":
        if is_chunked or length not in {"", "0"}:
            raise RefusedRequest("400 Bad Request", f"a {head.method} request must not have a body")
        return 0
    if is_chunked or not (length.isascii() and length.isdecimal() and len(length) < 12):
        raise RefusedRequest("411 Length Required", "a body needs a Content-Length")
    if int(length) > MAX_BODY:
        raise RefusedRequest("413 Content Too Large", f"the body is larger than {MAX_BODY >> 20} MiB")
    return int(length)


def encode(response: Response, *, with_body: bool, is_last: bool) -> bytes:
    """Return the bytes of RESPONSE. IS_LAST is whether the server closes the connection afterwards."""
    own = dict(response.headers)
    lines = [
        f"HTTP/1.1 {response.status}",
        "Server: cdigen",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        *(f"{name}: {value}" for name, value in (*HEADERS, POLICY) if name not in own),
        *(f"{name}: {value}" for name, value in response.headers),
        *(["Connection: close"] if is_last else []),
    ]
    head = "\r\n".join((*lines, "", "")).encode("latin-1", "replace")
    return head + response.body if with_body else head
