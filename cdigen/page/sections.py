"""The sections below the devices: the topology, the specs, the last changes, and cdigen's other services."""

from __future__ import annotations

from cdigen.page.action_items import TONES
from cdigen.page.components import age, code, lines, note, section, state, table
from cdigen.page.html import NOTHING, Html, element, joined, trusted
from cdigen.topology.svg import picture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.daemon.cycle.report import JournalEntry, SpecReport
    from cdigen.page.components import Row, Tone
    from cdigen.page.view import PageView, RefusedContainer, RuntimeView

_RESULTS: dict[str, Tone] = {"refused": "bad", "absent": "none", "withdrawn": "none", "kept": "wait"}
_SERVICES: dict[str, Tone] = {"good": "good", "waiting": "wait", "bad": "bad", "absent": "none"}
# Maximum number of changes and refusals on the page, and maximum number of problems of a runtime.
_CHANGES, _PROBLEMS = 12, 6


def topology(view: PageView) -> Html:
    """Return the picture of the links between devices. A picture that is too wide has a scroll bar."""
    if not view.topology:
        return NOTHING
    drawn = trusted(picture(view.topology))
    area = element(
        "div", drawn, class_="wide", tabindex=0, role="region", aria_label="Picture of the topology"
    )
    return section("topology", "Topology", area)


def specs(view: PageView) -> Html:
    """Return the specs, the vendors with their drivers, and the devices that each runtime finds."""
    status = view.status
    parts: list[Html] = []
    here = [vendor for vendor in status.vendors if vendor.state != "absent"]
    if status.specs:
        header = ("Kind", "State", "Names", "File", "Written")
        parts.append(_table("Specs", header, (_spec(spec, view) for spec in status.specs)))
    else:
        parts.append(element("p", "There is no spec."))
    if here:
        header = ("Vendor", "State", "Driver", "Since", "Reason")
        drivers = dict(view.drivers)
        vendor_rows = [
            (
                vendor.vendor,
                state(TONES.get(vendor.state, "wait"), vendor.state),
                drivers.get(vendor.vendor, ""),
                age(vendor.since_s, view.at_s),
                vendor.reason,
            )
            for vendor in here
        ]
        parts.append(_table("Vendors", header, vendor_rows))
    # The status names a vendor without devices only if the configuration names the vendor.
    vendors = dict.fromkeys((*(vendor.vendor for vendor in status.vendors), *view.searched))
    absent = ", ".join(name for name in vendors if name not in {vendor.vendor for vendor in here})
    if absent:
        parts.append(note(f"No devices of these vendors: {absent}."))
    return section("specs", "Specs", *parts, _runtimes(view.runtimes))


def _spec(spec: SpecReport, view: PageView) -> Row:
    # Each device has a name with its number and a name with its UUID. The name `all` means all devices.
    count = sum(one.device.is_offered and one.device.name.startswith(f"{spec.kind}=") for one in view.devices)
    of = f" of {count} device{'s' * (count != 1)}" if count and spec.served else ""
    out = spec.left_out
    left = f", {out} device{'s' * (out != 1)} left out" if out else ""
    return (
        code(spec.kind),
        lines(state(_RESULTS.get(spec.result, "good"), spec.result), spec.reason),
        f"{spec.served} names{of}{left}" if spec.served != 1 else f"1 name{of}{left}",
        code(spec.file),
        joined([age(spec.written_s, view.at_s), " ago"]) if spec.written_s is not None else "never",
    )


def _runtimes(runtimes: tuple[RuntimeView, ...] | None) -> Html:
    if runtimes is None:
        return NOTHING
    if not runtimes:
        return note("No container runtime that reads specs was found on this host.")
    header = ("Runtime", "Devices found", "Problems")
    return _table("Devices that runtimes find", header, map(_runtime, runtimes))


def _runtime(one: RuntimeView) -> Row:
    is_good = one.found == one.offered and not one.problems
    shown = [joined([code(name), f": {why}"]) for name, why in one.problems[:_PROBLEMS]]
    more = len(one.problems) - len(shown)
    return (
        f"{one.name} {one.version}",
        state("good" if is_good else "bad", f"{one.found} of {one.offered} devices"),
        lines(*shown, f"and {more} more" if more > 0 else "") or "none",
    )


def changes(view: PageView) -> Html:
    """Return the latest changes of specs and the latest refused containers, the newest first."""
    rows = [(entry.at_s, _change(entry, view.at_s)) for entry in view.status.journal]
    refusals = (refusal for service in view.services for refusal in service.refusals)
    rows += [(refusal.at_s, _refused(refusal, view.at_s)) for refusal in refusals]
    newest = [row for _, row in sorted(rows, key=lambda pair: -pair[0])][:_CHANGES]
    if not newest:
        return section(
            "changes", "Last changes", element("p", "Nothing has changed since the daemon started.")
        )
    header = ("When", "Change", "Object", "Reason")
    return section("changes", "Last changes", _table("Last changes", header, newest))


def _change(entry: JournalEntry, now_s: float) -> Row:
    return (
        joined([age(entry.at_s, now_s), " ago"]),
        state(_RESULTS.get(entry.result, "good"), entry.result),
        lines(code(entry.kind), entry.summary if entry.summary != entry.result else ""),
        _reasons(entry.reasons),
    )


def _refused(refusal: RefusedContainer, now_s: float) -> Row:
    when = joined([age(refusal.at_s, now_s), " ago"])
    return when, state("bad", "refused"), refusal.container, refusal.reason


def _reasons(reasons: tuple[str, ...]) -> Html:
    more = len(reasons) - 3
    return lines(*reasons[:3], f"and {more} more" if more > 0 else "")


def services(view: PageView) -> Html:
    """Return the states of the NRI plugin and of the kubelet's device plugins."""
    if not view.services:
        return NOTHING
    header = ("Service", "State", "Since", "Details")
    rows = (
        (
            one.name,
            lines(state(_SERVICES[one.state], one.status), one.reason),
            age(one.since_s, view.at_s) if one.state != "absent" else "",
            lines(*one.lines),
        )
        for one in view.services
    )
    return section("services", "Services", _table("Services", header, rows))


def _table(label: str, header: Sequence[str], rows: Iterable[Row]) -> Html:
    """Return a table in which each row is a group."""
    return table(label, header, ([row] for row in rows))
