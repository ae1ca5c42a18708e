"""Check of cdigen's own configuration: while it is wrong, no command of cdigen's writes anything."""

from __future__ import annotations

from cdigen.config import DEFAULT_PATH, OLD_KEY
from cdigen.doctor.result import Topic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

TOPIC = Topic(name="configuration")
CONFIGURATION = "configuration"


def _configuration(context: Context) -> Iterator[CheckResult]:
    """Report faults of the configuration; the other checks use its valid keys."""
    found = context.request.misconfigured
    for old in (one for one in found if one.rule == OLD_KEY):
        yield TOPIC.warning(CONFIGURATION, f"{old.message}; {old.hint}")
    wrong = next((one for one in found if one.rule != OLD_KEY), None)
    if not found:
        yield TOPIC.good(CONFIGURATION, f"{DEFAULT_PATH} is right, or not there")
    elif wrong and wrong.severity == "warning":
        yield TOPIC.unchecked(CONFIGURATION, f"{wrong.message}; {wrong.hint}")
    elif wrong:
        effect = "commands that write refuse, and the daemon does not start with it"
        yield TOPIC.error(CONFIGURATION, f"{wrong.message}; {effect}: {wrong.hint}")


CHECKS = (_configuration,)
