"""Check of cdigen's own configuration: while it is wrong, no command of cdigen's writes anything."""

from __future__ import annotations

import os

from cdigen.config import DEFAULT_PATH, OLD_KEY
from cdigen.doctor.authority import culprit_of, ways
from cdigen.doctor.commands import give_to_root
from cdigen.doctor.result import Topic
from cdigen.host.trust import untrusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

TOPIC = Topic(name="configuration")
CONFIGURATION, TRUST = "configuration", "configuration-trust"


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


def _trust(context: Context) -> Iterator[CheckResult]:
    """Report whether others than root may change the configuration of the services, which run as root."""
    if not context.request.has_default_configuration or not context.host.exists(DEFAULT_PATH):
        return
    problem = untrusted(DEFAULT_PATH, base=context.host.outer)
    if not problem:
        yield TOPIC.good(TRUST, f"only root may change {DEFAULT_PATH}")
    elif os.statvfs(context.host.outer_path(context.host.resolve(DEFAULT_PATH))).f_flag & os.ST_RDONLY:
        # The kubelet makes the folder of a ConfigMap writable, and mounts it read-only.
        yield TOPIC.good(TRUST, f"{DEFAULT_PATH} is on a read-only mount")
    else:
        culprit = culprit_of(context, DEFAULT_PATH)
        remedies = give_to_root(context.outer(culprit)) if culprit in ways(DEFAULT_PATH) else ()
        yield TOPIC.warning(TRUST, f"root's services read {DEFAULT_PATH}, and {problem}", remedies)


CHECKS = (_configuration, _trust)
