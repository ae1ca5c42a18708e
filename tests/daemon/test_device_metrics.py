"""The device stats among the metrics. The tests use the parser of Prometheus."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.values.unhealthy_gpus import example

from cdigen.daemon.metrics.daemon import DaemonMetrics
from cdigen.daemon.metrics.devices import UnknownCollector, requests_stats
from cdigen.daemon.stats import PENDING, VendorStats
from cdigen.model.inventory import Inventory
from cdigen.model.profile import DEFAULT
from cdigen.model.stats import MAX_PROCESSES, DeviceProcess, DeviceStats
from cdigen.pipeline.device_names import known_devices
from cdigen.value import fields

# All stats of a device, without its address.
FULL = {
    "memory_total": 80 << 30,
    "memory_used": 10 << 30,
    "bar1_total": 128 << 30,
    "bar1_used": 2 << 20,
    "utilization": 57,
    "memory_utilization": 31,
    "encoder_utilization": 3,
    "decoder_utilization": 4,
    "temperature": 56,
    "power": 346.12,
    "power_limit": 700,
    "core_clock": 1755,
    "memory_clock": 2619,
    "core_clock_max": 1980,
    "memory_clock_max": 2620,
    "pcie_generation": 4,
    "pcie_generation_max": 5,
    "pcie_width": 8,
    "pcie_width_max": 16,
    "pcie_received": 2_500_000_000,
    "pcie_sent": 1_500_000,
    "ecc_corrected": 12,
    "ecc_uncorrected": 3,
}


def metrics_of(inventory: Inventory) -> DaemonMetrics:
    metrics = DaemonMetrics(())
    metrics.show_devices(known_devices({inventory.vendor: inventory}, (DEFAULT,)))
    return metrics


def samples(metrics: DaemonMetrics, *answers: VendorStats) -> dict[tuple[str, ...], float]:
    """Return the values of the metrics of stats by metric name, device (or vendor) and further labels."""
    own = {"vendor", "device", "address", "uuid"}
    return {
        (
            sample.name,
            sample.labels.get("device", sample.labels.get("vendor", "")),
            *(value for name, value in sample.labels.items() if name not in own),
        ): sample.value
        for family in text_string_to_metric_families(metrics.render(answers).decode())
        for sample in family.samples
        if sample.name.startswith(("cdigen_device_", "cdigen_scrape_"))
    }


def stats_of(inventory: Inventory, **values: object) -> VendorStats:
    """Return VALUES as the stats of every GPU of INVENTORY and of its partitions."""
    devices = tuple(
        DeviceStats(address=gpu.address, instance=instance, **values)  # type: ignore[arg-type]
        for gpu in inventory.accelerators
        for instance in ("", *(part.instance for part in gpu.partitions))
    )
    return VendorStats(vendor=inventory.vendor, devices=devices, at_s=1.0)


def test_stats_have_the_units_of_prometheus() -> None:
    inventory = example()["nvidia"]
    found = samples(metrics_of(inventory), stats_of(inventory, **FULL))
    first = {key[:1] + key[2:]: value for key, value in found.items() if key[1] == "nvidia.com/gpu=0"}
    assert first == {
        ("cdigen_device_memory_bytes",): 80 << 30,
        ("cdigen_device_memory_used_bytes",): 10 << 30,
        ("cdigen_device_bar1_bytes",): 128 << 30,
        ("cdigen_device_bar1_used_bytes",): 2 << 20,
        ("cdigen_device_utilization_ratio", "compute"): 0.57,
        ("cdigen_device_utilization_ratio", "memory"): 0.31,
        ("cdigen_device_utilization_ratio", "encoder"): 0.03,
        ("cdigen_device_utilization_ratio", "decoder"): 0.04,
        ("cdigen_device_temperature_celsius",): 56,
        ("cdigen_device_power_watts",): 346.12,
        ("cdigen_device_power_limit_watts",): 700,
        ("cdigen_device_clock_hertz", "core"): 1_755_000_000,
        ("cdigen_device_clock_hertz", "memory"): 2_619_000_000,
        ("cdigen_device_clock_max_hertz", "core"): 1_980_000_000,
        ("cdigen_device_clock_max_hertz", "memory"): 2_620_000_000,
        ("cdigen_device_pcie_generation",): 4,
        ("cdigen_device_pcie_generation_max",): 5,
        ("cdigen_device_pcie_lanes",): 8,
        ("cdigen_device_pcie_lanes_max",): 16,
        ("cdigen_device_pcie_bytes_per_second", "received"): 2_500_000_000,
        ("cdigen_device_pcie_bytes_per_second", "sent"): 1_500_000,
        ("cdigen_device_ecc_errors_total", "corrected"): 12,
        ("cdigen_device_ecc_errors_total", "uncorrected"): 3,
    }
    assert found["cdigen_scrape_collector_success", "nvidia"] == 1


def test_metrics_of_stats_have_labels_that_identify_the_device() -> None:
    inventory = example()["nvidia"]
    text = metrics_of(inventory).render((stats_of(inventory, power=1.0),)).decode()
    (family,) = (each for each in text_string_to_metric_families(text) if "power_watts" in each.name)
    for gpu, sample in zip(inventory.accelerators, family.samples, strict=True):
        assert sample.labels == {
            "vendor": "nvidia",
            "device": f"nvidia.com/gpu={gpu.index}",
            "address": gpu.address,
            "uuid": gpu.uuid,
        }


def test_an_unknown_value_has_no_series() -> None:
    inventory = example()["nvidia"]
    unknown = stats_of(inventory, problem="NVML did not answer within 10 s")
    assert samples(metrics_of(inventory), unknown) == {("cdigen_scrape_collector_success", "nvidia"): 0}
    pending = VendorStats(vendor="nvidia", problem=PENDING)
    assert samples(metrics_of(inventory), pending) == {("cdigen_scrape_collector_success", "nvidia"): 0}


def test_processes_are_counted_and_not_named() -> None:
    inventory = example()["nvidia"]
    many = tuple(DeviceProcess(pid=pid, name=f"job-{pid}", memory=pid) for pid in range(MAX_PROCESSES))
    metrics = metrics_of(inventory)
    found = samples(metrics, stats_of(inventory, processes=many))
    assert found["cdigen_device_processes", "nvidia.com/gpu=0"] == MAX_PROCESSES
    assert "job-" not in metrics.render((stats_of(inventory, processes=many),)).decode()


def test_stats_of_an_unknown_device_have_no_series() -> None:
    inventory = example()["nvidia"]
    stranger = VendorStats(
        vendor="nvidia", devices=(DeviceStats(address="0000:ff:00.0", power=1.0),), at_s=1.0
    )
    assert set(samples(metrics_of(inventory), stranger)) == {("cdigen_scrape_collector_success", "nvidia")}


def test_a_scrape_without_stats_has_no_series_of_stats() -> None:
    metrics = metrics_of(example()["nvidia"])
    assert b"cdigen_scrape" not in metrics.render()


def test_every_field_of_the_stats_is_a_metric_or_left_out_on_purpose() -> None:
    left_out = {"address", "instance", "problem", "processes"}
    # Static values, or values that only one document shows.
    left_out |= {"ecc_enabled", "ecc_l1", "ecc_l2", "ecc_memory"}
    left_out |= {"memory_bus_width", "cores", "compute_capability"}
    assert set(fields(DeviceStats(address=""))) == FULL.keys() | left_out


@pytest.mark.parametrize(
    ("query", "is_requested"),
    [
        ("", False),
        ("collect[]=devices", True),
        ("collect%5B%5D=devices", True),
        ("a=b&collect[]=devices&collect[]=devices", True),
        ("collect=devices", False),
        ("%", False),
    ],
)
def test_a_scrape_requests_stats_with_the_parameter_collect(query: str, *, is_requested: bool) -> None:
    assert requests_stats(query) is is_requested


@pytest.mark.parametrize("query", ["collect[]=", "collect[]=cpu", "collect[]=%ff", "&".join(["a=b"] * 99)])
def test_an_unknown_collector_is_refused(query: str) -> None:
    with pytest.raises(UnknownCollector):
        requests_stats(query)
