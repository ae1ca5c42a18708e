"""The metrics as a scrape sees them, read by Prometheus's own parser."""

import json
import re
from pathlib import Path

import pytest
import yaml
from daemon.reports import CHANGED, FAILED, KIND, MISMATCH, QUIET, STARTED_S, STARTING
from prometheus_client.parser import text_string_to_metric_families

from cdigen.daemon.metrics import DaemonMetrics
from cdigen.daemon.report import next_status
from cdigen.value import replace
from cdigen.watch.triggers import Trigger

SOURCES = ("files", "uevents", "timer")
MONITORING = Path(__file__).resolve().parents[2] / "examples/monitoring"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def metrics() -> DaemonMetrics:
    return DaemonMetrics(SOURCES, clock=lambda: STARTED_S + 60)


def scraped(metrics: DaemonMetrics) -> Samples:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(metrics: DaemonMetrics, name: str, **labels: str) -> float | None:
    return scraped(metrics).get((name, tuple(sorted(labels.items()))))


def test_cycles_are_counted_by_result_and_first_source(metrics: DaemonMetrics) -> None:
    metrics.count(CHANGED)
    metrics.count(CHANGED)
    assert value(metrics, "cdigen_cycles_total", result="changed", reason="uevents") == 2
    assert value(metrics, "cdigen_cycles_total", result="failed", reason="files") == 0


def test_the_sum_over_all_reasons_is_the_number_of_cycles(metrics: DaemonMetrics) -> None:
    for report in (CHANGED, QUIET, FAILED, replace(QUIET, reasons=())):
        metrics.count(report)
    total = sum(count for (name, _), count in scraped(metrics).items() if name == "cdigen_cycles_total")
    assert total == value(metrics, "cdigen_cycle_duration_seconds_count") == 4


def test_a_reason_is_never_a_text_from_the_host(metrics: DaemonMetrics) -> None:
    before = len(scraped(metrics))
    for number in range(100):
        metrics.count(replace(QUIET, reasons=(Trigger(source=f"odd-{number}", reason="x" * number),)))
    assert len(scraped(metrics)) == before
    assert value(metrics, "cdigen_cycles_total", result="unchanged", reason="other") == 100


def test_durations_fall_into_buckets(metrics: DaemonMetrics) -> None:
    metrics.count(CHANGED)
    assert value(metrics, "cdigen_cycle_duration_seconds_bucket", le="0.01") == 0
    assert value(metrics, "cdigen_cycle_duration_seconds_bucket", le="0.025") == 1
    assert value(metrics, "cdigen_cycle_duration_seconds_bucket", le="60.0") == 1


def test_the_last_status_is_shown(metrics: DaemonMetrics) -> None:
    metrics.show(next_status(STARTING, CHANGED, {"files": "", "uevents": "closed"}))
    assert value(metrics, "cdigen_build_info", version="1.2.3") == 1
    assert value(metrics, "cdigen_last_success_timestamp_seconds") == pytest.approx(STARTED_S + 0.0145)
    assert value(metrics, "cdigen_devices", kind=KIND, state="served") == 2
    assert value(metrics, "cdigen_devices", kind=KIND, state="left-out") == 1
    assert value(metrics, "cdigen_spec_age_seconds", kind=KIND) == 60
    assert value(metrics, "cdigen_source_healthy", source="files") == 1
    assert value(metrics, "cdigen_source_healthy", source="uevents") == 0


def test_a_vendor_is_in_one_state(metrics: DaemonMetrics) -> None:
    metrics.show(next_status(STARTING, replace(QUIET, vendors=(MISMATCH,)), {}))
    states = {
        dict(labels)["state"]: count
        for (name, labels), count in scraped(metrics).items()
        if name == "cdigen_vendor_state"
    }
    assert states == {"ready": 0, "settling": 0, "degraded": 0, "mismatch": 1, "absent": 0}


def test_what_is_gone_is_not_shown_any_more(metrics: DaemonMetrics) -> None:
    status = next_status(STARTING, CHANGED, {"files": ""})
    metrics.show(status)
    metrics.show(next_status(status, replace(QUIET, specs=()), {}))
    assert value(metrics, "cdigen_devices", kind=KIND, state="served") is None
    assert value(metrics, "cdigen_source_healthy", source="files") is None


def test_a_clock_that_was_set_back_gives_no_negative_age() -> None:
    metrics = DaemonMetrics(SOURCES, clock=lambda: STARTED_S - 1000)
    metrics.show(next_status(STARTING, CHANGED, {}))
    assert value(metrics, "cdigen_spec_age_seconds", kind=KIND) == 0


def test_two_daemons_in_one_process_share_nothing(metrics: DaemonMetrics) -> None:
    metrics.count(CHANGED)
    assert value(DaemonMetrics(SOURCES), "cdigen_cycles_total", result="changed", reason="uevents") == 0


def test_a_scrape_before_the_first_cycle_is_good(metrics: DaemonMetrics) -> None:
    assert value(metrics, "cdigen_cycle_duration_seconds_count") == 0
    assert value(metrics, "process_resident_memory_bytes")


def expressions() -> list[str]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries = [entry["query"] for entry in dashboard["templating"]["list"] if entry["type"] == "query"]
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return [*targets, *queries, *alerts]


def test_dashboard_and_alerts_ask_only_for_metrics_and_labels_that_exist(metrics: DaemonMetrics) -> None:
    metrics.count(CHANGED)
    metrics.show(next_status(STARTING, CHANGED, {"files": ""}))
    names = {name for name, _ in scraped(metrics)}
    labels = {label for _, pairs in scraped(metrics) for label, _ in pairs} | {"instance", "job"}
    for expression in expressions():
        assert set(re.findall(r"\b(?:cdigen|process)_\w+", expression)) - names == set(), expression
        used = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"", expression)
        used += [word for group in re.findall(r"by \(([^)]*)\)", expression) for word in group.split(", ")]
        assert set(used) - labels == set(), expression


def test_every_metric_of_ours_is_on_the_dashboard_or_in_an_alert(metrics: DaemonMetrics) -> None:
    metrics.count(CHANGED)
    metrics.show(next_status(STARTING, CHANGED, {"files": ""}))
    asked = " ".join(expressions())
    families = text_string_to_metric_families(metrics.render().decode())
    ours = {family.name for family in families if family.name.startswith("cdigen_")}
    assert {name for name in ours if name not in asked} == set()


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in {"warning", "critical"}
            assert {"summary", "description"} <= rule["annotations"].keys(), rule["alert"]
