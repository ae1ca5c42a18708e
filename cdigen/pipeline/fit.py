"""Make a draft fit what a runtime's CDI library accepts: drop what may be dropped, refuse the rest.

A version or field that a library does not know makes it refuse the whole file (docs/cdi.md,
"Versions"). ``fit`` comes before ``build``, ``refuse_newer`` after it. A feature is dropped if every device
stays usable, and a finding names who is affected; if a device would be lost or another one given, the spec is
refused. Without a target the spec stays at 0.5.0, which only the oldest runtimes cannot read.
"""

from __future__ import annotations

from cdigen.cdi.version import is_newer, release_order
from cdigen.model.errors import SpecError
from cdigen.model.findings import Finding
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cdigen.model.cdi import ContainerEdits, Draft
    from cdigen.runtimes.targets import Target

    Fitted = tuple[Draft, tuple[Finding, ...]]

# Rules that ``fit`` reports once, where ``check`` would report each of a hundred mounts.
REPORTED_BY_FIT = frozenset(("mount-type-missing",))

_BIND_OPTIONS = frozenset(("bind", "rbind"))
_DIGITS = frozenset("0123456789")


def fit(draft: Draft, target: Target | None) -> Fitted:
    """Return the part of DRAFT that TARGET accepts, and a warning for each dropped feature.

    Pure. Raises SpecError, naming every unsupported feature, if the rest would not give the same devices.
    Without a target only the additional groups are dropped.
    """
    if target is None:
        return _drop_gids(draft, target)
    _refuse(draft, target)
    findings = unknown_releases(target)
    for version, drop in _DROPS:
        if is_newer(version, target.newest):
            draft, dropped = drop(draft, target)
            findings += dropped
    return draft, (*findings, *_forgotten_gids(draft, target))


def unknown_releases(target: Target) -> tuple[Finding, ...]:
    """Return a warning for each release in TARGET that cdigen does not know. Pure."""
    return tuple(
        Finding(
            severity="warning",
            rule="target-unknown",
            path=target.name,
            message=doubt,
            hint="name the release that is installed, or see whether a newer cdigen knows it",
        )
        for doubt in target.doubts
    )


def refuse_newer(document: dict[str, object], target: Target) -> None:
    """Raise SpecError where DOCUMENT, as built, declares a newer version than TARGET knows."""
    version = str(document["cdiVersion"])
    if is_newer(version, target.newest):
        raise SpecError(
            f"the spec of {document['kind']} needs cdiVersion {version}, and {_limit(target)}",
            hint="this is a defect of cdigen: report it with the output of 'cdigen inspect --json'",
            kind="target",
        )


# What is refused. Each generator yields at most one unsupported feature, and an alternative.


def _refuse(draft: Draft, target: Target) -> None:
    found = [
        (version, what, instead)
        for version, obstacles in _OBSTACLES
        if is_newer(version, target.newest) or (obstacles is _dotted_class and not target.dots_in_class)
        for what, instead in obstacles(draft)
    ]
    if found:
        releases = _first_releases(max((version for version, _, _ in found), key=release_order))
        raise SpecError(
            f"the spec of {draft.kind} does not fit: {_limit(target)}, but "
            + "; ".join(what for _, what, _ in found),
            hint=f"{'; '.join(instead for _, _, instead in found)}; or a newer runtime ({releases})",
            kind="target",
        )


def _dotted_class(draft: Draft) -> Iterator[tuple[str, str]]:
    class_ = draft.kind.partition("/")[2]
    if "." in class_:
        yield f"the dot in the class {class_} needs 0.6.0", "use a class without dots"


def _host_paths(draft: Draft) -> Iterator[tuple[str, str]]:
    paths = {
        node.path: node.host_path
        for edits in _all_edits(draft)
        for node in edits.device_nodes
        if node.host_path
    }
    if paths:
        path, host_path = next(iter(paths.items()))
        what = f"hostPath needs 0.5.0 ({path} is {host_path} on the host{_more(len(paths) - 1)})"
        yield what, "put the nodes where containers look for them, without a link or another dev root"


def _nameless(draft: Draft) -> Iterator[tuple[str, str]]:
    others = _letter_names(draft)
    names = [
        device.name
        for device in draft.devices
        if _begins_with_digit(device.name) and device.edits not in others
    ]
    if names:
        what = (
            "a device name that begins with a digit needs 0.5.0 "
            f"({names[0]} has no other name{_more(len(names) - 1)})"
        )
        yield what, "offer the device under a name that begins with a letter as well, such as its UUID"


def _other_mounts(draft: Draft) -> Iterator[tuple[str, str]]:
    types = sorted({mount.type for edits in _all_edits(draft) for mount in edits.mounts} - {"", "bind"})
    if types:
        yield f"the type of a mount needs 0.4.0 ({', '.join(types)})", "use bind mounts only"


_OBSTACLES: tuple[tuple[str, Callable[[Draft], Iterator[tuple[str, str]]]], ...] = (
    ("0.6.0", _dotted_class),
    ("0.5.0", _host_paths),
    ("0.5.0", _nameless),
    ("0.4.0", _other_mounts),
)


# What is dropped, with a finding.


