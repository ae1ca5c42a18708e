"""Checks whether a spec exists for each kind of the host and for each requested name."""

from __future__ import annotations

import posixpath

from cdigen.cdi.version import is_newer
from cdigen.doctor.checks.driver import CAUSES
from cdigen.doctor.checks.loading import LOADING, NUMBERS_SINCE, problems
from cdigen.doctor.commands import run_cdigen, write_specs
from cdigen.doctor.result import Topic, listed
from cdigen.doctor.spec_documents import own_file
from cdigen.host.root import shown
from cdigen.model.names import natural_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

TOPIC = Topic(name="specs")
MISSING = "spec-missing"


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
    target = context.request.generate_options.target_of(kind)
    if target is not None and device[:1].isdigit() and is_newer(NUMBERS_SINCE, target.newest):
        text = (
            f"no spec can define {shown(name)} for {target.name}: a name that begins with a digit needs "
            f"cdiVersion {NUMBERS_SINCE}; this host has {listed(known) or 'no device'}"
        )
    else:
        text = f"this host has no device {shown(name)}; it has {listed(known) or 'no device'}"
    listing = run_cdigen(context, "list", why="list the devices", as_root=False)
    return TOPIC.error("device-unknown", text, (listing,), because=CAUSES)


CHECKS = (_missing,)
