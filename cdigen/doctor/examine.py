"""Run all checks and order their results, causes first: ``examine``."""

from __future__ import annotations

from cdigen.doctor import (
    configuration,
    driver,
    health,
    kubelet,
    kubelet_devices,
    kubelet_labels,
    kubelet_neighbours,
    kubelet_runtime,
    kubelet_shares,
    loading,
    mounts,
    nodes,
    others,
    plugin,
    runtimes,
    security,
    specs,
)
from cdigen.doctor.result import filter_remedies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

    Check = Callable[[Context], Iterator[CheckResult]]

# From the configuration and the driver to the container: each depends on those above it.
CHECKS: tuple[Check, ...] = (
    *configuration.CHECKS,
    *mounts.CHECKS,
    *driver.CHECKS,
    *health.CHECKS,
    *nodes.CHECKS,
    *others.CHECKS,
    *plugin.CHECKS,
    *kubelet.CHECKS,
    *kubelet_neighbours.CHECKS,
    *kubelet_devices.CHECKS,
    *kubelet_runtime.CHECKS,
    *kubelet_shares.CHECKS,
    *kubelet_labels.CHECKS,
    *loading.CHECKS,
    *specs.CHECKS,
    *security.CHECKS,
    *runtimes.CHECKS,
)
_SEVERITIES = {"error": 0, "warning": 1, "info": 2}


def examine(context: Context) -> tuple[CheckResult, ...]:
    """Return every result: first the failures, each cause before its consequences, then the others.

    Among causes, errors come before warnings. A failed check is not also reported as good.
    """
    found = [result for check in CHECKS for result in check(context)]
    if not context.is_live:
        found = [filter_remedies(result, context.host.outer) for result in found]
    wrong = list(dict.fromkeys(result for result in found if not result.ok))
    failed = {result.check for result in wrong}
    right = [result for result in found if result.ok and result.check not in failed]
    ordered = sorted(wrong, key=lambda result: (_depth(result, wrong), _SEVERITIES[result.severity]))
    return (*ordered, *right)


def causes(result: CheckResult, found: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """Return those of FOUND that are causes of the failure RESULT."""
    return tuple(
        other
        for other in found
        if not other.ok and other.check in result.because and other.check != result.check
    )


def _depth(result: CheckResult, wrong: list[CheckResult], seen: frozenset[str] = frozenset()) -> int:
    """Return the number of causes in the longest chain that leads to RESULT."""
    above = [
        other
        for other in causes(result, tuple(wrong))
        if other.check not in seen and (other.severity == "error" or result.severity != "error")
    ]
    return max((_depth(other, wrong, seen | {result.check}) + 1 for other in above), default=0)
