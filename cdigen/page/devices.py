"""The section of devices: a row for each GPU, and below this row, a row for each set of equal partitions."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from cdigen.model.times.ages import seconds
from cdigen.page.components import (
    UNKNOWN,
    age,
    amount,
    bar,
    code,
    lines,
    note,
    section,
    size_of,
    state,
    table,
)
from cdigen.page.html import NOTHING, Html, element, joined
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.model.stats import DeviceStats
    from cdigen.page.components import Row, Tone
    from cdigen.page.view import DeviceUserSource, DeviceView, PageView

_HEADER = ("Device", "Model", "Health", "Memory", "Load", "Users")
_TONES: dict[str, Tone] = {"healthy": "good", "unhealthy": "bad", "unknown": "none"}
# Maximum number of users of a device on the page.
_MAX_USERS = 8
_NAMELESS = note(
    "Users and refused containers are not named at this port, which every user of the host can read. ",
    code("curl --unix-socket /run/cdigen/http.sock http://localhost/page.json"),
    " shows the names to root. ",
    code("page: {http_port_shows_names: true}"),
    " shows them to every user.",
)
_SOURCES = {"responded": "", "off": "off", "absent": "not on this host", "no-response": "no response"}


def devices(view: PageView) -> Html:
    """Return the section of devices."""
    if not view.devices:
        return section("devices", "Devices", element("p", "This host has no device for containers."))
    repeated = _repeated(view)
    view = _without(view, repeated)
    columns = _columns(view)
    groups = ([_chosen(row, columns) for row in _group(view, members)] for members in _by_gpu(view.devices))
    header = _chosen(_HEADER, columns)
    notes = [_sources_note(view.sources)]
    if view.is_nameless:
        notes.append(_NAMELESS)
    problems = dict.fromkeys((*filter(None, [view.stats_problem]), *repeated))
    if problems:
        notes.append(note("Memory and load are unknown: ", "; ".join(problems)))
    return section("devices", "Devices", table("Devices", header, groups, kind="devices"), *notes)


def _repeated(view: PageView) -> tuple[str, ...]:
    """Return each reason for missing stats that all devices of a vendor have. A note shows each reason."""
    reasons = Counter((one.device.vendor, one.stats.problem) for one in view.devices if one.stats)
    of_vendor = Counter(one.device.vendor for one in view.devices if one.stats)
    # If only some devices of a vendor have no stats, the rows of these devices show the reason.
    common = (text for (vendor, text), count in reasons.items() if 1 < count == of_vendor[vendor])
    return tuple(dict.fromkeys(filter(None, common)))


def _without(view: PageView, problems: tuple[str, ...]) -> PageView:
    """Return VIEW without the stats of the devices whose stats have one of PROBLEMS."""
    return replace(
        view,
        devices=tuple(
            replace(one, stats=None) if one.stats and one.stats.problem in problems else one
            for one in view.devices
        ),
    )


def _columns(view: PageView) -> tuple[int, ...]:
    """Return the numbers of the columns with known values. Notes report why other columns are missing."""
    has_memory = any(one.device.accelerator.memory_mib is not None for one in view.devices)
    has_stats = any(one.stats is not None for one in view.devices)
    has_users = has_source(view.sources) or any(one.users for one in view.devices)
    shown = (True, True, True, has_memory or has_stats, has_stats, has_users)
    return tuple(place for place, is_shown in enumerate(shown) if is_shown)


def _chosen(row: Row, columns: tuple[int, ...]) -> Row:
    """Return the cells of ROW in COLUMNS."""
    return tuple(row[place] for place in columns)


def has_source(sources: tuple[DeviceUserSource, ...]) -> bool:
    """Return whether one of SOURCES reports users."""
    return any(source.state == "responded" for source in sources)


def _by_gpu(views: Iterable[DeviceView]) -> Iterator[list[DeviceView]]:
    """Yield a list for each GPU: the GPU, then its partitions."""
    group: list[DeviceView] = []
    for one in views:
        if one.device.partition is None and group:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _group(view: PageView, members: list[DeviceView]) -> Iterator[Row]:
    whole, *parts = members
    yield _whole(view, whole, len(parts))
    for _, alike in groupby(parts, key=_likeness):
        yield _parts(view, list(alike))


def _likeness(one: DeviceView) -> tuple[object, ...]:
    """Return the facts that are equal in a row. A partition with users or own causes has a separate row."""
    part = one.device.partition
    assert part is not None  # noqa: S101 - only called for a partition
    own = tuple(cause.cause for cause in one.device.own_causes)
    same = (part.profile, part.usable, part.problem, one.device.health, own, part.memory_mib)
    return (*same, one.users, part.label if one.users or own else "")


def _whole(view: PageView, one: DeviceView, parts: int) -> Row:
    device, gpu = one.device, one.device.accelerator
    address, uuid = (each if each not in device.name else "" for each in (gpu.address, gpu.uuid or ""))
    name = element("span", one.label or device.name, class_="name")
    # A split GPU has a CDI name only if a profile also offers the whole GPU.
    usual = [code(device.name)] if one.label and (device.names or not gpu.partitioned) else []
    node = "NUMA node unknown" if gpu.numa_node is None else f"NUMA node {gpu.numa_node}"
    split = f"split into {parts}" if parts else "split, without partitions" if gpu.partitioned else ""
    return (
        lines(name, joined([*usual, *filter(None, [_soft(address)])], " "), _soft(uuid)),
        lines(gpu.model, _soft(node), _soft(split)),
        _health(view, one),
        _memory([one], gpu.memory_mib, is_split=gpu.partitioned),
        NOTHING if gpu.partitioned and one.stats is None else _load(one.stats),
        _users(view, one) if not gpu.partitioned or one.users else _soft("see its partitions"),
    )


def _parts(view: PageView, alike: list[DeviceView]) -> Row:
    first, last = alike[0], alike[-1]
    part = first.device.partition
    assert part is not None  # noqa: S101 - see _likeness
    names = [code(first.device.name)]
    if len(alike) > 1:
        names += [_soft("to"), code(last.device.name.rpartition("=")[2])]
    return (
        joined(names, " "),
        f"{len(alike)}x {part.profile}" if len(alike) > 1 else part.profile,
        _health(view, first),
        _memory(alike, part.memory_mib, is_split=False),
        _load(first.stats) if len(alike) == 1 else NOTHING,
        _users(view, first),
    )


def _health(view: PageView, one: DeviceView) -> Html:
    device = one.device
    part = device.partition
    problem = part.problem if part is not None and part.problem else device.accelerator.problem
    if not device.usable:
        return lines(state("bad", "left out"), _soft(problem))
    word = state(_TONES[device.health], device.health)
    if part is not None and device.causes and not device.own_causes:
        return lines(word, _soft("like its GPU"))
    return lines(word, *(_cause(cause.cause, cause.since, view.at_s) for cause in device.own_causes))


def _cause(cause: str, since: str, now_s: float) -> Html:
    return element("span", cause, " for ", age(seconds(since), now_s), class_="cause")


def _memory(alike: list[DeviceView], size_mib: int | None, *, is_split: bool) -> str:
    """Return the used memory of the devices in the list ALIKE; for several devices, the highest use."""
    known = [one.stats for one in alike if one.stats is not None]
    totals = [each.memory_total for each in known if each.memory_total is not None]
    size = size_mib << 20 if size_mib is not None else max(totals, default=None)
    used = [each.memory_used for each in known if each.memory_used is not None]
    if is_split and not used:
        return NOTHING if size is None else size_of(size)
    most = amount(max(used, default=None), size)
    if len(alike) == 1 or size is None:
        return most
    return joined(["each at most ", most]) if used else joined([size_of(size), " each"])


def _load(stats: DeviceStats | None) -> Html:
    if stats is None:
        return UNKNOWN
    if stats.problem:
        return _soft(stats.problem)
    parts = [
        element("span", f"{number:.0f} {unit}", class_="soft stat")
        for number, unit in ((stats.temperature, "°C"), (stats.power, "W"))
        if number is not None
    ]
    if stats.utilization is None:
        return joined(parts, " ") or UNKNOWN
    return joined([f"{stats.utilization:.0f} %", bar(stats.utilization), joined(parts, " ")])


def _users(view: PageView, one: DeviceView) -> Html:
    if one.users:
        shown = one.users[:_MAX_USERS]
        more = len(one.users) - len(shown)
        rest = [f"and {more} more"] if more else []
        return lines(*(joined([each.name, " ", _soft(f"({each.source})")]) for each in shown), *rest)
    if not one.device.usable:
        return NOTHING
    return _soft("none known") if has_source(view.sources) else UNKNOWN


def _sources_note(sources: tuple[DeviceUserSource, ...]) -> Html:
    """Return a note with the sources that report users, and the sources that did not respond."""
    responded = [source.name for source in sources if source.state == "responded"]
    others = [
        f"{source.name}: {_SOURCES[source.state]}{f' ({source.detail})' if source.detail else ''}"
        for source in sources
        if source.state != "responded"
    ]
    if not responded:
        text = "No source reports the users of devices."
    else:
        text = f"Users are according to {', '.join(responded)}; other users are not visible."
    return note(text, *([f" {'; '.join(others)}."] if others else []))


def _soft(text: str) -> Html:
    return element("span", text, class_="soft") if text else NOTHING
