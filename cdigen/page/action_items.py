"""The top of the page: the state of the host, and the action items."""

from __future__ import annotations

from cdigen import page_url
from cdigen.model.times.ages import seconds
from cdigen.model.times.timestamps import timestamp
from cdigen.page.components import age, mark, note, section, state
from cdigen.page.devices import has_source
from cdigen.page.html import Html, element, joined
from cdigen.pipeline.cause_groups import cause_groups, finding_groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.page.components import Tone
    from cdigen.page.view import PageView

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
# The next step if an event source failed (udev, inotify, ...). The daemon also restarts each failed source.
_SOURCE_STEP = "if the source still fails after a minute: 'journalctl -u cdigen'"
_SOURCE_STEPS = {
    "kernel-log": "'systemctl start cdigen-kernel-log.socket'; in a pod see "
    + page_url("how-to/kubernetes/daemonset")
}


def head(view: PageView) -> Html:
    """Return the header with the state of the host."""
    status = view.status
    tone = TONES.get(status.state, "wait")
    label = element("strong", mark(tone), f"{status.state.capitalize()}:", class_=f"state {tone}")
    verdict = element("p", label, " ", status.verdict, class_="verdict")
    facts = element("dl", *(_fact(*pair) for pair in _facts(view)), class_="facts")
    return element(
        "header",
        element("p", *_moment(view), class_="note"),
        element("h1", view.host),
        verdict,
        element("p", "Since ", age(status.since_s, view.at_s), "."),
        facts,
    )


def _moment(view: PageView) -> Iterator[str]:
    """Yield the time of the page, and a link that stops or starts the automatic reload."""
    # A screen reader may need more time for the page than the interval between reloads.
    stamp = timestamp(view.at_s)
    yield "As of "
    yield element("time", f"{stamp[:19].replace('T', ' ')} UTC", datetime=stamp)
    if view.reload_s:
        yield f", reloaded every {view.reload_s} seconds. "
        yield element("a", "Stop reloading", href="/?reload=off")
    else:
        yield ", not reloaded. "
        yield element("a", "Reload automatically", href="/")


def _facts(view: PageView) -> Iterator[tuple[str, str]]:
    # The partitions of a split GPU are counted, not the GPU.
    offered = [one for one in view.devices if one.device.is_offered]
    count, healthy = len(offered), sum(one.device.health == "healthy" for one in offered)
    yield "Devices", str(count)
    yield "Healthy", f"{healthy} of {count}" if count else "none"
    in_use = f"{sum(bool(one.users) for one in offered)} of {count}"
    yield "In use", in_use if has_source(view.sources) else "unknown"
    for vendor, version in view.drivers:
        yield f"Driver, {vendor}", version
    if view.cuda:
        yield "CUDA up to", view.cuda


def _fact(name: str, value: str) -> Html:
    return element("div", element("dt", name), element("dd", value))


def action_items(view: PageView) -> Html:
    """Return the problems with their next steps, the most severe problems first."""
    items = [*_vendors(view), *_devices(view), *_services(view), *_sources(view), *_findings(view)]
    # Each item is a pair of a tone and HTML. Items with the tone "bad" are first.
    ordered = sorted(dict.fromkeys(items), key=lambda item: item[0] != "bad")
    if not ordered:
        return section("todo", "Action items", element("p", state("good", "No action is needed.")))
    rows = [element("li", mark(tone), element("div", text), class_=tone) for tone, text in ordered[:_MOST]]
    more = len(ordered) - _MOST
    rest = [note(f"And {more} more: see ", element("code", "cdigen status"), ".")] if more > 0 else []
    return section("todo", "Action items", element("ul", *rows, class_="todo", role="list"), *rest)


def _vendors(view: PageView) -> Iterator[tuple[Tone, Html]]:
    is_empty = all(vendor.state == "absent" for vendor in view.status.vendors)
    for vendor in view.status.vendors:
        if vendor.state == "ready" or (vendor.state == "absent" and not is_empty):
            continue
        tone = TONES.get(vendor.state, "wait")
        since = joined([f"{vendor.vendor} is {vendor.state} for ", age(vendor.since_s, view.at_s)])
        yield tone, _item(since, vendor.reason, vendor.hint)


def _devices(view: PageView) -> Iterator[tuple[Tone, Html]]:
    for group in cause_groups(one.device for one in view.devices):
        cause = group.first
        title = joined([f"{group.title} for ", age(seconds(cause.since), view.at_s)])
        step = cause.next_step or f"The cause ends when {cause.clears_when}"
        yield "bad", _item(title, cause.detail, step[:1].upper() + step[1:])


def _services(view: PageView) -> Iterator[tuple[Tone, Html]]:
    for service in view.services:
        if service.state == "bad":
            yield "bad", _item(f"{service.name}: {service.status}", service.reason, service.hint)


def _sources(view: PageView) -> Iterator[tuple[Tone, Html]]:
    for name, problem in view.status.sources:
        if problem:
            hint = _SOURCE_STEPS.get(name, _SOURCE_STEP)
            yield "wait", _item(f"The event source {name} does not work", problem, hint)


def _findings(view: PageView) -> Iterator[tuple[Tone, Html]]:
    for finding in finding_groups(view.status.cycle.findings) if view.status.cycle else ():
        if finding.severity in _SEVERITIES:
            has_path = finding.path in finding.message or not finding.path
            title = finding.message if has_path else f"{finding.path}: {finding.message}"
            yield _SEVERITIES[finding.severity], _item(title, "", finding.hint)


def _item(title: str, why: str, remedy: str) -> Html:
    parts = [element("strong", title)]
    if why:
        parts.append(element("p", why))
    if remedy:
        parts.append(element("p", remedy, class_="remedy"))
    return joined(parts)
