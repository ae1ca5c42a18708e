"""What a decision is made of is gone with it: garbage is looked for while containers wait."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING

import pytest
from support.nri.host import POD, container
from support.nri.plugin import put, spec
from support.nri.serving import known_of

from cdigen.nri.decision.answer import created
from cdigen.nri.decision.compat import abilities

if TYPE_CHECKING:
    from pathlib import Path

ASKS = {"nothing": (), "a GPU": ("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=compute")}


@pytest.mark.parametrize("asks", ASKS)
def test_a_decision_leaves_no_garbage(tmp_path: Path, asks: str) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    put(tmp_path / "etc/cdi/gpu.json", json.dumps(spec(["0"])))
    context, able = known_of(tmp_path), abilities("containerd", "2.1.9")
    # What is imported and compiled at the first time stays.
    first = created(POD, container(*ASKS[asks]), context, able)
    assert first.outcome == ("inject" if ASKS[asks] else "nothing")
    gc.collect()
    gc.disable()
    try:
        created(POD, container(*ASKS[asks]), context, able)
        assert gc.collect() == 0
    finally:
        gc.enable()
