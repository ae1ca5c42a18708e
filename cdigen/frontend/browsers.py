"""What keeps other sites' pages in a browser on this host from reading ours: ``refusal``, ``HEADERS``.

A browser reaches the loopback port for any page that it shows. A site whose name is made to mean 127.0.0.1
(DNS rebinding) is of the same origin as ours to the browser, but its name stands in Host; another site's page
may ask, and is not shown the answer, but the asking itself may cost something.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Of every answer. One that is shown as a page has a policy of its own.
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
# nvidia-docker 1.0's command gives any machine this name, without a port, and asks for these two (v1.0.1,
# src/nvidia-docker/remote.go). A browser leaves the port away at port 80 only.
_OLD_NAME, _OLD_PATHS, _NO_PORT = "plugin", frozenset({"/gpu/info/json", "/docker/cli"}), "80"


def refusal(request: Mapping[str, object]) -> tuple[str, str]:
    """Return why a request to the loopback port is refused, as status and text; two empty texts: it is not.

    REQUEST is the environ of WSGI. The port in Host may be any: people forward it (ssh -L). Who sends no Host
    is no browser (RFC 9112, 3.2).
    """
    host = str(request.get("HTTP_HOST", ""))
    if host and _name(host) not in _OUR_NAMES and not _is_old_command(host, request):
        return "421 Misdirected Request", "this is localhost: ask for it by that name or as 127.0.0.1\n"
    # Fetch Metadata: browsers say so, and no page can change it. A link from elsewhere may lead here; a frame
    # navigates as well, to be shown in the other page.
    from_elsewhere = request.get("HTTP_SEC_FETCH_SITE") in {"cross-site", "same-site"}
    asked = request.get("HTTP_SEC_FETCH_MODE"), request.get("HTTP_SEC_FETCH_DEST")
    # With an Origin, scripts ask: none of ours does. A WebSocket says nothing else (Chromium 156).
    if "HTTP_ORIGIN" in request or (from_elsewhere and asked != ("navigate", "document")):
        return "403 Forbidden", "other sites' pages get nothing here\n"
    return "", ""


def _is_old_command(host: str, request: Mapping[str, object]) -> bool:
    is_asked = host == _OLD_NAME and request.get("PATH_INFO") in _OLD_PATHS
    return is_asked and request.get("SERVER_PORT") != _NO_PORT


def _name(host: str) -> str:
    """Return HOST without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and (port.isdecimal() or not port) and not host.endswith("]") else host).lower()
