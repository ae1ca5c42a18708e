"""Scrapes of the real daemon for stats, with a real NVML child that responds, hangs, or is not started."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.daemon.stats import FIRST, got, scraped, starts
from support.daemon.threads import beside
from support.waiting import limited

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
STATS_PATH = "/metrics?collect[]=devices"


def stats_in(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("device", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in {"cdigen_device_power_watts", "cdigen_scrape_collector_success"}
    }


def test_a_scrape_that_requests_stats_returns_stats_and_all_other_metrics(tmp_path: Path) -> None:
    with scraped(tmp_path) as (running, calls):
        assert stats_in(got(running, "/metrics")[1]) == {}
        assert starts(calls) == 0
        # On a busy machine the first scrape does not wait long enough. The next scrape returns the result.
        running.sees(lambda: stats_in(got(running, STATS_PATH)[1])["cdigen_scrape_collector_success", ""])
        code, text = got(running, STATS_PATH)
        assert code == 200
        assert stats_in(text) == {
            ("cdigen_device_power_watts", "nvidia.com/gpu=0"): 346.12,
            ("cdigen_device_power_watts", "nvidia.com/gpu=1"): 346.12,
            ("cdigen_scrape_collector_success", ""): 1,
        }
        assert "cdigen_build_info" in text
        assert got(running, "/metrics?collect[]=cpu") == (400, "collect[] must be devices\n")


def test_concurrent_and_subsequent_scrapes_start_nvml_once(tmp_path: Path) -> None:
    with scraped(tmp_path, faults=(f"{FIRST} slow 0.5",)) as (running, calls):
        codes: list[int] = []
        with beside(lambda: codes.append(got(running, STATS_PATH)[0]), count=2):
            pass
        assert codes == [200, 200]
        running.sees(lambda: stats_in(got(running, STATS_PATH)[1])["cdigen_scrape_collector_success", ""])
        assert starts(calls) == 1


@limited(3)
def test_a_hanging_nvml_delays_only_the_scrape_that_requests_stats(tmp_path: Path, within_s: float) -> None:
    with scraped(tmp_path, faults=(f"{FIRST} hang",)) as (running, calls):
        texts: list[str] = []
        with beside(lambda: texts.append(got(running, STATS_PATH)[1]), count=5):
            running.sees(lambda: starts(calls))
            for target in ("/healthz", "/readyz", "/metrics"):
                begun = time.monotonic()
                assert got(running, target)[0] == 200
                assert time.monotonic() - begun < within_s
        assert [stats_in(text) for text in texts] == [{("cdigen_scrape_collector_success", ""): 0}] * 5
        assert starts(calls) == 1
        code, took_s = running.stop()
        assert code == 0
        assert took_s < 2 * within_s


def test_a_scrape_lacks_only_the_stats_of_a_hanging_gpu(tmp_path: Path) -> None:
    with scraped(tmp_path, last=("nvmlDeviceGetPowerUsage hang",)) as (running, _):
        # On a busy machine the first scrape may not wait long enough. The next scrape returns the result.
        expected = {
            ("cdigen_device_power_watts", "nvidia.com/gpu=0"): 346.12,
            ("cdigen_scrape_collector_success", ""): 1,
        }
        running.sees(lambda: stats_in(got(running, STATS_PATH)[1]) == expected)


@limited(6)
def test_the_daemon_ends_in_time_while_a_scrape_waits(tmp_path: Path, within_s: float) -> None:
    with scraped(tmp_path, faults=(f"{FIRST} hang",)) as (running, calls), beside(got, running, STATS_PATH):
        running.sees(lambda: starts(calls))
        code, took_s = running.stop()
        assert code == 0
        assert took_s < within_s


def test_nvml_is_not_queried_if_device_metrics_are_switched_off(tmp_path: Path) -> None:
    with scraped(tmp_path, switched_on=False) as (running, calls):
        code, text = got(running, STATS_PATH)
        assert (code, stats_in(text)) == (200, {})
        assert starts(calls) == 0
