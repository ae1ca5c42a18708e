"""The daemon executes no request from another site's page in a real browser on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.browser.page_layout import served
from support.daemon.http_client import free_port

from cdigen.service.http.routes import Response
from cdigen.service.http.server import local_server

if TYPE_CHECKING:
    from pathlib import Path

    from support.browser.chromium import Page

    from cdigen.service.http.routes import Request, Route

# The elements that load a URL, each with a separate path.
_LOADS = """
<!DOCTYPE html><title>another site</title>
<img src="{at}/img"><iframe src="{at}/iframe"></iframe><object data="{at}/object"></object>
<embed src="{at}/embed"><video src="{at}/video"></video><script src="{at}/script"></script>
<link rel=stylesheet href="{at}/style"><iframe name=target></iframe>
<form id=get action="{at}/form" target=target></form>
<form id=post action="{at}/post" target=target method=post><input name=a value=b></form>
"""
_TRIES = """
(async () => {{
  document.getElementById('get').submit();
  document.getElementById('post').submit();
  const read = [];
  for (const mode of ['cors', 'no-cors'])
    try {{ read.push(await (await fetch('{at}/fetch', {{mode}})).text()); }}
    catch (error) {{ read.push(''); }}
  navigator.sendBeacon('{at}/beacon', 'x');
  try {{ new WebSocket('ws' + '{at}'.slice(4) + '/websocket'); }} catch (error) {{ }}
  await new Promise(done => setTimeout(done, 500));
  return read;
}})()
"""
_PATHS = (
    *("img", "iframe", "object", "embed", "video", "script", "style"),
    *("form", "post", "fetch", "beacon", "websocket"),
)


# The foreign page is at 127.0.0.1. For this page, the daemon is another site if its URL contains localhost.
# The daemon is the same site if its URL contains 127.0.0.1 and another port.
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_the_daemon_serves_only_followed_links_of_foreign_pages(tab: Page, tmp_path: Path, name: str) -> None:
    port, done = free_port(), list[str]()

    def route_of(path: str) -> Route:
        def route(_: Request) -> Response:
            done.append(path)
            return Response(body=b"done")

        return route

    routes = {f"/{path}": route_of(path) for path in (*_PATHS, "link")}
    server = local_server(routes, str(tmp_path), port=port)
    server.start()
    try:
        at = f"http://{name}:{port}"
        with served(_LOADS.format(at=at), policy="") as (address, _):
            tab.show(address, width=800)
            assert tab.run(_TRIES.format(at=at)) == ["", ""]
            assert done == []
            # A user may follow a link.
            tab.run(f"location.href = '{at}/link'")
            tab.wait_for_load()
            assert done == ["link"]
    finally:
        server.stop()
