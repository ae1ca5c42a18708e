"""The metrics of the daemon. The tests use the parser of Prometheus."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.values.cycle_reports import CHANGED, FAILED, KIND, MISMATCH, QUIET, STARTED_S, STARTING
from support.values.unhealthy_gpus import ECC, FELL, example, with_causes

from cdigen import __version__
from cdigen.daemon.cycle.report import next_status
from cdigen.daemon.metrics.daemon import DaemonMetrics
from cdigen.model.health import Cause
from cdigen.model.profile import DEFAULT
from cdigen.pipeline.device_names import KnownDevice, known_devices
from cdigen.value import replace
from cdigen.watch.triggers import Trigger

SOURCES = ("files", "uevents", "timer")
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


def by_label(metrics: DaemonMetrics, name: str, label: str) -> list[tuple[str, float]]:
    """Return the text of LABEL and the value for each series of the metric NAME."""
    return [(dict(labels)[label], count) for (one, labels), count in scraped(metrics).items() if one == name]


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


def test_the_last_status_is_exported(metrics: DaemonMetrics) -> None:
    metrics.show(next_status(STARTING, CHANGED, {"files": "", "uevents": "closed"}))
    assert value(metrics, "cdigen_build_info", version=__version__) == 1
    assert value(metrics, "cdigen_last_success_timestamp_seconds") == pytest.approx(STARTED_S + 0.0145)
    assert value(metrics, "cdigen_devices", kind=KIND, state="served") == 2
    assert value(metrics, "cdigen_devices", kind=KIND, state="left-out") == 1
    assert value(metrics, "cdigen_spec_age_seconds", kind=KIND) == 60
    assert value(metrics, "cdigen_watch_source_up", source="files") == 1
    assert value(metrics, "cdigen_watch_source_up", source="uevents") == 0


def test_a_vendor_is_in_one_state(metrics: DaemonMetrics) -> None:
    metrics.show(next_status(STARTING, replace(QUIET, vendors=(MISMATCH,)), {}))
    states = dict(by_label(metrics, "cdigen_vendor_state", "state"))
    assert states == {"ready": 0, "settling": 0, "degraded": 0, "mismatch": 1, "absent": 0}


def test_a_vanished_object_has_no_series_any_more(metrics: DaemonMetrics) -> None:
    status = next_status(STARTING, CHANGED, {"files": ""})
    metrics.show(status)
    metrics.show(next_status(status, replace(QUIET, specs=()), {}))
    assert value(metrics, "cdigen_devices", kind=KIND, state="served") is None
    assert value(metrics, "cdigen_watch_source_up", source="files") is None


def test_a_clock_that_was_set_back_gives_no_negative_age() -> None:
    metrics = DaemonMetrics(SOURCES, clock=lambda: STARTED_S - 1000)
    metrics.show(next_status(STARTING, CHANGED, {}))
    assert value(metrics, "cdigen_spec_age_seconds", kind=KIND) == 0


def test_two_daemons_in_one_process_share_no_metrics(metrics: DaemonMetrics) -> None:
    metrics.count(CHANGED)
    assert value(DaemonMetrics(SOURCES), "cdigen_cycles_total", result="changed", reason="uevents") == 0


def test_a_scrape_before_the_first_cycle_works(metrics: DaemonMetrics) -> None:
    assert value(metrics, "cdigen_cycle_duration_seconds_count") == 0
    assert value(metrics, "process_resident_memory_bytes")


def unhealthy(*causes: Cause) -> tuple[KnownDevice, ...]:
    """Return eight GPUs; the GPU with the index 3 has CAUSES."""
    return known_devices(with_causes(example(), 3, *causes), (DEFAULT,))


def test_each_device_and_each_cause_has_a_series(metrics: DaemonMetrics) -> None:
    metrics.show(next_status(STARTING, CHANGED, {}))
    metrics.show_devices(unhealthy(FELL, ECC))
    found = dict(by_label(metrics, "cdigen_device_health", "device"))
    assert found == {f"{KIND}={number}": float(number != 3) for number in range(8)}
    device = {
        "vendor": "nvidia",
        "device": f"{KIND}=3",
        "address": "0000:61:00.0",
        "uuid": "GPU-e4d3c2b1-a098-4f76-b5c4-d3e2f1a0b9c8",
    }
    assert value(metrics, "cdigen_device_cause", **device, cause="xid-79") == 1
    assert value(metrics, "cdigen_device_cause", **device, cause="xid-48") == 1
    metrics.show_devices(unhealthy())
    assert by_label(metrics, "cdigen_device_cause", "cause") == []


def test_a_device_of_unknown_health_has_no_series(metrics: DaemonMetrics) -> None:
    metrics.show(next_status(STARTING, CHANGED, {}))
    whole = example()["nvidia"]
    blank = tuple(replace(gpu, health="unknown") for gpu in whole.accelerators)
    metrics.show_devices(known_devices({"nvidia": replace(whole, accelerators=blank)}, (DEFAULT,)))
    assert by_label(metrics, "cdigen_device_health", "device") == []


def test_a_text_of_the_kernels_log_is_never_a_label(metrics: DaemonMetrics) -> None:
    metrics.show(next_status(STARTING, CHANGED, {}))
    texts = (f"Xid {number}: {'x' * 99}" for number in range(100))
    metrics.show_devices(unhealthy(*(replace(FELL, cause=text, detail="y" * 999) for text in texts)))
    assert [cause for cause, _ in by_label(metrics, "cdigen_device_cause", "cause")] == ["other"]


def test_the_number_of_causes_of_a_device_is_limited(metrics: DaemonMetrics) -> None:
    metrics.show(next_status(STARTING, CHANGED, {}))
    metrics.show_devices(unhealthy(*(replace(FELL, cause=f"xid-{number}") for number in range(1000))))
    assert len(by_label(metrics, "cdigen_device_cause", "cause")) == 16
