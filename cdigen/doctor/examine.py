"""All checks, in the order in which a reader needs them: ``examine``."""

from __future__ import annotations

from cdigen.doctor import configuration, driver, loading, nodes, others, runtimes, security, specs
from cdigen.doctor.gate import filter_remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

# From the configuration and the driver to the container: what is further down depends on what is above.
FAMILIES = (
    configuration.check,
    driver.check,
    nodes.check,
    others.check,
    loading.check,
    specs.check,
    security.check,
    runtimes.check,
)
_GRAVITY = {"error": 0, "warning": 1, "info": 2}


def examine(context: Context) -> tuple[CheckResult, ...]:
    """Return every result: first what is wrong, each cause before what follows from it, then what is right.

    Of causes the graver come first. A check that has failed is not said to be good as well.
    """
    found = [filter_remedy(context, result) for family in FAMILIES for result in family(context)]
    wrong = list(dict.fromkeys(result for result in found if not result.ok))
    failed = {result.check for result in wrong}
    right = [result for result in found if result.ok and result.check not in failed]
    places = {id(result): place for place, result in enumerate(wrong)}
    ordered = sorted(
        wrong, key=lambda result: (_depth(result, wrong), _GRAVITY[result.severity], places[id(result)])
    )
    return (*ordered, *right)


def causes(result: CheckResult, found: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """Return of which of FOUND the failure VERDICT is a consequence."""
    return tuple(
        other
        for other in found
        if not other.ok and other.check in result.because and other.check != result.check
    )


def _depth(result: CheckResult, wrong: list[CheckResult], seen: frozenset[str] = frozenset()) -> int:
    """Return how many steps VERDICT is away from a cause that is nobody's consequence."""
    above = [
        other
        for other in causes(result, tuple(wrong))
        if other.check not in seen and (other.severity == "error" or result.severity != "error")
    ]
    return max((_depth(other, wrong, seen | {result.check}) + 1 for other in above), default=0)
