"""The devices: a row for each GPU, below it its partitions, those that are alike and free together."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from cdigen.daemon.page.html import NOTHING, Html, element, joined
from cdigen.daemon.page.view import is_offered
from cdigen.daemon.page.words import (
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
from cdigen.model.ages import seconds
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.daemon.page.view import DeviceView, HolderSource, PageView
    from cdigen.daemon.page.words import Row, Tone
    from cdigen.model.figures import DeviceFigures

_HEADER = ("Device", "Model", "Health", "Memory", "Load", "Who has it")
_TONES: dict[str, Tone] = {"healthy": "good", "unhealthy": "bad", "unknown": "none"}
# So many holders of a device are shown.
_HOLDERS = 8
_NAMELESS = note(
    "Who it is, and who was refused, is not told at this port, which every user of the host can ask. ",
    code("curl --unix-socket /run/cdigen/http.sock http://localhost/page.json"),
    " tells it to root, and ",
    code("page: {names_on_port: true}"),
    " to all.",
)
_SOURCES = {"asked": "", "off": "not asked", "absent": "not here", "silent": "no answer"}


@frozen
class Counts:
    """How many devices there are for containers, how many of them are healthy, and held.

    ``held`` is None where nobody tells.
    """

    every: int
    healthy: int
    unhealthy: int
    held: int | None


def counts(view: PageView) -> Counts:
    """Return the counts of VIEW; a GPU that is split counts as its partitions."""
    offered = [one for one in view.devices if is_offered(one.device)]
    return Counts(
        every=len(offered),
        healthy=sum(one.device.health == "healthy" for one in offered),
        unhealthy=sum(one.device.health == "unhealthy" for one in offered),
        held=sum(bool(one.holders) for one in offered) if _is_answered(view.sources) else None,
    )


def devices(view: PageView) -> Html:
    """Return the section of devices."""
    if not view.devices:
        return section("devices", "Devices", element("p", "This host has no device for containers."))
    repeated = _repeated(view)
    view = _without(view, repeated)
    columns = _columns(view)
    groups = ([_chosen(row, columns) for row in _group(view, members)] for members in _by_gpu(view.devices))
    header = _chosen(_HEADER, columns)
    notes = [_said_by(view.sources)]
    if view.is_nameless:
        notes.append(_NAMELESS)
    problems = dict.fromkeys((*filter(None, [view.figures_problem]), *repeated))
    if problems:
        notes.append(note("Memory and load are unknown: ", "; ".join(problems)))
    return section("devices", "Devices", table("Devices", header, groups, look="devices"), *notes)


def _repeated(view: PageView) -> tuple[str, ...]:
    """Return why several devices have no figures, each reason once: below the table, not in each row."""
    told = Counter((one.device.vendor, one.figures.problem) for one in view.devices if one.figures)
    of_vendor = Counter(one.device.vendor for one in view.devices if one.figures)
    # What is said of some alone stays with them: the others have figures.
    common = (text for (vendor, text), count in told.items() if 1 < count == of_vendor[vendor])
    return tuple(dict.fromkeys(filter(None, common)))


def _without(view: PageView, problems: tuple[str, ...]) -> PageView:
    """Return VIEW without the figures of devices that have none because of one of PROBLEMS."""
    return replace(
        view,
        devices=tuple(
            replace(one, figures=None) if one.figures and one.figures.problem in problems else one
            for one in view.devices
        ),
    )


def _columns(view: PageView) -> tuple[int, ...]:
    """Return the columns of which something is known; notes say what is not."""
    has_memory = any(one.device.accelerator.memory_mib is not None for one in view.devices)
    has_figures = any(one.figures is not None for one in view.devices)
    has_holders = _is_answered(view.sources) or any(one.holders for one in view.devices)
    shown = (True, True, True, has_memory or has_figures, has_figures, has_holders)
    return tuple(place for place, is_shown in enumerate(shown) if is_shown)


def _chosen(row: Row, columns: tuple[int, ...]) -> Row:
    """Return the cells of ROW that are in COLUMNS."""
    return tuple(row[place] for place in columns)


def _is_answered(sources: tuple[HolderSource, ...]) -> bool:
    return any(source.state == "asked" for source in sources)


def _by_gpu(views: Iterable[DeviceView]) -> Iterator[list[DeviceView]]:
    """Yield each GPU with its partitions."""
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
    """Return what partitions have in common that share a row; one that somebody has is like no other."""
    part = one.device.partition
    assert part is not None  # noqa: S101 - of a partition alone
    own = tuple(cause.cause for cause in one.device.own_causes)
    same = (part.profile, part.usable, part.problem, one.device.health, own, part.memory_mib)
    return (*same, one.holders, part.label if one.holders or own else "")


def _whole(view: PageView, one: DeviceView, parts: int) -> Row:
    device, gpu = one.device, one.device.accelerator
    address, uuid = (each if each not in device.name else "" for each in (gpu.address, gpu.uuid or ""))
    name = element("span", one.label or device.name, class_="name")
    usual = [code(device.name)] if one.label else []
    node = "NUMA node unknown" if gpu.numa_node is None else f"NUMA node {gpu.numa_node}"
    split = f"split into {parts}" if parts else "split, without partitions" if gpu.partitioned else ""
    return (
        lines(name, joined([*usual, *filter(None, [_soft(address)])], " "), _soft(uuid)),
        lines(gpu.model, _soft(node), _soft(split)),
        _health(view, one),
        _memory([one], gpu.memory_mib, is_split=gpu.partitioned),
        NOTHING if gpu.partitioned and one.figures is None else _load(one.figures),
        _held(view, one) if not gpu.partitioned or one.holders else _soft("see its partitions"),
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
        _load(first.figures) if len(alike) == 1 else NOTHING,
        _held(view, first),
    )


def _health(view: PageView, one: DeviceView) -> Html:
    device = one.device
    part = device.partition
    problem = part.problem if part is not None and part.problem else device.accelerator.problem
    if not device.usable:
        return lines(state("bad", "left out"), _soft(problem))
    word = state(_TONES[device.health], device.health)
    if part is not None and device.causes and not device.own_causes:
        return lines(word, _soft("as its GPU is"))
    return lines(word, *(_cause(cause.cause, cause.since, view.at_s) for cause in device.own_causes))


def _cause(cause: str, since: str, now_s: float) -> Html:
    return element("span", cause, " for ", age(seconds(since), now_s), class_="cause")


def _memory(alike: list[DeviceView], size_mib: int | None, *, is_split: bool) -> Html:
    """Return what is used of the memory of ALIKE devices: of several, by the one that uses most."""
    known = [one.figures for one in alike if one.figures is not None]
    totals = [each.memory_total for each in known if each.memory_total is not None]
    size = size_mib << 20 if size_mib is not None else max(totals, default=None)
    used = [each.memory_used for each in known if each.memory_used is not None]
    if is_split and not used:
        return NOTHING if size is None else size_of(size)
    told = amount(max(used, default=None), size)
    if len(alike) == 1 or size is None:
        return told
    return joined(["each at most ", told]) if used else joined([size_of(size), " each"])


def _load(figures: DeviceFigures | None) -> Html:
    if figures is None:
        return UNKNOWN
    if figures.problem:
        return _soft(figures.problem)
    parts = [
        element("span", f"{number:.0f} {unit}", class_="soft figure")
        for number, unit in ((figures.temperature, "°C"), (figures.power, "W"))
        if number is not None
    ]
    if figures.utilization is None:
        return joined(parts, " ") or UNKNOWN
    return joined([f"{figures.utilization:.0f} %", bar(figures.utilization), joined(parts, " ")])


def _held(view: PageView, one: DeviceView) -> Html:
    if one.holders:
        shown = one.holders[:_HOLDERS]
        more = len(one.holders) - len(shown)
        rest = [f"and {more} more"] if more else []
        return lines(*(joined([each.name, " ", _soft(f"({each.said_by})")]) for each in shown), *rest)
    if not one.device.usable:
        return NOTHING
    return _soft("nobody known") if _is_answered(view.sources) else UNKNOWN


def _said_by(sources: tuple[HolderSource, ...]) -> Html:
    """Return by whose word somebody has a device, and who was not heard."""
    heard = [source.name for source in sources if source.state == "asked"]
    unheard = [
        f"{source.name}: {_SOURCES[source.state]}{f' ({source.detail})' if source.detail else ''}"
        for source in sources
        if source.state != "asked"
    ]
    if not heard:
        told = "Nobody tells who has which device."
    else:
        told = f"Who has it is the word of {', '.join(heard)}; what others started is not seen."
    return note(told, *([f" {'; '.join(unheard)}."] if unheard else []))


def _soft(text: str) -> Html:
    return element("span", text, class_="soft") if text else NOTHING
