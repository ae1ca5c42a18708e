"""Routes: ``Request`` and ``Response``, ``find_route``, and the routes of every process."""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.service.metrics import CONTENT_TYPE
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # Returns the response to a request.
    Route = Callable[["Request"], "Response"]
    # Routes by path, such as "/metrics" (GET and HEAD) and "POST /bind". "/pods/*" is any path below /pods/
    # without a further slash.
    Routes = Mapping[str, Route]

_PLAIN = "text/plain; charset=utf-8"


@frozen
class Request:
    """A request; ``query`` is the text after the question mark. Only a POST request has a ``body``."""

    path: str
    query: str = ""
    body: bytes = b""


@frozen
class Response:
    """An HTTP response; ``status`` is the text of the status line."""

    body: bytes
    content_type: str = _PLAIN
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = ()


class RefusedRequest(Exception):
    """A request that gets ``response`` and no route; the connection ends afterwards."""

    def __init__(self, status: str, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.response = Response(body=f"{text}\n".encode(), status=status, headers=headers)


def standard_routes(
    *, metrics: Callable[[], bytes], alive: Callable[[], str], ready: Callable[[], str]
) -> dict[str, Route]:
    """Return the routes of every process; ALIVE and READY return the problem or "".

    /metrics has the metrics for Prometheus. /healthz is 200 while the process works, and /readyz is 200 while
    the process serves containers; else they are 503 with the reason.
    """
    return {
        "/metrics": lambda _: Response(body=metrics(), content_type=CONTENT_TYPE),
        "/healthz": lambda _: _health(alive()),
        "/readyz": lambda _: _health(ready()),
    }


def find_route(routes: Routes, method: str, path: str) -> Route:
    """Return the route of METHOD and PATH, or raise RefusedRequest."""
    found: dict[str, Route] = {}
    for each in (f"{path.rpartition('/')[0]}/*", path):
        if each in routes:
            found |= dict.fromkeys(("GET", "HEAD"), routes[each])
        if f"POST {each}" in routes:
            found["POST"] = routes[f"POST {each}"]
    if not found:
        raise RefusedRequest("404 Not Found", f"not found; the paths are {', '.join(routes)}")
    if method not in found:
        allowed = ", ".join(found)
        raise RefusedRequest("405 Method Not Allowed", f"only {allowed}", ("Allow", allowed))
    return found[method]


def _health(problem: str) -> Response:
    text = f"{shown(problem) if problem else 'ok'}\n".encode("utf-8", "replace")
    return Response(body=text, status="503 Service Unavailable" if problem else "200 OK")
