"""What the specs say: whether it exists, is what the host would give now, and who may change it."""

from __future__ import annotations

from cdigen.cdi.compare import compare
from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.rules import document_rules
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.cdi.rules.mount_conflicts import MountConflicts
from cdigen.doctor.authority import is_users, may_change, owners
from cdigen.doctor.driver import CAUSES
from cdigen.doctor.loading import LOADING
from cdigen.doctor.moving import move_aside
from cdigen.doctor.result import Topic
from cdigen.doctor.words import quoted
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.model.findings import errors
from cdigen.runtimes.specfile import as_loaded
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.model.findings import Finding
    from cdigen.runtimes.spec_cache import SpecFile

TOPIC = Topic(name="specs")
FILES, FRESH, TRUST, MAKING = "spec-files", "spec-fresh", "spec-trust", "spec-made"
COVERED = "mounts-covered"
READABLE, RULES = "spec-readable", "spec-rules"
# What is wrong with a spec's paths, where all of them are of one sort -> the checks that look at these.
_BY_RULE = {"host-node-wrong": ("node-missing", "node-wrong"), "host-hook-wrong": ("hook-present",)}
# The paths without which an entry of a list is nothing.
_NEEDED = {"mounts": ("hostPath", "containerPath"), "deviceNodes": ("path",), "hooks": ("path",)}
_FEW = 3
_MAX = 16 << 20


@frozen
class ExaminedSpec:
    """A spec file that gives a wanted device, and its document.

    ``faults`` are what the rules of CDI find in it though runtimes load it: then ``document`` is what these
    make of it, without the entries that lead nowhere.
    """

    path: str
    kind: str
    document: dict[str, Any]
    is_used: bool
    faults: tuple[Finding, ...] = ()


def check(context: Context) -> Iterator[CheckResult]:
    """Say whether the specs hold."""
    found = read_specs(context)
    yield from _made(context)
    yield from _rules(context, found)
    yield from _coverings(context)
    yield from _files(context, found)
    yield from _fresh(context, found)
    yield from _trust(context, found)
    yield from _readable(context, found)


def read_specs(context: Context) -> tuple[ExaminedSpec, ...]:
    """Return the files that define wanted kinds and can be read, and whether wanted names come from them."""
    used = {path for view in context.views for name, path in view.devices if name in set(context.wanted)}
    spec_files: dict[str, SpecFile] = {}
    for view in context.views:
        spec_files |= {
            spec_file.path: spec_file for spec_file in view.spec_files if spec_file.kind in context.kinds
        }
    found = []
    for path, spec_file in spec_files.items():
        if not spec_file.path.endswith((".json", ".yaml")):
            continue
        document, faults = _document(context, path)
        if document is not None and (path in used or not faults):
            is_used = path in used
            found.append(
                ExaminedSpec(
                    path=path, kind=spec_file.kind, document=document, is_used=is_used, faults=faults
                )
            )
    return tuple(found)


def _document(context: Context, path: str) -> tuple[dict[str, Any] | None, tuple[Finding, ...]]:
    """Return the document of the file PATH, None where no runtime has one, and what breaks a rule in it."""
    try:
        data = context.host.read(path, limit=_MAX)
    except OSError:
        return None, ()
    reading = parse_and_check(data, yaml=not path.endswith(".json"))
    if not errors(reading.findings):
        return reading.document, ()
    # What strict reading finds may not matter to runtimes: names in other letter cases, null, comments.
    loaded = as_loaded(data, reading.document)
    if loaded is None:
        return None, ()
    document = _without_empty(loaded)
    return _sound(document), errors(document_rules.check(document))


def _made(context: Context) -> Iterator[CheckResult]:
    """Say what could not be made as the configuration wishes."""
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
                detail = f"{finding.message}; {finding.hint}" if finding.hint else finding.message
                remedy = (
                    context.write_command()
                    if finding.rule == "view-not-made" and "--write" in finding.hint
                    else ""
                )
                yield TOPIC.warning(MAKING, detail, remedy)
    if context.products and not said:
        kinds = ", ".join(product.kind for product in context.products)
        yield TOPIC.good(MAKING, f"{kinds} can be made from this host")


def _of_host(context: Context) -> frozenset[Finding]:
    return frozenset(finding for inventory in context.inventories.values() for finding in inventory.findings)


