"""Reject requests that a browser on this host sends for pages of other sites: ``refuse``, ``HEADERS``.

Any page in a browser can send requests to the loopback port. A site can map its own name to 127.0.0.1 (DNS
rebinding). The browser then treats the port as the same origin, but sends the site's name in Host. A page of
another site can send a request, although it cannot read the response. The request itself may be expensive.
"""

from __future__ import annotations

from cdigen.service.http.routes import RefusedRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.service.http.messages import RequestHead

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
