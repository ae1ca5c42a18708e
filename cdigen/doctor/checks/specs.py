"""Checks of the specs: whether they exist, can be generated, fit the host and are safe."""

from __future__ import annotations

import posixpath

from cdigen.cdi.compare import compare
from cdigen.cdi.rules.hostcheck import NODE, NUMBERS, check_host
from cdigen.cdi.rules.mount_conflicts import MountConflicts
from cdigen.cdi.version import is_newer
from cdigen.doctor.checks.driver import CAUSES
from cdigen.doctor.checks.loading import LOADING, NUMBERS_SINCE, problems
from cdigen.doctor.commands import give_to_root, move_aside, open_to_all, run_cdigen, write_specs
from cdigen.doctor.near_misses import nearest
from cdigen.doctor.remedy_safety import is_of_user, may_change, owners, ways
from cdigen.doctor.result import Topic, listed, with_hint
from cdigen.doctor.spec_documents import is_own, own_file, read_document
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.model.names import natural_key
from cdigen.pipeline.device_names import known_devices
from cdigen.vendors import registry
from cdigen.vendors.component_kinds import component_of
from cdigen.vendors.exclusion import exclusion_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult, Remedy
    from cdigen.doctor.spec_documents import ExaminedSpec
    from cdigen.model.findings import Finding

TOPIC = Topic(name="specs")
FILES, FRESH, TRUST, MAKING = "spec-files", "spec-fresh", "spec-trust", "spec-made"
MISSING, COVERED = "spec-missing", "mounts-covered"
READABLE, RULES = "spec-readable", "spec-rules"
# Rule -> the checks that explain the faults, if all faults of a spec's paths have this rule.
_NODES = ("node-missing", "node-wrong")
_BY_RULE = {NODE: _NODES, NUMBERS: _NODES, "host-hook-wrong": ("hook-present",)}
# Findings on content that cdigen omits because of the configured target. Every device stays usable.
_BY_TARGET = frozenset(("target-dropped-name", "target-dropped-mount-type"))
_FEW = 3


def _missing(context: Context) -> Iterator[CheckResult]:
    """Report the host's kinds that have no spec, and the requested names that no spec defines."""
    present = {file.kind for view in context.views for file in view.files if file.is_known}
    requested = context.request.devices
    lost = [
        kind
        for kind in context.offered_kinds
        if kind not in present and (not requested or kind in context.kinds)
    ]
    if lost:
        text = f"no spec of {', '.join(lost)} in {' or '.join(context.configuration.spec_dirs)}"
        is_error = bool(set(lost) & context.kinds)
        own = {own_file(context, kind) for kind in lost}
        ignored = {problem.path for problem in problems(context)}
        is_ignored = any({path, posixpath.dirname(path)} & ignored for path in own)
        because = LOADING if is_ignored else ()
        yield TOPIC.failed(MISSING, text, write_specs(context), because, is_error=is_error)
        return
    if not context.products and not present:
        text = f"no spec in {' or '.join(context.configuration.spec_dirs)}, and none can be generated now"
        yield TOPIC.error(MISSING, text, because=CAUSES)
        return
    unknown = [name for name in requested if name not in context.defined | context.offered]
    yield from (_unknown(context, name) for name in unknown)
    if not unknown:
        yield TOPIC.passed(MISSING, f"specs exist of {', '.join(sorted(present))}")


def _unknown(context: Context, name: str) -> CheckResult:
    known = sorted(context.offered or context.defined, key=natural_key)
    kind, _, device = name.partition("=")
    devices = known_devices(context.inventories, context.request.generate_options.profiles)
    excluded = next((one.excluded for one in devices if one.excluded and name in {one.name, *one.names}), "")
    if excluded:
        text = f"{shown(name)} is {exclusion_problem(excluded)}: remove this row, or request another device"
        return TOPIC.error("device-unknown", text)
    target = context.request.generate_options.target_of(kind)
    if target is not None and device[:1].isdigit() and is_newer(NUMBERS_SINCE, target.newest):
        text = (
            f"no spec can define {shown(name)} for {target.name}: a name that begins with a digit needs "
            f"cdiVersion {NUMBERS_SINCE}; this host has {listed(known) or 'no device'}"
        )
    else:
        text = f"this host has no device {shown(name)}; it has {listed(known) or 'no device'}"
        if component := component_of(kind):
            text += f"; {component.component}: {component.instead}"
        elif near := nearest(name, context.offered | context.defined):
            text += f"; the nearest name is {shown(near)}"
    listing = run_cdigen(context, "list", why="list the devices", as_root=False)
    return TOPIC.error("device-unknown", text, (listing,), because=CAUSES)


