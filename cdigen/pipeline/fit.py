"""Fit a draft to the CDI library of a runtime: drop optional features, or reject the draft.

If a file has an unsupported version or field, a library rejects the whole file
(docs/reference/cdi-loaders.md, "Versions"). cdigen calls ``fit`` before ``build``, and ``refuse_newer`` after
``build``. cdigen drops a feature if all devices stay usable without the feature. Then a finding names the
affected users. cdigen rejects the spec if a name would resolve to no device or to another device. If no
target is set, the spec stays at version 0.5.0. Only the oldest runtimes cannot read this version.
"""

from __future__ import annotations

from cdigen.cdi.version import is_newer, release_order
from cdigen.model.errors import SpecError
from cdigen.model.findings import Finding
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cdigen.model.cdi import ContainerEdits, DeviceNode, Draft
    from cdigen.runtimes.targets import Target

    Fitted = tuple[Draft, tuple[Finding, ...]]

# Rules that ``fit`` reports once for all mounts. The module ``check`` would report them for each mount.
REPORTED_BY_FIT = frozenset(("mount-type-missing",))

_BIND_OPTIONS = frozenset(("bind", "rbind"))
_DIGITS = frozenset("0123456789")


def fit(draft: Draft, target: Target | None) -> Fitted:
    """Return DRAFT without the features that TARGET does not support, and a warning for each dropped feature.

    Pure. Raises SpecError if the devices would change without a feature. The error names all unsupported
    features. If TARGET is None, the function drops only the additional groups.
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
    """Return a warning for each release in TARGET that cdigen's tables do not have. Pure."""
    return tuple(
        Finding(
            severity="warning",
            rule="target-unknown",
            path=target.name,
            message=f"{doubt}; cdigen uses the last known release before this release",
            hint="name the installed release, or install a cdigen version that lists this release",
        )
        for doubt in target.doubts
    )


def refuse_newer(document: dict[str, object], target: Target) -> None:
    """Raise SpecError if DOCUMENT declares a newer version than TARGET supports."""
    version = str(document["cdiVersion"])
    if is_newer(version, target.newest):
        raise SpecError(
            f"the spec of {document['kind']} needs cdiVersion {version}, and {_limit(target)}",
            hint="this is a defect of cdigen: report it with the output of 'cdigen inspect --json'",
            kind="target",
        )


# Reasons to reject a draft. Each generator yields at most one unsupported feature with an alternative.


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
            hint=f"{'; '.join(instead for _, _, instead in found)}; or use a newer runtime ({releases})",
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
        for node in _own_nodes(edits)
        if node.host_path
    }
    if paths:
        path, host_path = next(iter(paths.items()))
        what = f"hostPath needs 0.5.0 ({path} is {host_path} on the host{_more(len(paths) - 1)})"
        yield what, "create the nodes on the host at the paths in containers, without links and --dev-root"


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
        yield what, "give the device a second name that begins with a letter, such as its UUID"


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


# Features that are dropped, with a finding.


def _drop_gids(draft: Draft, target: Target | None) -> Fitted:
    gids = _gids(draft)
    if not gids:
        return draft, ()
    limit = _limit(target) if target else "without a target a spec stays at 0.5.0"
    releases = f"{_first_releases('0.7.0')} or later"
    finding = Finding(
        # If no target is set, cdigen guarantees access only for containers of root.
        severity="warning" if target else "info",
        rule="target-dropped-gids",
        path=draft.kind,
        message=f"{_closed_nodes(draft, gids)}; the spec does not add these groups to containers: "
        f"additionalGids needs cdiVersion 0.7.0, and {limit}",
        hint=(f"use {releases}" if target else f"set 'target: [{_oldest('0.7.0')}]' for {releases}")
        + f", or start containers with '{_options(gids)}'; rootless containers need crun, a user in "
        f"{_groups(gids)} and 'podman run --group-add keep-groups'",
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
            message=f"the name {device.name} is left out: a name that begins with a digit needs cdiVersion "
            f"0.5.0, and {_limit(target)}",
            hint=f"use {draft.kind}={others[device.edits]}, the same device",
        )
        for device in dropped
    )
    return replace(draft, devices=kept), findings


