"""Many specs on a busy machine: `cdigen nri` responds to each request in time, and reads few specs again.

``make soak`` raises the number of containers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from support.nri.plugin import DROPS_06, INJECTS_08, Host, cdi_devices, gpu_request, host, plugin
from support.nri.vendor_claims import KIND, busy_machine, write_claim

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTAINERS = int(os.environ.get("CDIGEN_SOAK_CLAIMS", "12"))
LOOPS = 4
# The default timeout of runtimes. The plugin refuses a request after half of this time.
REQUEST_S = 2.0
# The plugin's processor time for each container, with the read of its claim. A read of all 200 claims
# takes 60 ms and more.
COSTS_AT_MOST_S = 0.045


@pytest.fixture
def here() -> Iterator[Host]:
    with host() as made:
        made.write_inventory()
        yield made


def served(here: Host, claims: int, *, raw: bool = False) -> None:
    """Write each container's claim, remove the previous claim, start the container, and check the result."""
    here.configure(unsupported_cdi="raw" if raw else "refuse")
    for claim in range(claims):
        write_claim(here.specs, claim)
    flavour: dict[str, Any] = DROPS_06 if raw else INJECTS_08
    with plugin(here) as running:
        runtime = here.runtime(**flavour)
        running.serves()
        # The first request reads all claims. Its time is not measured.
        runtime.create(*gpu_request("0"))
        runtime.request_timeout_s = REQUEST_S
        before_s = running.processor_s()
        with busy_machine(LOOPS):
            for claim in range(claims, claims + CONTAINERS):
                write_claim(here.specs, claim)
                (here.specs / f"claim{claim - 1}.json").unlink()
                adjustment = runtime.create(*gpu_request(f"{KIND}={claim:08x}-gpu-0"))
                if raw:
                    assert [node.path for node in adjustment.linux.devices] == ["/dev/nvidia0"]
                else:
                    assert cdi_devices(adjustment) == [f"{KIND}={claim:08x}-gpu-0"]
        assert (running.processor_s() - before_s) / CONTAINERS < COSTS_AT_MOST_S
        assert running.metric('cdigen_nri_refused_total{cause="late"}') == 0


@pytest.mark.parametrize("claims", [200, 1_000])
def test_no_request_is_late_if_claims_change_before_each_container(here: Host, claims: int) -> None:
    served(here, claims)


@pytest.mark.usefixtures("real_nodes")
def test_no_request_is_late_if_two_hundred_claims_are_injected_as_nodes(here: Host) -> None:
    here.make_null()
    served(here, 200, raw=True)
