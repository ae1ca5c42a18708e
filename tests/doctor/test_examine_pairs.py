"""With two breakages, causes precede consequences, and each remedy fixes its failure.

The pairs are chosen at random, and CDIGEN_SOAK_PAIRS is their number. `make nightly` tests all pairs.
"""

from __future__ import annotations

import itertools
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.breakages import BREAKAGES

if TYPE_CHECKING:
    from support.doctor.broken_host import BrokenHost

# These breakages come last in a pair, because they leave no spec that another breakage could change.
_LAST = ("bad JSON", "no spec")
PAIRS = tuple(itertools.combinations(sorted(BREAKAGES, key=lambda name: (name in _LAST, name)), 2))
TRIED = int(os.environ.get("CDIGEN_SOAK_PAIRS", "6"))
SEED = int(os.environ.get("CDIGEN_SOAK_SEED", "30"))


def wrong(host: BrokenHost) -> list[dict[str, Any]]:
    return [row for row in host.results() if not row["ok"]]


@pytest.mark.parametrize("pair", random.Random(SEED).sample(PAIRS, min(TRIED, len(PAIRS))), ids=" and ".join)
def test_with_two_faults_each_cause_is_first_and_each_remedy_removes_its_failure(
    host: BrokenHost, pair: tuple[str, str]
) -> None:
    for name in pair:
        break_host, *_ = BREAKAGES[name]
        break_host(host)
    rows = wrong(host)
    assert rows
    for _ in range(8):
        for place, row in enumerate(rows):
            assert not [later["check"] for later in rows[place:] if later["check"] in row["because"]], rows
        first = rows[0]
        assert first["remedy"], first
        host.shell(first["remedy"])
        rows = wrong(host)
        assert first not in rows
        if not rows:
            break
    assert rows == []