def _drop_gids(draft: Draft, target: Target | None) -> Fitted:
    gids = _gids(draft)
    if not gids:
        return draft, ()
    why = _limit(target) if target else "without --target a spec stays at 0.5.0"
    releases = f"{_first_releases('0.7.0')} or later"
    finding = Finding(
        # Without a target, only root's containers are promised access.
        severity="warning" if target else "info",
        rule="target-dropped-gids",
        path=draft.kind,
        message=f"{_closed_nodes(draft, gids)}; the spec does not give them to containers, since "
        f"additionalGids needs cdiVersion 0.7.0, and {why}",
        hint=f"a rootless user has to be in {_groups(gids)} and to use 'podman run --group-add keep-groups' "
        f"with crun; another user than root in a container needs '{_options(gids)}'; "
        + (f"without loss: {releases}" if target else f"--target keeps them for {releases}"),
    )
    return _changed(draft, lambda edits: replace(edits, additional_gids=())), (finding,)


def _drop_names(draft: Draft, target: Target) -> Fitted:
    others = _letter_names(draft)
    dropped = [device for device in draft.devices if _begins_with_digit(device.name)]
    kept = tuple(device for device in draft.devices if not _begins_with_digit(device.name))
    findings = tuple(
        Finding(
            severity="warning",
            rule="target-dropped-name",
            path=f"{draft.kind}={device.name}",
            message=f"the name {device.name} is left out: one that begins with a digit needs cdiVersion "
            f"0.5.0, and {_limit(target)}",
            hint=f"ask for {draft.kind}={others[device.edits]}, the same device",
        )
        for device in dropped
    )
    return replace(draft, devices=kept), findings


def _drop_mount_types(draft: Draft, target: Target) -> Fitted:
    count = sum(bool(mount.type) for edits in _all_edits(draft) for mount in edits.mounts)
    if not count:
        return draft, ()
    finding = Finding(
        severity="warning",
        rule="target-dropped-mount-type",
        path=draft.kind,
        message=f"the type of {count} mounts is left out: it needs cdiVersion 0.4.0, and {_limit(target)}",
        hint="use runc for pods with a user namespace, where crun crashes without it (crun issue 1948)",
    )
    return _changed(draft, _without_mount_types), (finding,)


_DROPS: tuple[tuple[str, Callable[[Draft, Target], Fitted]], ...] = (
    ("0.7.0", _drop_gids),
    ("0.5.0", _drop_names),
    ("0.4.0", _drop_mount_types),
)


def _without_mount_types(edits: ContainerEdits) -> ContainerEdits:
    """Return EDITS with mounts that are bind mounts by an option only, as runc wants it (CDI 285)."""
    mounts = [
        replace(
            mount,
            type="",
            options=(*mount.options, *(() if _BIND_OPTIONS.intersection(mount.options) else ("bind",))),
        )
        for mount in edits.mounts
    ]
    return replace(edits, mounts=tuple(mounts))


def _forgotten_gids(draft: Draft, target: Target) -> tuple[Finding, ...]:
    """Report that groups stay in the spec, for a runtime that does not pass them on."""
    gids = _gids(draft)
    if not gids or not target.forgets_gids:
        return ()
    return (
        Finding(
            severity="warning",
            rule="target-forgets-gids",
            path=draft.kind,
            message=f"{_closed_nodes(draft, gids)}; {target.forgets_gids} reads them in the spec and then "
            "starts the process without them (moby PR 52579)",
            hint=f"a user other than root in a container needs '{_options(gids)}' until docker-29.5",
        ),
    )


# Parts of the messages.


def _closed_nodes(draft: Draft, gids: tuple[int, ...]) -> str:
    nodes = (node for edits in _all_edits(draft) for node in edits.device_nodes)
    paths = sorted({node.path for node in nodes if node.gid in gids})
    what = f"{paths[0]}{_more(len(paths) - 1)}" if paths else "what it gives"
    return f"the host lets only root and {_groups(gids)} open {what}"


def _options(gids: tuple[int, ...]) -> str:
    return " ".join(f"--group-add {gid}" for gid in gids)


def _groups(gids: tuple[int, ...]) -> str:
    return f"{'groups' if len(gids) > 1 else 'group'} {', '.join(map(str, gids))}"


def _limit(target: Target) -> str:
    return f"{target.name} (CDI library {target.library}) knows no more than {target.newest}"


def _first_releases(version: str) -> str:
    from cdigen.runtimes.releases import first_releases_with  # noqa: PLC0415 - mostly all fits

    return ", ".join(first_releases_with(version))


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


# How a draft is read and changed.


def _begins_with_digit(name: str) -> bool:
    return name[:1] in _DIGITS


def _letter_names(draft: Draft) -> dict[ContainerEdits, str]:
    """Return edits -> the first name beginning with a letter under which DRAFT offers them."""
    found: dict[ContainerEdits, str] = {}
    for device in draft.devices:
        if not _begins_with_digit(device.name):
            found.setdefault(device.edits, device.name)
    return found


def _gids(draft: Draft) -> tuple[int, ...]:
    return tuple(sorted({gid for edits in _all_edits(draft) for gid in edits.additional_gids}))


def _all_edits(draft: Draft) -> Iterable[ContainerEdits]:
    return (draft.edits, *(device.edits for device in draft.devices))


def _changed(draft: Draft, change: Callable[[ContainerEdits], ContainerEdits]) -> Draft:
    devices = [replace(device, edits=change(device.edits)) for device in draft.devices]
    return replace(draft, edits=change(draft.edits), devices=tuple(devices))