def _made(context: Context) -> Iterator[CheckResult]:
    """Report specs that cdigen cannot generate with its configuration."""
    reported = set()
    for kind, error in context.broken.items():
        if not _is_requested(context, kind):
            continue
        reported.add(error.message)
        text = f"spec of {kind}: cannot be generated: {error.message}; {error.hint}"
        yield TOPIC.error(MAKING, text, because=CAUSES)
    for product in context.products:
        if not _is_requested(context, product.kind):
            continue
        for finding in (one for one in product.findings if one not in _of_host(context)):
            if finding.rule in _BY_TARGET:
                yield TOPIC.passed(MAKING, with_hint(finding))
            elif finding.severity != "info" and finding.message not in reported:
                reported.add(finding.message)
                remedies = write_specs(context) if finding.rule == "view-unpublished" else ()
                yield TOPIC.warning(MAKING, with_hint(finding), remedies)
    if context.products and not reported:
        kinds = ", ".join(context.offered_kinds)
        yield TOPIC.passed(MAKING, f"{kinds}: can be generated on this host")


def _is_requested(context: Context, kind: str) -> bool:
    return context.concerns(registry.vendor_of(kind, context.request.vendors))


def _of_host(context: Context) -> frozenset[Finding]:
    return frozenset(finding for inventory in context.inventories.values() for finding in inventory.findings)


def _rules(context: Context) -> Iterator[CheckResult]:
    """Report specs that runtimes load although the specs violate rules of CDI; runc then fails.

    The CDI library of a runtime checks fewer rules than runc.
    """
    faulty = [spec for spec in context.specs if spec.faults]
    for spec in faulty:
        texts = [f"{fault.path}: {shown(fault.message)} [{fault.rule}]" for fault in spec.faults]
        broken = listed(texts, most=_FEW, separator="; ")
        text = f"{shown(spec.path)}: violates the rules of CDI ({broken}): containers do not start"
        yield TOPIC.error(RULES, text, _renew(context, spec))
    if context.specs and not faulty:
        yield TOPIC.passed(RULES, "the specs follow the rules of CDI")


def _coverings(context: Context) -> Iterator[CheckResult]:
    """Report pairs of kinds whose mounts conflict in a container that has devices of both kinds."""
    mount_conflicts = MountConflicts(context.host)
    used = {path for _, path in context.own_view.devices}
    read = [read_document(context, file.path) for file in context.own_view.files if file.path in used]
    documents = [document for document, faults in read if document is not None and not faults]
    conflicts = [found for document in documents for found in mount_conflicts.add(document)]
    for found in conflicts:
        yield TOPIC.warning(COVERED, f"{shown(found.message)}; {found.hint}")
    if len(documents) > 1 and not conflicts:
        yield TOPIC.passed(COVERED, "a container can have devices of any two kinds: no mounts conflict")


def _files(context: Context) -> Iterator[CheckResult]:
    """Report specs with missing files, nodes or hooks."""
    failed = False
    found = tuple(spec for spec in context.specs if not spec.faults)
    for spec in found:
        missing = check_host(spec.document, context.host)
        if not missing:
            continue
        failed = True
        texts = dict.fromkeys(finding.message for finding in missing)
        faults = listed(texts, most=_FEW, separator="; ")
        only = _only_rule(missing)
        what, effect = "paths that the host does not have", "containers do not start"
        if only == NUMBERS:
            what, effect = "other device numbers than on the host", "containers start without these devices"
        detail = f"{shown(spec.path)}: {what} ({faults})"
        # If cdigen can generate the kind, a new spec fixes the failure. Otherwise the causes must be fixed
        # first.
        offered = spec.kind in context.offered_kinds
        because = _BY_RULE.get(only, ()) if offered else CAUSES
        if spec.is_used:
            yield TOPIC.error(FILES, f"{detail}: {effect}", _renew(context, spec), because)
        else:
            yield TOPIC.warning(
                "spec-stale",
                f"{detail}; the spec is not in use, and would not work",
                move_aside(context, spec.path),
                because,
            )
    if found and not failed:
        yield TOPIC.passed(FILES, "all paths of the specs exist on the host")


