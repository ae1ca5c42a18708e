"""All checks, in the order in which a reader needs them: ``examine``."""

from __future__ import annotations

from cdigen.doctor import configuration, driver, loading, nodes, others, runtimes, security, specs
from cdigen.doctor.gate import passed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.doctor.context import Context
    from cdigen.doctor.verdict import Verdict

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


def examine(context: Context) -> tuple[Verdict, ...]:
    """Return every verdict: first what is wrong, each cause before what follows from it, then what is right.

    Of causes the graver come first. A check that has failed is not said to be good as well.
    """
    found = [passed(context, verdict) for family in FAMILIES for verdict in family(context)]
    wrong = list(dict.fromkeys(verdict for verdict in found if not verdict.ok))
    failed = {verdict.check for verdict in wrong}
    right = [verdict for verdict in found if verdict.ok and verdict.check not in failed]
    places = {id(verdict): place for place, verdict in enumerate(wrong)}
    ordered = sorted(
        wrong, key=lambda verdict: (_depth(verdict, wrong), _GRAVITY[verdict.severity], places[id(verdict)])
    )
    return (*ordered, *right)


def causes(verdict: Verdict, found: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Return of which of FOUND the failure VERDICT is a consequence."""
    return tuple(
        other
        for other in found
        if not other.ok and other.check in verdict.because and other.check != verdict.check
    )


def _depth(verdict: Verdict, wrong: list[Verdict], seen: frozenset[str] = frozenset()) -> int:
    """Return how many steps VERDICT is away from a cause that is nobody's consequence."""
    above = [
        other
        for other in causes(verdict, tuple(wrong))
        if other.check not in seen and (other.severity == "error" or verdict.severity != "error")
    ]
    return max((_depth(other, wrong, seen | {verdict.check}) + 1 for other in above), default=0)
