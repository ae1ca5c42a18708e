"""A decision leaves no garbage: a garbage collection would delay waiting containers."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from support.nri.host import POD, container

from cdigen.nri.decision.result.compat import abilities
from cdigen.nri.decision.result.injection import adjust_container

if TYPE_CHECKING:
    from cdigen.nri.decision.context import DecisionContext

ASKS = {"nothing": (), "a GPU": ("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=compute")}


@pytest.mark.parametrize("request_name", ASKS)
def test_a_decision_leaves_no_garbage(context: DecisionContext, request_name: str) -> None:
    able = abilities("containerd", "2.1.9")
    # The first call imports modules and compiles patterns, which stay in memory.
    first = adjust_container(POD, container(*ASKS[request_name]), context, able)
    assert first.outcome == ("inject" if ASKS[request_name] else "nothing")
    found = []
    gc.disable()
    try:
        for _ in range(10):
            gc.collect()
            adjust_container(POD, container(*ASKS[request_name]), context, able)
            found.append(gc.collect())
    finally:
        gc.enable()
    # A leak would leave garbage in each run. Threads of earlier tests leave garbage in some runs.
    assert min(found) == 0
