"""``page``: the HTML document. ``POLICY``: its Content-Security-Policy."""

from __future__ import annotations

from cdigen import __version__
from cdigen.page.action_items import action_items, head
from cdigen.page.devices import devices
from cdigen.page.html import Html, element, joined, trusted
from cdigen.page.sections import changes, services, specs, topology
from cdigen.page.style import STYLE, digest
from cdigen.topology.svg import STYLE as PICTURE_STYLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.page.view import PageView

# The page fetches, runs and sends nothing, and no other page may frame it. The policy permits two style
# sheets by their hashes.
POLICY = (
    f"default-src 'none'; style-src {digest(STYLE)} {digest(PICTURE_STYLE)}; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_DOCUMENTS = (
    ("/status.json", "status"),
    ("/inventory.json", "inventory"),
    ("/page.json", "this page"),
    ("/metrics", "metrics"),
)


def page(view: PageView) -> str:
    """Return VIEW as an HTML document, which refers only to other paths of this server.

    The document has no links to its own sections. At an address with a fragment, a browser would only scroll
    instead of reloading the page.
    """
    body = element(
        "body",
        head(view),
        element(
            "main",
            action_items(view),
            devices(view),
            topology(view),
            specs(view),
            changes(view),
            services(view),
        ),
        _footer(),
    )
    return f"<!DOCTYPE html>\n{element('html', _head(view), body, lang='en')}\n"


def _head(view: PageView) -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{view.status.state} · {view.host} · cdigen"),
        element("style", trusted(STYLE)),
    )


def _footer() -> Html:
    documents = joined((element("a", title, href=path) for path, title in _DOCUMENTS), ", ")
    return element(
        "footer", element("span", "For programs: ", documents), element("span", f"cdigen {__version__}")
    )
