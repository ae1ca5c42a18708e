"""Run all checks and order the results, with causes first."""

from __future__ import annotations

from cdigen.doctor.checks import (
    configuration,
    driver,
    health,
    installation,
    loading,
    nodes,
    oci_programs,
    other_tools,
    plugin,
    runtimes,
    security,
    selinux,
    slurm,
    specs,
)
from cdigen.doctor.kubernetes import devices, gpu_memory, kubelet, labels, runtime
from cdigen.doctor.result import filter_remedies
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

    Check = Callable[[Context], Iterator[CheckResult]]

# The checks, from the configuration and the driver to the container. A check depends only on earlier checks.
CHECKS: tuple[Check, ...] = (
    *configuration.CHECKS,
    *driver.CHECKS,
    *health.CHECKS,
    *nodes.CHECKS,
    *other_tools.CHECKS,
    *oci_programs.CHECKS,
    *slurm.CHECKS,
    *plugin.CHECKS,
    *kubelet.CHECKS,
    *devices.CHECKS,
    *runtime.CHECKS,
    *gpu_memory.CHECKS,
    *labels.CHECKS,
    *loading.CHECKS,
    *specs.CHECKS,
    *security.CHECKS,
    *selinux.CHECKS,
    *installation.CHECKS,
    *runtimes.CHECKS,
)
# The commands of cdigen that write files fail if one of these checks fails.
_WRITING_NEEDS = (configuration.CONFIGURATION, other_tools.STATE, other_tools.SPACE)
_SEVERITIES = {"error": 0, "warning": 1, "info": 2}


def examine(context: Context) -> tuple[CheckResult, ...]:
    """Return all results: first the failures, with causes before consequences, then the other results.

    Errors and the causes of errors precede all other failures. A passed result is dropped if its check has
    also failed.
    """
    every = (_for_requested(context, result) for check in CHECKS for result in check(context))
    found = driver.with_cause(context, list(every))
    if not context.is_live:
        found = [filter_remedies(result, context.host.outer) for result in found]
    wrong = list(dict.fromkeys(result for result in found if not result.ok))
    failed = {result.check for result in wrong}
    right = [result for result in found if result.ok and result.check not in failed]
    ordered = sorted(
        wrong,
        key=lambda one: (_gravest(one, wrong), _depth(one, wrong), _SEVERITIES[one.severity]),
    )
    return (*ordered, *right)


def _for_requested(context: Context, result: CheckResult) -> CheckResult:
    """Return RESULT; an error becomes a warning if it concerns only devices that are not requested.

    This applies to a failure of drivers or nodes if new specs would define all requested names.
    """
    is_of_host = result.topic in {driver.TOPIC.name, nodes.TOPIC.name} and result.severity == "error"
    if is_of_host and context.request.devices and context.offered.issuperset(context.request.devices):
        return replace(result, severity="warning")
    return result


def causes(result: CheckResult, found: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """Return the results in FOUND that are causes of the failure RESULT."""
    return tuple(
        other
        for other in found
        if not other.ok and other.check in result.because and other.check != result.check
    )


def _needed(result: CheckResult, wrong: list[CheckResult]) -> list[CheckResult]:
    """Return the failures in WRONG that must be fixed before RESULT.

    These are the causes of RESULT, and the failures that block its remedy.
    """
    writes = any(remedy.argv[0] == "cdigen" and remedy.as_root for remedy in result.remedies)
    names = {*result.because, *(_WRITING_NEEDS if writes else ())}
    return [other for other in wrong if other.check in names]


def _gravest(result: CheckResult, wrong: list[CheckResult], path: frozenset[str] = frozenset()) -> int:
    """Return the highest severity of RESULT and of the failures that can be fixed only after RESULT."""
    later = [
        other
        for other in wrong
        if other.check not in {result.check, *path} and result in _needed(other, wrong)
    ]
    own = _SEVERITIES[result.severity]
    return min([own, *(_gravest(other, wrong, path | {result.check}) for other in later)])


def _depth(result: CheckResult, wrong: list[CheckResult], path: frozenset[str] = frozenset()) -> int:
    """Return the length of the longest chain of failures that must be fixed before RESULT."""
    above = [other for other in _needed(result, wrong) if other.check not in {result.check, *path}]
    return max((_depth(other, wrong, path | {result.check}) + 1 for other in above), default=0)
