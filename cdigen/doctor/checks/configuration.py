"""Checks of cdigen's own configuration. With an invalid configuration, no command of cdigen writes files."""

from __future__ import annotations

import os

from cdigen.config import DEFAULT_PATH
from cdigen.doctor.commands import give_to_root
from cdigen.doctor.remedy_safety import culprit_of, ways
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
    """Report faults of the configuration; the other checks use the valid keys."""
    found = context.request.misconfigured
    wrong = found[0] if found else None
    if wrong is None:
        yield TOPIC.passed(CONFIGURATION, f"{DEFAULT_PATH} is valid or does not exist")
    elif wrong.severity == "warning":
        yield TOPIC.skipped(CONFIGURATION, f"{wrong.message}; {wrong.hint}")
    else:
        effect = "commands that write files fail, and the daemon does not start"
        yield TOPIC.error(CONFIGURATION, f"{wrong.message}; {effect}: {wrong.hint}")


def _trust(context: Context) -> Iterator[CheckResult]:
    """Report whether users other than root may change the configuration of root's services."""
    if not context.request.has_default_configuration or not context.host.exists(DEFAULT_PATH):
        return
    problem = untrusted(DEFAULT_PATH, base=context.host.outer)
    if not problem:
        yield TOPIC.passed(TRUST, f"only root may change {DEFAULT_PATH}")
    elif os.statvfs(context.host.outer_path(context.host.resolve(DEFAULT_PATH))).f_flag & os.ST_RDONLY:
        # The mode of a ConfigMap's folder permits all users to write, but the kubelet mounts it read-only.
        yield TOPIC.passed(TRUST, f"{DEFAULT_PATH} is on a read-only mount")
    else:
        culprit = culprit_of(context, DEFAULT_PATH)
        remedies = give_to_root(context.outer(culprit)) if culprit in ways(DEFAULT_PATH) else ()
        yield TOPIC.warning(TRUST, f"{DEFAULT_PATH}: services of root read it, and {problem}", remedies)


CHECKS = (_configuration, _trust)
