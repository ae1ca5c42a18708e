"""Many specs under `cdigen nri` on a busy machine: no container is refused as late, and little is read.

``make soak`` raises the number of containers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from support.nri.claims import KIND, busy_machine, write_claim
from support.nri.plugin import DROPS_06, INJECTS_08, Host, asks, given, host, plugin

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTAINERS = int(os.environ.get("CDIGEN_SOAK_CLAIMS", "12"))
LOOPS = 4
# As runtimes have it: the plugin refuses by itself after half of it.
REQUEST_S = 2.0
# Of the plugin's processor time for each container, the reading of its claim included; to read all 200 takes
# 60 ms and more.
COSTS_AT_MOST_S = 0.045


@pytest.fixture
def here() -> Iterator[Host]:
    with host() as made:
        made.write_inventory()
        yield made


def served(here: Host, claims: int, *, raw: bool = False) -> None:
    """Make each container's claim right before it starts, remove that of the last, and see what it gets."""
    here.configure(unsupported_cdi="raw" if raw else "refuse")
    for claim in range(claims):
        write_claim(here.specs, claim)
    flavour: dict[str, Any] = DROPS_06 if raw else INJECTS_08
    with plugin(here) as running:
        runtime = here.runtime(**flavour)
        running.serves()
        # The first reading, of all, is another matter.
        runtime.create(*asks("0"))
        runtime.request_timeout_s = REQUEST_S
        before_s = running.processor_s()
        with busy_machine(LOOPS):
            for claim in range(claims, claims + CONTAINERS):
                write_claim(here.specs, claim)
                (here.specs / f"claim{claim - 1}.json").unlink()
                adjustment = runtime.create(*asks(f"{KIND}={claim:08x}-gpu-0"))
                if raw:
                    assert [node.path for node in adjustment.linux.devices] == ["/dev/nvidia0"]
                else:
                    assert given(adjustment) == [f"{KIND}={claim:08x}-gpu-0"]
        assert (running.processor_s() - before_s) / CONTAINERS < COSTS_AT_MOST_S
        assert running.metric('cdigen_nri_refused_total{cause="late"}') == 0


@pytest.mark.parametrize("claims", [200, 1_000])
def test_many_claims_of_which_one_comes_and_one_goes(here: Host, claims: int) -> None:
    served(here, claims)


@pytest.mark.usefixtures("real_nodes")
def test_two_hundred_claims_that_are_given_without_cdi(here: Host) -> None:
    here.make_null()
    served(here, 200, raw=True)
