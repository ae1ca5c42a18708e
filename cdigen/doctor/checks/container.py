"""Add the cause ``in-container`` to failures that occur because cdigen runs in a container."""

from __future__ import annotations

from cdigen.doctor.result import Topic
from cdigen.host.containers import host_hint
from cdigen.pipeline.discovery import NO_HOST
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

TOPIC = Topic(name="driver")
CONTAINER = "in-container"
# The topics of checks whose remedies load modules, install drivers and create device nodes. These remedies
# work only on the host.
_TOPICS = frozenset(("driver", "nodes"))


def with_cause(context: Context, found: list[CheckResult]) -> list[CheckResult]:
    """Return FOUND; in a container, add the container as the cause of failures of drivers and nodes.

    These failures then have no remedies, because modules and nodes belong to the host.
    """
    affected = [result for result in found if not result.ok and result.topic in _TOPICS]
    if not context.in_container or not affected:
        return found
    is_error = any(result.severity == "error" for result in affected)
    cause = TOPIC.failed(CONTAINER, f"{NO_HOST}; {host_hint()}", is_error=is_error)
    explained = [
        replace(result, remedies=(), because=(*result.because, CONTAINER)) if result in affected else result
        for result in found
    ]
    return [cause, *explained]
