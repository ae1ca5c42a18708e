"""Checks of what the specs say: that each can be made, holds on this host, and only root may change it."""

from __future__ import annotations

from cdigen.cdi.compare import compare
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.cdi.rules.mount_conflicts import MountConflicts
from cdigen.doctor.authority import is_users, may_change, owners, ways
from cdigen.doctor.commands import give_to_root, move_aside, open_to_all, write_specs
from cdigen.doctor.driver import CAUSES
from cdigen.doctor.loading import LOADING
from cdigen.doctor.result import Topic, listed, with_hint
from cdigen.doctor.spec_documents import own_file, read_document, was_ours
from cdigen.host.root import shown
from cdigen.host.trust import untrusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult, Remedy
    from cdigen.doctor.spec_documents import ExaminedSpec
    from cdigen.model.findings import Finding

TOPIC = Topic(name="specs")
FILES, FRESH, TRUST, MAKING = "spec-files", "spec-fresh", "spec-trust", "spec-made"
COVERED = "mounts-covered"
READABLE, RULES = "spec-readable", "spec-rules"
# What is wrong with a spec's paths, where all of them are of one sort -> the checks that look at these.
_BY_RULE = {"host-node-wrong": ("node-missing", "node-wrong"), "host-hook-wrong": ("hook-present",)}
_FEW = 3


def _made(context: Context) -> Iterator[CheckResult]:
    """Report specs that could not be made as the configuration asks."""
    said = set()
    for kind, error in context.broken.items():
        said.add(error.message)
        yield TOPIC.error(
            MAKING, f"the spec of {kind} cannot be made: {error.message}; {error.hint}", because=CAUSES
        )
    for product in context.products:
        own = [finding for finding in product.findings if finding not in _of_host(context)]
        for finding in own:
            if finding.severity != "info" and finding.message not in said:
                said.add(finding.message)
                remedies = write_specs(context) if finding.rule == "view-unpublished" else ()
                yield TOPIC.warning(MAKING, with_hint(finding), remedies)
    if context.products and not said:
        kinds = ", ".join(context.offered_kinds)
        yield TOPIC.good(MAKING, f"{kinds} can be made from this host")


def _of_host(context: Context) -> frozenset[Finding]:
    return frozenset(finding for inventory in context.inventories.values() for finding in inventory.findings)


def _rules(context: Context) -> Iterator[CheckResult]:
    """Report specs that runtimes load and then fail on: the library does not check all that runc needs."""
    faulty = [spec for spec in context.specs if spec.faults]
    for spec in faulty:
        texts = [f"{fault.path}: {shown(fault.message)} [{fault.rule}]" for fault in spec.faults]
        broken = listed(texts, most=_FEW, separator="; ")
        text = f"{shown(spec.path)} breaks the rules of CDI ({broken}): containers do not start"
        yield TOPIC.error(RULES, text, _renew(context, spec))
    if context.specs and not faulty:
        yield TOPIC.good(RULES, "the specs keep the rules of CDI")


def _coverings(context: Context) -> Iterator[CheckResult]:
    """Report the kinds, of any vendors, of which a container cannot have the files of both."""
    mount_conflicts = MountConflicts(context.host)
    used = {path for _, path in context.own_view.devices}
    read = [read_document(context, file.path) for file in context.own_view.files if file.path in used]
    documents = [document for document, faults in read if document is not None and not faults]
    said = [found for document in documents for found in mount_conflicts.add(document)]
    for found in said:
        yield TOPIC.warning(COVERED, f"{shown(found.message)}; {found.hint}")
    if len(documents) > 1 and not said:
        yield TOPIC.good(
            COVERED, "a container may have devices of any two kinds: none covers another's files"
        )


