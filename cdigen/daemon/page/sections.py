"""What stands below the devices: their topology, the specs, what has changed, and the processes beside."""

from __future__ import annotations

from cdigen.daemon.page.attention import TONES
from cdigen.daemon.page.html import NOTHING, Html, element, joined, trusted
from cdigen.daemon.page.view import is_offered
from cdigen.daemon.page.words import age, code, lines, note, section, state, table
from cdigen.topology.svg import picture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.daemon.page.view import PageView, Peer, RuntimeView
    from cdigen.daemon.page.words import Row, Tone
    from cdigen.daemon.report import JournalEntry, SpecReport

_RESULTS: dict[str, Tone] = {"refused": "bad", "absent": "none", "withdrawn": "none", "kept": "wait"}
_PEERS: dict[str, Tone] = {"good": "good", "waiting": "wait", "bad": "bad", "absent": "none"}
# So many of the last changes and refusals, and of a runtime's problems, are shown.
_CHANGES, _PROBLEMS = 12, 6


def topology(view: PageView) -> Html:
    """Return the picture of how the devices are linked; it scrolls by itself where it is too broad."""
    if not view.topology:
        return NOTHING
    drawn = trusted(picture(view.topology))
    area = element(
        "div", drawn, class_="wide", tabindex=0, role="region", aria_label="Picture of the topology"
    )
    return section("topology", "Topology", area)


def specs(view: PageView) -> Html:
    """Return the vendors with their drivers, the specs, and what each runtime makes of them."""
    status = view.status
    parts: list[Html] = []
    here = [vendor for vendor in status.vendors if vendor.state != "absent"]
    if status.specs:
        header = ("Kind", "State", "Names", "File", "Written")
        rows = [[_spec(spec, view)] for spec in status.specs]
        parts.append(table("Specs", header, rows))
    else:
        parts.append(element("p", "No spec is kept."))
    if here:
        header = ("Maker", "State", "Driver", "Since", "Why")
        drivers = dict(view.drivers)
        rows = [
            [
                (
                    vendor.vendor,
                    state(TONES.get(vendor.state, "wait"), vendor.state),
                    drivers.get(vendor.vendor, ""),
                    age(vendor.since_s, view.at_s),
                    vendor.reason,
                )
            ]
            for vendor in here
        ]
        parts.append(table("Makers", header, rows))
    # Makers of which the host has nothing are not in the status, unless the configuration names them.
    makers = dict.fromkeys((*(vendor.vendor for vendor in status.vendors), *view.looked_for))
    absent = ", ".join(maker for maker in makers if maker not in {vendor.vendor for vendor in here})
    if absent:
        parts.append(note(f"Looked for, and not here: {absent}."))
    return section("specs", "Specs", *parts, _runtimes(view.runtimes))


def _spec(spec: SpecReport, view: PageView) -> Row:
    # A device has a name of its number and one of its UUID; `all` is of every one.
    count = sum(
        is_offered(one.device) and one.device.name.startswith(f"{spec.kind}=") for one in view.devices
    )
    of = f" of {count} device{'s' * (count != 1)}" if count and spec.served else ""
    left = f", {spec.left_out} left out" if spec.left_out else ""
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
    header = ("Runtime", "Finds", "What it does not find")
    return table("What runtimes make of the specs", header, [[_runtime(one)] for one in runtimes])


def _runtime(one: RuntimeView) -> Row:
    is_good = one.found == one.offered and not one.problems
    shown = [joined([code(name), f": {why}"]) for name, why in one.problems[:_PROBLEMS]]
    more = len(one.problems) - len(shown)
    return (
        f"{one.name} {one.version}",
        state("good" if is_good else "bad", f"{one.found} of {one.offered} devices"),
        lines(*shown, f"and {more} more" if more > 0 else "") or "nothing",
    )


def changes(view: PageView) -> Html:
    """Return the last changes of specs and the last refused containers, the newest first."""
    rows = [(entry.at_s, _change(entry, view.at_s)) for entry in view.status.journal]
    rows += [
        (
            refusal.at_s,
            (
                joined([age(refusal.at_s, view.at_s), " ago"]),
                state("bad", "refused"),
                refusal.who,
                refusal.reason,
            ),
        )
        for peer in view.peers
        for refusal in peer.refusals
    ]
    newest = [row for _, row in sorted(rows, key=lambda pair: -pair[0])][:_CHANGES]
    if not newest:
        return section(
            "changes", "Last changes", element("p", "Nothing has changed since the daemon started.")
        )
    header = ("When", "What", "Of which", "Why")
    return section("changes", "Last changes", table("Last changes", header, ([row] for row in newest)))


def _change(entry: JournalEntry, now_s: float) -> Row:
    return (
        joined([age(entry.at_s, now_s), " ago"]),
        state(_RESULTS.get(entry.result, "good"), entry.result),
        lines(code(entry.kind), entry.summary if entry.summary != entry.result else ""),
        _reasons(entry.reasons),
    )


def _reasons(reasons: tuple[str, ...]) -> Html:
    more = len(reasons) - 3
    return lines(*reasons[:3], f"and {more} more" if more > 0 else "")


def services(view: PageView) -> Html:
    """Return how the processes stand that give devices to containers beside the runtimes."""
    if not view.peers:
        return NOTHING
    header = ("Service", "State", "Since", "What it does")
    return section("services", "Services", table("Services", header, _peers(view.peers, view.at_s)))


def _peers(peers: Iterable[Peer], now_s: float) -> list[list[Row]]:
    return [
        [
            (
                peer.name,
                lines(state(_PEERS[peer.state], peer.word), peer.reason),
                age(peer.since_s, now_s) if peer.state != "absent" else "",
                lines(*peer.lines),
            )
        ]
        for peer in peers
    ]