def _only_rule(missing: tuple[Finding, ...]) -> str:
    names = {finding.rule for finding in missing}
    return names.pop() if len(names) == 1 else ""


def _renew(context: Context, spec: ExaminedSpec) -> tuple[Remedy, ...]:
    """Return the commands that replace SPEC by cdigen's own spec."""
    if spec.kind not in context.offered_kinds:
        return ()
    if is_own(context, spec):
        return write_specs(context)
    # If the file of another tool stayed, it could later override cdigen's spec.
    moved = move_aside(context, spec.path)
    return (*moved, *write_specs(context)) if moved else ()


def _fresh(context: Context) -> Iterator[CheckResult]:
    """Report specs of cdigen that differ from the specs that cdigen would generate now."""
    fresh = []
    for product in context.products:
        own = [spec for spec in context.specs if spec.kind == product.kind and is_own(context, spec)]
        for spec in own:
            changes = compare(spec.document, product.document)
            if not changes.any():
                fresh.append(product.kind)
                continue
            text = f"{shown(spec.path)}: outdated: {changes.summary()}"
            is_lost = any(f"{product.kind}={name}" in context.required for name in changes.added)
            because = (RULES, FILES, *CAUSES)
            yield TOPIC.failed(FRESH, text, write_specs(context), because, is_error=is_lost)
    if fresh:
        yield TOPIC.passed(FRESH, f"{', '.join(fresh)}: up to date")


def _trust(context: Context) -> Iterator[CheckResult]:
    """Report specs that users other than root may change; with mounts, these users can become root."""
    failed = set()
    for spec in context.specs:
        for path in ways(spec.path):
            try:
                real = context.host.resolve(path)
            except OSError:
                continue
            problem = untrusted(real, base=context.host.outer, owners=owners(context, spec.path))
            if not problem or path in failed:
                continue
            failed.add(path)
            text = f"{shown(spec.path)}: users who may change it can become root with mounts: {problem}"
            remedies = give_to_root(context.outer(real)) if may_change(context, real) else ()
            yield TOPIC.warning(TRUST, text, remedies)
            break
    if context.specs and not failed:
        yield TOPIC.passed(TRUST, "only root may change the specs")


def _readable(context: Context) -> Iterator[CheckResult]:
    """Report specs that not every user may read; a rootless podman reads specs as its user."""
    closed: dict[str, str] = {}
    for spec in context.specs:
        if is_of_user(context, spec.path):
            continue  # only containers of this user get devices from the spec
        folder = spec.path.rpartition("/")[0]
        try:
            if not context.host.stat(spec.path).st_mode & 0o004:
                closed[spec.path] = "a+r"
            if context.host.stat(folder).st_mode & 0o005 != 0o005:
                closed[folder] = "a+rx"
        except OSError:
            continue
    if not closed:
        if context.specs:
            yield TOPIC.passed(READABLE, "every user may read the specs")
        return
    names = ", ".join(map(shown, closed))
    text = f"{names}: not readable by every user: rootless containers cannot use these devices"
    has_rootless = not {"podman", "docker"}.isdisjoint(runtime.name for runtime in context.runtimes)
    if not context.user and (context.request.runtimes or not has_rootless):
        yield TOPIC.passed(READABLE, text)
        return
    opened = {context.host.resolve(path): mode for path, mode in closed.items() if may_change(context, path)}
    because = tuple(name for name in LOADING if "unreadable" in name)
    yield TOPIC.warning(READABLE, text, open_to_all(context, opened), because)


CHECKS = (_missing, _made, _rules, _coverings, _files, _fresh, _trust, _readable)
