"""What the specs say: whether it exists, is what the host would give now, and who may change it."""

from __future__ import annotations

from cdigen.doctor.driver import CAUSES
from cdigen.doctor.loading import LOADING
from cdigen.doctor.verdict import Topic
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.model.findings import errors
from cdigen.spec.compare import compare
from cdigen.spec.hostcheck import check_host
from cdigen.spec.known import read
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.verdict import Verdict
    from cdigen.model.findings import Finding
    from cdigen.runtimes.shelf import Book

TOPIC = Topic(name="specs")
FILES, FRESH, TRUST, MAKING, READABLE = "spec-files", "spec-fresh", "spec-trust", "spec-made", "spec-readable"
# What is wrong with a spec's paths, where all of them are of one sort -> the checks that look at these.
_BY_RULE = {"host-node-wrong": ("node-missing", "node-wrong"), "host-hook-wrong": ("hook-present",)}
_FEW = 3
_MAX = 16 << 20


@frozen
class Used:
    """A spec file that gives a wanted device, and its document."""

    path: str
    kind: str
    document: dict[str, Any]
    is_used: bool


def check(context: Context) -> Iterator[Verdict]:
    """Say whether the specs hold."""
    found = specs(context)
    yield from _made(context)
    yield from _files(context, found)
    yield from _fresh(context, found)
    yield from _trust(context, found)
    yield from _readable(context, found)


def specs(context: Context) -> tuple[Used, ...]:
    """Return the files that define wanted kinds and can be read, and whether wanted names come from them."""
    used = {path for view in context.views for name, path in view.devices if name in set(context.wanted)}
    books: dict[str, Book] = {}
    for view in context.views:
        books |= {book.path: book for book in view.books if book.kind in context.kinds}
    found = []
    for path, book in books.items():
        if book.path.endswith((".json", ".yaml")) and (document := _document(context, path)) is not None:
            found.append(Used(path=path, kind=book.kind, document=document, is_used=path in used))
    return tuple(found)


def _document(context: Context, path: str) -> dict[str, Any] | None:
    try:
        reading = read(context.host.read(path, limit=_MAX), yaml=not path.endswith(".json"))
    except OSError:
        return None
    return None if errors(reading.findings) else reading.document


def _made(context: Context) -> Iterator[Verdict]:
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


def _files(context: Context, found: tuple[Used, ...]) -> Iterator[Verdict]:
    failed = False
    for spec in found:
        missing = check_host(spec.document, context.host)
        if not missing:
            continue
        failed = True
        texts = list(dict.fromkeys(finding.message for finding in missing))
        more = f" and {len(texts) - _FEW} more" if len(texts) > _FEW else ""
        whats = "; ".join(texts[:_FEW]) + more
        detail = f"{shown(spec.path)} names what the host does not have ({whats})"
        # Where the host can still give the kind, a new spec mends it; else what keeps the host from it does.
        offered = any(product.kind == spec.kind for product in context.products)
        because = _BY_RULE.get(_only_rule(missing), ()) if offered else CAUSES
        if spec.is_used:
            yield TOPIC.error(FILES, f"{detail}: containers do not start", _renew(context, spec), because)
        else:
            yield TOPIC.warning(
                "spec-stale",
                f"{detail}; it is not in use, and would not work",
                _aside(context, spec),
                because,
            )
    if found and not failed:
        yield TOPIC.good(FILES, "all that the specs name is on the host")


def _only_rule(missing: tuple[Finding, ...]) -> str:
    rules = {finding.rule for finding in missing}
    return rules.pop() if len(rules) == 1 else ""


def _renew(context: Context, spec: Used) -> str:
    if not any(product.kind == spec.kind for product in context.products):
        return ""
    if _is_own(context, spec):
        return context.write_command()
    # Another's file: cdigen's own in its place, lest it comes back into sight.
    return f"{_aside(context, spec)} && {context.write_command()}"


def _aside(context: Context, spec: Used) -> str:
    return f"mv {context.outer(spec.path)} {context.outer(spec.path + '.disabled')}"


def _is_own(context: Context, spec: Used) -> bool:
    return spec.path == context.own_file(spec.kind) or context.was_ours(spec.path)


def _fresh(context: Context, found: tuple[Used, ...]) -> Iterator[Verdict]:
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
            yield say(FRESH, text, context.write_command(), because=(FILES, *CAUSES))
    if fresh:
        yield TOPIC.good(FRESH, f"{', '.join(fresh)}: what the host would give now")


def _trust(context: Context, found: tuple[Used, ...]) -> Iterator[Verdict]:
    """Say who besides root may change a spec: whoever may is root through the next container's mounts."""
    failed = set()
    for spec in found:
        for path in _ways(spec.path):
            try:
                real = context.host.resolve(path)
            except OSError:
                continue
            problem = untrusted(real, base=context.host.outer)
            if not problem or path in failed:
                continue
            failed.add(path)
            place = context.outer(real)
            text = f"whoever may change {shown(spec.path)} is root in the next container: {problem}"
            yield TOPIC.warning(TRUST, text, f"chown root:root {place} && chmod go-w {place}")
            break
    if found and not failed:
        yield TOPIC.good(TRUST, "nobody but root may change the specs")


def _ways(path: str) -> list[str]:
    """Return the folders above PATH, the highest first, and PATH."""
    parts = path.split("/")
    return ["/".join(parts[: number + 1]) for number in range(1, len(parts))]


def _readable(context: Context, found: tuple[Used, ...]) -> Iterator[Verdict]:
    """Say whether users without root's rights may read the specs, as their podman has to."""
    closed = []
    for spec in found:
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
    remedy = " && ".join(f"chmod {mode} {context.outer(path)}" for path, mode in closed)
    rootless = {"podman", "docker"} & {runtime.name for runtime in context.runtimes} or context.user
    if rootless:
        yield TOPIC.warning(
            READABLE, text, remedy, because=tuple(name for name in LOADING if "unreadable" in name)
        )
    else:
        yield TOPIC.good(READABLE, text)