def _files(context: Context) -> Iterator[CheckResult]:
    """Report specs with files, nodes or hooks that the host does not have."""
    failed = False
    found = tuple(spec for spec in context.specs if not spec.faults)
    for spec in found:
        missing = check_host(spec.document, context.host)
        if not missing:
            continue
        failed = True
        texts = dict.fromkeys(finding.message for finding in missing)
        whats = listed(texts, most=_FEW, separator="; ")
        detail = f"{shown(spec.path)} names what the host does not have ({whats})"
        # Where the host can still give the kind, a new spec fixes it; else what keeps the host from it does.
        offered = spec.kind in context.offered_kinds
        because = _BY_RULE.get(_only_rule(missing), ()) if offered else CAUSES
        if spec.is_used:
            yield TOPIC.error(FILES, f"{detail}: containers do not start", _renew(context, spec), because)
        else:
            yield TOPIC.warning(
                "spec-stale",
                f"{detail}; it is not in use, and would not work",
                move_aside(context, spec.path),
                because,
            )
    if found and not failed:
        yield TOPIC.good(FILES, "all that the specs name is on the host")


def _only_rule(missing: tuple[Finding, ...]) -> str:
    names = {finding.rule for finding in missing}
    return names.pop() if len(names) == 1 else ""


def _renew(context: Context, spec: ExaminedSpec) -> tuple[Remedy, ...]:
    """Return the commands that put cdigen's own spec in the place of SPEC."""
    if spec.kind not in context.offered_kinds:
        return ()
    if _is_own(context, spec):
        return write_specs(context)
    # Another's file goes first, lest it hides ours one day.
    moved = move_aside(context, spec.path)
    return (*moved, *write_specs(context)) if moved else ()


def _is_own(context: Context, spec: ExaminedSpec) -> bool:
    return spec.path == own_file(context, spec.kind) or was_ours(context, spec.path)


def _fresh(context: Context) -> Iterator[CheckResult]:
    """Report outdated specs of cdigen's: it would now write different ones."""
    fresh = []
    for product in context.products:
        own = [spec for spec in context.specs if spec.kind == product.kind and _is_own(context, spec)]
        for spec in own:
            changes = compare(spec.document, product.document)
            if not changes.any():
                fresh.append(product.kind)
                continue
            text = f"{shown(spec.path)} is not what the host would give now: {changes.summary()}"
            is_lost = any(f"{product.kind}={name}" in context.wanted for name in changes.added)
            because = (RULES, FILES, *CAUSES)
            yield TOPIC.failed(FRESH, text, write_specs(context), because, is_error=is_lost)
    if fresh:
        yield TOPIC.good(FRESH, f"{', '.join(fresh)}: what the host would give now")


def _trust(context: Context) -> Iterator[CheckResult]:
    """Report users besides root who may change a spec, and so become root by the next container's mounts."""
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
            text = f"whoever may change {shown(spec.path)} is root in the next container: {problem}"
            remedies = give_to_root(context.outer(real)) if may_change(context, real) else ()
            yield TOPIC.warning(TRUST, text, remedies)
            break
    if context.specs and not failed:
        yield TOPIC.good(TRUST, "nobody but root may change the specs")


def _readable(context: Context) -> Iterator[CheckResult]:
    """Report specs that users without root's rights, and so their podman, may not read."""
    closed: dict[str, str] = {}
    for spec in context.specs:
        if is_users(context, spec.path):
            continue  # nobody else's containers get it
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
            yield TOPIC.good(READABLE, "every user may read the specs")
        return
    names = ", ".join(map(shown, closed))
    text = f"{names}: not readable for everybody, so rootless containers cannot have these devices"
    if not context.user and not {"podman", "docker"} & {runtime.name for runtime in context.runtimes}:
        yield TOPIC.good(READABLE, text)
        return
    opened = {context.host.resolve(path): mode for path, mode in closed.items() if may_change(context, path)}
    because = tuple(name for name in LOADING if "unreadable" in name)
    yield TOPIC.warning(READABLE, text, open_to_all(context, opened), because)


CHECKS = (_made, _rules, _coverings, _files, _fresh, _trust, _readable)
