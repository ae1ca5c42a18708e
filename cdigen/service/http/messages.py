"""HTTP/1.1 messages: ``parse_head`` reads the head of a request, ``encode`` writes a response.

The grammar is that of RFC 9112, without its tolerances: lines end in CRLF, and no header is folded.

``refuse`` rejects requests that a browser on this host sends for pages of other sites. Any page in a browser
can send requests to the loopback port. A site can map its own name to 127.0.0.1 (DNS rebinding). The browser
then treats the port as the same origin, but sends the site's name in Host. A page of another site can send a
request, although it cannot read the response. The request itself may be expensive.
"""

from __future__ import annotations

import re
from email.utils import formatdate

from cdigen.service.http.routes import RefusedRequest
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

# Headers of every response. An HTML page has a separate Content-Security-Policy.
HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)
POLICY = (
    "Content-Security-Policy",
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
)
_OUR_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# The nvidia-docker 1.0 command uses this host name for any machine, without a port. The command requests
# these two paths (v1.0.1, src/nvidia-docker/remote.go). A browser omits the port only if the port is 80.
_NVIDIA_DOCKER_NAME, _NO_PORT = "plugin", 80
_NVIDIA_DOCKER_PATHS = frozenset({"/gpu/info/json", "/docker/cli"})


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


def refuse(head: RequestHead, port: int) -> None:
    """Raise RefusedRequest if a page of another site may have caused the request HEAD to the loopback PORT.

    Any port in Host is permitted, because users forward the port (ssh -L). A client that sends no Host is not
    a browser (RFC 9112, 3.2), so its request is permitted.
    """
    host = head.header("Host")
    is_nvidia_docker = host == _NVIDIA_DOCKER_NAME and head.path in _NVIDIA_DOCKER_PATHS and port != _NO_PORT
    if host and _name(host) not in _OUR_NAMES and not is_nvidia_docker:
        raise RefusedRequest("421 Misdirected Request", "use the host name localhost or 127.0.0.1")
    # Fetch Metadata: browsers send these headers, and no page can change them. A link from another site is
    # permitted. A frame also navigates, but inside the page of the other site, so a frame is rejected.
    from_elsewhere = head.header("Sec-Fetch-Site") in {"cross-site", "same-site"}
    destination = head.header("Sec-Fetch-Mode"), head.header("Sec-Fetch-Dest")
    # Only scripts send Origin, and the page has no script. Of these headers, a WebSocket sends only Origin
    # (Chromium 156).
    if "origin" in head.headers or (from_elsewhere and destination != ("navigate", "document")):
        raise RefusedRequest("403 Forbidden", "requests from pages of other sites are refused")


def _name(host: str) -> str:
    """Return HOST without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and (port.isdecimal() or not port) and not host.endswith("]") else host).lower()


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
