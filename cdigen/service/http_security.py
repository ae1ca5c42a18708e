"""Reject requests that a browser on this host sends for pages of other sites: ``refusal``, ``HEADERS``.

Any page in a browser can send requests to the loopback port. A site can map its own name to 127.0.0.1 (DNS
rebinding). The browser then treats the port as the same origin, but sends the site's name in Host. A page of
another site can send a request, although it cannot read the response. The request itself may be expensive.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

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
_NVIDIA_DOCKER_NAME, _NO_PORT = "plugin", "80"
_NVIDIA_DOCKER_PATHS = frozenset({"/gpu/info/json", "/docker/cli"})


def refusal(request: Mapping[str, object]) -> tuple[str, str]:
    """Return the status and text that reject REQUEST; both are "" if REQUEST is permitted.

    REQUEST is the WSGI environ of a request to the loopback port. Any port in Host is permitted, because
    users forward the port (ssh -L). A client that sends no Host is not a browser (RFC 9112, 3.2), so its
    request is permitted.
    """
    host = str(request.get("HTTP_HOST", ""))
    if host and _name(host) not in _OUR_NAMES and not _is_nvidia_docker(host, request):
        return "421 Misdirected Request", "use the host name localhost or 127.0.0.1\n"
    # Fetch Metadata: browsers send these headers, and no page can change them. A link from another site is
    # permitted. A frame also navigates, but inside the page of the other site, so a frame is rejected.
    from_elsewhere = request.get("HTTP_SEC_FETCH_SITE") in {"cross-site", "same-site"}
    destination = request.get("HTTP_SEC_FETCH_MODE"), request.get("HTTP_SEC_FETCH_DEST")
    # Only scripts send Origin, and the page has no script. Of these headers, a WebSocket sends only Origin
    # (Chromium 156).
    if "HTTP_ORIGIN" in request or (from_elsewhere and destination != ("navigate", "document")):
        return "403 Forbidden", "requests from pages of other sites are refused\n"
    return "", ""


def _is_nvidia_docker(host: str, request: Mapping[str, object]) -> bool:
    is_its_path = host == _NVIDIA_DOCKER_NAME and request.get("PATH_INFO") in _NVIDIA_DOCKER_PATHS
    return is_its_path and request.get("SERVER_PORT") != _NO_PORT


def _name(host: str) -> str:
    """Return HOST without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and (port.isdecimal() or not port) and not host.endswith("]") else host).lower()
