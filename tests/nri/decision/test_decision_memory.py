"""What a decision is made of is gone with it: garbage is looked for while containers wait."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from support.nri.host import POD, container

from cdigen.nri.decision.answer import created
from cdigen.nri.decision.compat import abilities

if TYPE_CHECKING:
    from cdigen.nri.decision.context import DecisionContext

ASKS = {"nothing": (), "a GPU": ("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=compute")}


@pytest.mark.parametrize("asks", ASKS)
def test_a_decision_leaves_no_garbage(known: DecisionContext, asks: str) -> None:
    able = abilities("containerd", "2.1.9")
    # What is imported and compiled at the first time stays.
    first = created(POD, container(*ASKS[asks]), known, able)
    assert first.outcome == ("inject" if ASKS[asks] else "nothing")
    found = []
    gc.disable()
    try:
        for _ in range(10):
            gc.collect()
            created(POD, container(*ASKS[asks]), known, able)
            found.append(gc.collect())
    finally:
        gc.enable()
    # A decision would leave some each time; threads of earlier tests do at times.
    assert min(found) == 0