def _drop_node_names(draft: Draft, target: Target) -> Fitted:
    """Drop the further paths of nodes that a device also has at the host's path, such as udev's names."""
    count = sum(len(edits.device_nodes) - len(_own_nodes(edits)) for edits in _all_edits(draft))
    if not count:
        return draft, ()
    finding = Finding(
        severity="info",
        rule="target-dropped-node-name",
        path=draft.kind,
        message=f"{count} further names of device nodes are left out (/dev/dri/by-path): hostPath needs "
        f"cdiVersion 0.5.0, and {_limit(target)}",
    )
    return _changed(draft, lambda edits: replace(edits, device_nodes=_own_nodes(edits))), (finding,)


def _own_nodes(edits: ContainerEdits) -> tuple[DeviceNode, ...]:
    """Return the nodes of EDITS except further paths of a node that has the host's path."""
    paths = {node.path for node in edits.device_nodes}
    return tuple(node for node in edits.device_nodes if not node.host_path or node.host_path not in paths)


def _drop_mount_types(draft: Draft, target: Target) -> Fitted:
    count = sum(bool(mount.type) for edits in _all_edits(draft) for mount in edits.mounts)
    if not count:
        return draft, ()
    finding = Finding(
        severity="warning",
        rule="target-dropped-mount-type",
        path=draft.kind,
        message=f"the type of {count} mounts is left out: it needs cdiVersion 0.4.0, and {_limit(target)}",
        hint="use runc for pods with a user namespace: crun crashes without the type (crun issue 1948)",
    )
    return _changed(draft, _without_mount_types), (finding,)


_DROPS: tuple[tuple[str, Callable[[Draft, Target], Fitted]], ...] = (
    ("0.7.0", _drop_gids),
    ("0.5.0", _drop_node_names),
    ("0.5.0", _drop_names),
    ("0.4.0", _drop_mount_types),
)


def _without_mount_types(edits: ContainerEdits) -> ContainerEdits:
    """Return EDITS without mount types.

    Each mount has the option bind or rbind, which runc requires (CDI 285).
    """
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
    """Return a finding if the spec has groups, but the runtime does not apply the groups."""
    gids = _gids(draft)
    if not gids or not target.forgets_gids:
        return ()
    return (
        Finding(
            severity="warning",
            rule="target-forgets-gids",
            path=draft.kind,
            message=f"{_closed_nodes(draft, gids)}; {target.forgets_gids} reads these groups in the spec and "
            "starts the process without them (moby PR 52579)",
            hint=f"a user other than root in a container needs '{_options(gids)}' until docker-29.5",
        ),
    )


# Parts of the messages.


def _closed_nodes(draft: Draft, gids: tuple[int, ...]) -> str:
    nodes = (node for edits in _all_edits(draft) for node in edits.device_nodes)
    paths = sorted({node.path for node in nodes if node.gid in gids})
    nodes_text = f"{paths[0]}{_more(len(paths) - 1)}" if paths else "its nodes"
    return f"only root and {_groups(gids)} can open {nodes_text}"


def _options(gids: tuple[int, ...]) -> str:
    return " ".join(f"--group-add {gid}" for gid in gids)


def _groups(gids: tuple[int, ...]) -> str:
    return f"{'groups' if len(gids) > 1 else 'group'} {', '.join(map(str, gids))}"


def _limit(target: Target) -> str:
    return f"{target.name} (CDI library {target.library}) supports only versions up to {target.newest}"


def _first_releases(version: str) -> str:
    from cdigen.runtimes.releases import first_releases_with  # noqa: PLC0415 - most drafts fit

    return ", ".join(first_releases_with(version))


def _oldest(version: str) -> str:
    """Return a target that supports VERSION."""
    return _first_releases(version).partition(",")[0]


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


# Functions that read and change a draft.


def _begins_with_digit(name: str) -> bool:
    return name[:1] in _DIGITS


def _letter_names(draft: Draft) -> dict[ContainerEdits, str]:
    """Return edits -> the first device name in DRAFT that begins with a letter."""
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
