"""Check of the mounts by which cdigen in a container sees its host."""

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
    """Report what is missing of a live host below a folder."""
    if context.host.is_this_machine:
        yield TOPIC.good(MOUNTS, "the host is this machine itself")
        return
    writable = (context.request.spec_dirs[-1], context.request.state_dir)
    found = mounts.findings(context.host.outer, writable)
    for one in found:
        yield TOPIC.error(MOUNTS, f"{one.message}; {one.hint}")
    if not found:
        yield TOPIC.good(MOUNTS, "all that is needed of the host is mounted, or it is a recorded one")


CHECKS = (_mounts,)
