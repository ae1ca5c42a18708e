"""Figures as a scrape sees them, read by Prometheus's own parser."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.values.unhealthy_gpus import example

from cdigen.daemon.figure_metrics import UnknownCollector, wants_figures
from cdigen.daemon.figures import PENDING, VendorFigures
from cdigen.daemon.metrics import DaemonMetrics
from cdigen.model.figures import MAX_PROCESSES, DeviceFigures, DeviceProcess
from cdigen.model.inventory import Inventory
from cdigen.model.profile import DEFAULT
from cdigen.pipeline.device_names import known_devices
from cdigen.value import fields

# Every figure, of an address that is filled in.
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


def samples(metrics: DaemonMetrics, *answers: VendorFigures) -> dict[tuple[str, ...], float]:
    """Return the values of figures by name, device and further label."""
    own = {"vendor", "device", "address", "uuid"}
    return {
        (
            sample.name,
            sample.labels.get("device", sample.labels.get("vendor", "")),
            *(value for name, value in sample.labels.items() if name not in own),
        ): sample.value
        for family in text_string_to_metric_families(metrics.render(answers).decode())
        for sample in family.samples
        if sample.name.startswith(("cdigen_device_", "cdigen_figures_"))
    }


def figures(inventory: Inventory, **values: object) -> VendorFigures:
    """Return VALUES as the figures of every GPU of INVENTORY and of its partitions."""
    devices = tuple(
        DeviceFigures(address=gpu.address, instance=instance, **values)  # type: ignore[arg-type]
        for gpu in inventory.accelerators
        for instance in ("", *(part.instance for part in gpu.partitions))
    )
    return VendorFigures(vendor=inventory.vendor, devices=devices, at_s=1.0)


def test_figures_are_in_the_units_of_prometheus() -> None:
    inventory = example()["nvidia"]
    found = samples(metrics_of(inventory), figures(inventory, **FULL))
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
    assert found["cdigen_figures_success", "nvidia"] == 1


def test_labels_are_those_of_the_devices_health() -> None:
    inventory = example()["nvidia"]
    text = metrics_of(inventory).render((figures(inventory, power=1.0),)).decode()
    (family,) = (each for each in text_string_to_metric_families(text) if "power_watts" in each.name)
    for gpu, sample in zip(inventory.accelerators, family.samples, strict=True):
        assert sample.labels == {
            "vendor": "nvidia",
            "device": f"nvidia.com/gpu={gpu.index}",
            "address": gpu.address,
            "uuid": gpu.uuid,
        }


def test_what_is_unknown_has_no_series() -> None:
    inventory = example()["nvidia"]
    unknown = figures(inventory, problem="NVML did not answer within 10 s")
    assert samples(metrics_of(inventory), unknown) == {("cdigen_figures_success", "nvidia"): 0}
    pending = VendorFigures(vendor="nvidia", problem=PENDING)
    assert samples(metrics_of(inventory), pending) == {("cdigen_figures_success", "nvidia"): 0}


def test_processes_are_counted_and_not_named() -> None:
    inventory = example()["nvidia"]
    many = tuple(DeviceProcess(pid=pid, name=f"job-{pid}", memory=pid) for pid in range(MAX_PROCESSES))
    metrics = metrics_of(inventory)
    found = samples(metrics, figures(inventory, processes=many))
    assert found["cdigen_device_processes", "nvidia.com/gpu=0"] == MAX_PROCESSES
    assert "job-" not in metrics.render((figures(inventory, processes=many),)).decode()


def test_a_device_that_is_gone_has_no_series() -> None:
    inventory = example()["nvidia"]
    stranger = VendorFigures(
        vendor="nvidia", devices=(DeviceFigures(address="0000:ff:00.0", power=1.0),), at_s=1.0
    )
    assert set(samples(metrics_of(inventory), stranger)) == {("cdigen_figures_success", "nvidia")}


def test_a_scrape_without_figures_is_as_before() -> None:
    metrics = metrics_of(example()["nvidia"])
    assert b"cdigen_figures" not in metrics.render()


def test_every_field_of_the_figures_is_a_metric_or_left_out_on_purpose() -> None:
    left_out = {"address", "instance", "problem", "processes"}
    # For who asks for one device: static, or of one place only.
    left_out |= {"ecc_enabled", "ecc_l1", "ecc_l2", "ecc_memory"}
    left_out |= {"memory_bus_width", "cores", "compute_capability"}
    assert set(fields(DeviceFigures(address=""))) == FULL.keys() | left_out


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", False),
        ("collect[]=figures", True),
        ("collect%5B%5D=figures", True),
        ("a=b&collect[]=figures&collect[]=figures", True),
        ("collect=figures", False),
        ("%", False),
    ],
)
def test_a_scrape_asks_by_the_parameter(query: str, *, wanted: bool) -> None:
    assert wants_figures(query) is wanted


@pytest.mark.parametrize("query", ["collect[]=", "collect[]=cpu", "collect[]=%ff", "&".join(["a=b"] * 99)])
def test_what_there_is_not_is_refused(query: str) -> None:
    with pytest.raises(UnknownCollector):
        wants_figures(query)
