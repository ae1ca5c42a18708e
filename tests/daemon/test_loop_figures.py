"""The real daemon is scraped for figures: by a real NVML child that answers, hangs, or is not asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.daemon.figures import FIRST, got, scraped, starts
from support.daemon.threads import beside
from support.waiting import limited

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
ASKED = "/metrics?collect[]=figures"


def figures(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("device", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in {"cdigen_device_power_watts", "cdigen_figures_success"}
    }


def test_a_scrape_that_asks_gets_figures_beside_the_rest(tmp_path: Path) -> None:
    with scraped(tmp_path) as (running, calls):
        assert figures(got(running, "/metrics")[1]) == {}
        assert starts(calls) == 0
        # On a busy machine the first scrape does not wait long enough; the answer is kept for the next.
        running.sees(lambda: figures(got(running, ASKED)[1])["cdigen_figures_success", ""])
        code, text = got(running, ASKED)
        assert code == 200
        assert figures(text) == {
            ("cdigen_device_power_watts", "nvidia.com/gpu=0"): 346.12,
            ("cdigen_device_power_watts", "nvidia.com/gpu=1"): 346.12,
            ("cdigen_figures_success", ""): 1,
        }
        assert "cdigen_build_info" in text
        assert got(running, "/metrics?collect[]=cpu") == (400, "collect[] can be figures only\n")


def test_scrapes_at_once_and_soon_after_start_nvml_once(tmp_path: Path) -> None:
    with scraped(tmp_path, faults=(f"{FIRST} slow 0.5",)) as (running, calls):
        codes: list[int] = []
        with beside(lambda: codes.append(got(running, ASKED)[0]), count=2):
            pass
        assert codes == [200, 200]
        running.sees(lambda: figures(got(running, ASKED)[1])["cdigen_figures_success", ""])
        assert starts(calls) == 1


@limited(3)
def test_nvml_that_hangs_delays_only_the_scrape_that_asks_for_it(tmp_path: Path, within_s: float) -> None:
    with scraped(tmp_path, faults=(f"{FIRST} hang",)) as (running, calls):
        texts: list[str] = []
        with beside(lambda: texts.append(got(running, ASKED)[1]), count=5):
            running.sees(lambda: starts(calls))
            for target in ("/healthz", "/readyz", "/metrics"):
                begun = time.monotonic()
                assert got(running, target)[0] == 200
                assert time.monotonic() - begun < within_s
        assert [figures(text) for text in texts] == [{("cdigen_figures_success", ""): 0}] * 5
        assert starts(calls) == 1
        code, took_s = running.stop()
        assert code == 0
        assert took_s < 2 * within_s


def test_a_gpu_that_hangs_costs_a_scrape_its_own_figures_alone(tmp_path: Path) -> None:
    with scraped(tmp_path, last=("nvmlDeviceGetPowerUsage hang",)) as (running, _):
        # On a busy machine the first scrape may not wait long enough; the answer is kept for the next.
        expected = {
            ("cdigen_device_power_watts", "nvidia.com/gpu=0"): 346.12,
            ("cdigen_figures_success", ""): 1,
        }
        running.sees(lambda: figures(got(running, ASKED)[1]) == expected)


@limited(6)
def test_it_ends_in_time_while_a_scrape_waits(tmp_path: Path, within_s: float) -> None:
    with scraped(tmp_path, faults=(f"{FIRST} hang",)) as (running, calls), beside(got, running, ASKED):
        running.sees(lambda: starts(calls))
        code, took_s = running.stop()
        assert code == 0
        assert took_s < within_s


def test_nothing_is_asked_where_it_is_not_switched_on(tmp_path: Path) -> None:
    with scraped(tmp_path, switched_on=False) as (running, calls):
        code, text = got(running, ASKED)
        assert (code, figures(text)) == (200, {})
        assert starts(calls) == 0
