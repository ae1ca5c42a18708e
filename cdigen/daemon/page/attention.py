"""The top of the page: how the host stands, and what is to be done."""

from __future__ import annotations

from cdigen.daemon.page.devices import counts
from cdigen.daemon.page.html import Html, element, joined
from cdigen.daemon.page.words import age, mark, note, section, state
from cdigen.daemon.report import MEANINGS
from cdigen.model.ages import seconds
from cdigen.model.timestamps import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.daemon.page.view import PageView
    from cdigen.daemon.page.words import Tone

TONES: dict[str, Tone] = {
    "ready": "good",
    "settling": "wait",
    "starting": "wait",
    "degraded": "wait",
    "mismatch": "bad",
    "absent": "none",
}
_SEVERITIES: dict[str, Tone] = {"error": "bad", "warning": "wait"}
_MOST = 20


def head(view: PageView) -> Html:
    """Return the state of the host in one look."""
    status = view.status
    tone = TONES.get(status.state, "wait")
    word = element("strong", mark(tone), status.state.capitalize(), class_=f"state {tone}")
    told = element("p", word, " for ", age(status.since_s, view.at_s), class_="verdict")
    meaning = MEANINGS.get(status.state, "see below")
    facts = element("dl", *(_fact(*pair) for pair in _facts(view)), class_="facts")
    return element(
        "header",
        element("p", *_moment(view), class_="note"),
        element("h1", view.host),
        told,
        element("p", f"{meaning[:1].upper()}{meaning[1:]}."),
        facts,
    )


def _moment(view: PageView) -> Iterator[str]:
    """Say of when the page is, and how to keep it: whoever listens to it wants to hear it to the end."""
    stamp = timestamp(view.at_s)
    yield "As of "
    yield element("time", f"{stamp[:19].replace('T', ' ')} UTC", datetime=stamp)
    if view.reload_s:
        yield f", reloaded every {view.reload_s} seconds. "
        yield element("a", "Stop reloading", href="/?reload=off")
    else:
        yield ", not reloaded. "
        yield element("a", "Reload by itself", href="/")


def _facts(view: PageView) -> Iterator[tuple[str, str]]:
    told = counts(view)
    yield "Devices", str(told.every)
    yield "Healthy", f"{told.healthy} of {told.every}" if told.every else "none"
    yield "In use", "unknown" if told.held is None else f"{told.held} of {told.every}"
    for vendor, version in view.drivers:
        yield f"Driver, {vendor}", version
    if view.cuda:
        yield "CUDA up to", view.cuda


def _fact(name: str, value: str) -> Html:
    return element("div", element("dt", name), element("dd", value))


def attention(view: PageView) -> Html:
    """Return what is wrong, each with what to do, the gravest first."""
    items = [*_vendors(view), *_devices(view), *_peers(view), *_sources(view), *_findings(view)]
    # An item's tone comes first.
    ordered = sorted(dict.fromkeys(items), key=lambda item: item[0] != "bad")
    if not ordered:
        return section("todo", "What to do", element("p", state("good", "Nothing needs to be done.")))
    rows = [element("li", mark(tone), element("div", text), class_=tone) for tone, text in ordered[:_MOST]]
    more = len(ordered) - _MOST
    rest = [note(f"And {more} more: see ", element("code", "cdigen status"), ".")] if more > 0 else []
    return section("todo", "What to do", element("ul", *rows, class_="todo", role="list"), *rest)


def _vendors(view: PageView) -> Iterator[tuple[Tone, Html]]:
    is_empty = all(vendor.state == "absent" for vendor in view.status.vendors)
    for vendor in view.status.vendors:
        if vendor.state == "ready" or (vendor.state == "absent" and not is_empty):
            continue
        tone = TONES.get(vendor.state, "wait")
        since = joined([f"{vendor.vendor} is {vendor.state} for ", age(vendor.since_s, view.at_s)])
        yield tone, _item(since, vendor.reason, vendor.hint)


def _devices(view: PageView) -> Iterator[tuple[Tone, Html]]:
    for one in view.devices:
        for cause in one.device.own_causes:
            told = joined(
                [f"{one.device.name} is unhealthy: {cause.cause} for ", age(seconds(cause.since), view.at_s)]
            )
            yield "bad", _item(told, cause.detail, f"It is over when {cause.clears_when}")


def _peers(view: PageView) -> Iterator[tuple[Tone, Html]]:
    for peer in view.peers:
        if peer.state == "bad":
            yield "bad", _item(f"{peer.name}: {peer.word}", peer.reason, "")


def _sources(view: PageView) -> Iterator[tuple[Tone, Html]]:
    for name, problem in view.status.sources:
        if problem:
            yield "wait", _item(f"The daemon's source {name} does not work", problem, "")


def _findings(view: PageView) -> Iterator[tuple[Tone, Html]]:
    for finding in view.status.cycle.findings if view.status.cycle else ():
        if finding.severity in _SEVERITIES:
            said = finding.path in finding.message or not finding.path
            where = finding.message if said else f"{finding.path}: {finding.message}"
            yield _SEVERITIES[finding.severity], _item(where, "", finding.hint)


def _item(title: str, why: str, remedy: str) -> Html:
    parts = [element("strong", title)]
    if why:
        parts.append(element("p", why))
    if remedy:
        parts.append(element("p", remedy, class_="remedy"))
    return joined(parts)
