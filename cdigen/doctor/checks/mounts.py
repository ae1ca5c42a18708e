"""The check of the mounts of host files, for cdigen in a container."""

from __future__ import annotations

from cdigen.doctor.result import Topic
from cdigen.host import mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

TOPIC = Topic(name="driver")
MOUNTS = "host-mounts"


def _mounts(context: Context) -> Iterator[CheckResult]:
    """Report missing mounts if the host is a folder of this machine."""
    if context.host.is_this_machine:
        yield TOPIC.passed(MOUNTS, "the host is this machine")
        return
    writable = (context.request.spec_dirs[-1], context.request.state_dir)
    found = mounts.findings(context.host.outer, writable)
    for one in found:
        yield TOPIC.error(MOUNTS, f"{one.message}; {one.hint}")
    if not found:
        yield TOPIC.passed(MOUNTS, "all required host files are mounted, or the folder is not a running host")


CHECKS = (_mounts,)