def _without_empty(value: Any) -> Any:
    """Return VALUE without the members that are Go's zero value, which are as if they were absent."""
    if isinstance(value, list):
        return [_without_empty(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_empty(one) for name, one in value.items() if one is not None and one != ""}


def _sound(document: dict[str, Any]) -> dict[str, Any]:
    """Return DOCUMENT with what every spec has, and only with entries that have the paths they need."""
    devices = [one for one in document.get("devices") or () if isinstance(one, dict)]
    made = [{**one, "name": one.get("name", ""), "containerEdits": _edits(one)} for one in devices]
    return {**document, "containerEdits": _edits(document), "devices": made}


def _edits(holder: dict[str, Any]) -> dict[str, Any]:
    given = holder.get("containerEdits")
    edits = dict(given) if isinstance(given, dict) else {}
    for name, needed in _NEEDED.items():
        edits[name] = [
            one
            for one in edits.get(name) or ()
            if isinstance(one, dict) and all(str(one.get(key)).startswith("/") for key in needed)
        ]
    return edits


def _rules(context: Context, found: tuple[ExaminedSpec, ...]) -> Iterator[CheckResult]:
    """Say which specs runtimes load and then fail on: the library does not look at all that runc needs."""
    faulty = [spec for spec in found if spec.faults]
    for spec in faulty:
        texts = [f"{fault.path}: {shown(fault.message)} [{fault.rule}]" for fault in spec.faults[:_FEW]]
        more = f" and {len(spec.faults) - _FEW} more" if len(spec.faults) > _FEW else ""
        text = (
            f"{shown(spec.path)} breaks the rules of CDI ({'; '.join(texts)}{more}): containers do not start"
        )
        yield TOPIC.error(RULES, text, _renew(context, spec))
    if found and not faulty:
        yield TOPIC.good(RULES, "the specs keep the rules of CDI")


def _coverings(context: Context) -> Iterator[CheckResult]:
    """Say of which kinds, of whichever makers, a container cannot have the files of both."""
    mount_conflicts = MountConflicts(context.host)
    used = {row.file for row in context.scan.rows if row.usable}
    documents = [
        spec.document for spec in context.scan.specs if spec.path in used and not errors(spec.findings)
    ]
    said = [found for document in documents if document for found in mount_conflicts.add(document)]
    for found in said:
        yield TOPIC.warning(COVERED, f"{shown(found.message)}; {found.hint}")
    if len(documents) > 1 and not said:
        yield TOPIC.good(
            COVERED, "a container may have devices of any two kinds: none covers another's files"
        )


def _files(context: Context, found: tuple[ExaminedSpec, ...]) -> Iterator[CheckResult]:
    failed = False
    found = tuple(spec for spec in found if not spec.faults)
    for spec in found:
        missing = check_host(spec.document, context.host)
        if not missing:
            continue
        failed = True
        texts = list(dict.fromkeys(finding.message for finding in missing))
        more = f" and {len(texts) - _FEW} more" if len(texts) > _FEW else ""
        whats = "; ".join(texts[:_FEW]) + more
        detail = f"{shown(spec.path)} names what the host does not have ({whats})"
        # Where the host can still give the kind, a new spec fixes it; else what keeps the host from it does.
        offered = any(product.kind == spec.kind for product in context.products)
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
    document_rules = {finding.rule for finding in missing}
    return document_rules.pop() if len(document_rules) == 1 else ""


def _renew(context: Context, spec: ExaminedSpec) -> str:
    if not any(product.kind == spec.kind for product in context.products):
        return ""
    if _is_own(context, spec):
        return context.write_command()
    # Another's file: cdigen's own in its place, lest it comes back into sight.
    return f"{move_aside(context, spec.path)} && {context.write_command()}"


def _is_own(context: Context, spec: ExaminedSpec) -> bool:
    return spec.path == context.own_file(spec.kind) or context.was_ours(spec.path)


def _fresh(context: Context, found: tuple[ExaminedSpec, ...]) -> Iterator[CheckResult]:
    fresh = []
    for product in context.products:
        own = [spec for spec in found if spec.kind == product.kind and _is_own(context, spec)]
        for spec in own:
            changes = compare(spec.document, product.document)
            if not changes.any():
                fresh.append(product.kind)
                continue
            text = f"{shown(spec.path)} is not what the host would give now: {changes.summary()}"
            lost = any(f"{product.kind}={name}" in context.wanted for name in changes.added)
            say = TOPIC.error if lost else TOPIC.warning
            yield say(FRESH, text, context.write_command(), because=(RULES, FILES, *CAUSES))
    if fresh:
        yield TOPIC.good(FRESH, f"{', '.join(fresh)}: what the host would give now")


def _trust(context: Context, found: tuple[ExaminedSpec, ...]) -> Iterator[CheckResult]:
    """Say who besides root may change a spec: whoever may is root through the next container's mounts."""
    failed = set()
    for spec in found:
        for path in _ways(spec.path):
            try:
                real = context.host.resolve(path)
            except OSError:
                continue
            problem = untrusted(real, base=context.host.outer, owners=owners(context, spec.path))
            if not problem or path in failed:
                continue
            failed.add(path)
            place = quoted(context.outer(real))
            text = f"whoever may change {shown(spec.path)} is root in the next container: {problem}"
            remedy = f"chown root:root {place} && chmod go-w {place}" if may_change(context, real) else ""
            yield TOPIC.warning(TRUST, text, remedy)
            break
    if found and not failed:
        yield TOPIC.good(TRUST, "nobody but root may change the specs")


def _real(context: Context, path: str) -> str:
    return context.outer(context.host.resolve(path))


def _ways(path: str) -> list[str]:
    """Return the folders above PATH, the highest first, and PATH."""
    parts = path.split("/")
    return ["/".join(parts[: number + 1]) for number in range(1, len(parts))]


def _readable(context: Context, found: tuple[ExaminedSpec, ...]) -> Iterator[CheckResult]:
    """Say whether users without root's rights may read the specs, as their podman has to."""
    closed = []
    for spec in found:
        if is_users(context, spec.path):
            continue  # nobody else's containers get it
        try:
            mode = context.host.stat(spec.path).st_mode
            folder = context.host.stat(spec.path.rpartition("/")[0]).st_mode
        except OSError:
            continue
        if not mode & 0o004:
            closed.append((spec.path, "a+r"))
        if folder & 0o005 != 0o005:
            closed.append((spec.path.rpartition("/")[0], "a+rx"))
    closed = list(dict.fromkeys(closed))
    if not closed:
        if found:
            yield TOPIC.good(READABLE, "every user may read the specs")
        return
    names = ", ".join(shown(path) for path, _ in closed)
    text = f"{names}: not readable for everybody, so rootless containers cannot have these devices"
    remedy = " && ".join(
        f"chmod {mode} {_real(context, path)}" for path, mode in closed if may_change(context, path)
    )
    rootless = {"podman", "docker"} & {runtime.name for runtime in context.runtimes} or context.user
    if rootless:
        yield TOPIC.warning(
            READABLE, text, remedy, because=tuple(name for name in LOADING if "unreadable" in name)
        )
    else:
        yield TOPIC.good(READABLE, text)
