"""The next step of each cause is an action for an administrator."""

from __future__ import annotations

import pytest
from support.values.health_devices import FIRST, gpu, inventory, policy

from cdigen.health.annotate import annotated
from cdigen.health.clearing import LOST_RULE, next_step
from cdigen.health.marks import Mark
from cdigen.health.state import HealthState
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.health import CauseRule

RULES = {
    rule.cause: rule
    for name in registry.VENDORS
    if (health := registry.health(name)) is not None
    for rule in (*health.causes, LOST_RULE)
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_a_cause_that_no_reset_or_reload_clears_has_a_specific_next_step(rule: CauseRule) -> None:
    step = next_step(rule)
    assert rule.clears_when not in step
    assert bool(rule.next_step) or not {"reset", "reload"}.isdisjoint(rule.cleared_by)
    assert step.split()[0].rstrip(":") in {
        *("reboot", "reset", "load", "replace", "repair", "flash", "rescan", "restart", "wait", "write"),
        *("run", "see"),
    }


def test_the_next_step_of_a_mark_is_the_command_that_clears_the_mark() -> None:
    mark = Mark(
        vendor="nvidia", address=FIRST, uuid="GPU-1", device_id="", instance="", reason="smells", since="now"
    )
    found = annotated(HealthState(boot="boot"), (mark,), inventory(gpu()), policy())["nvidia"].accelerators[0]
    step = f"if the reason is gone, clear the mark: 'cdigen health --clear {FIRST}'"
    assert [(cause.cause, cause.next_step) for cause in found.causes] == [("marked", step)]
