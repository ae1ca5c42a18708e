"""Read the current statistics of Intel's devices (``STATS``).

The names and units of the files are from the kernel's
Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon, sysfs-driver-intel-i915-hwmon and
sysfs-driver-habanalabs, and from drivers/gpu/drm/xe/{xe_gt_freq,xe_tile_sysfs}.c, i915/i915_sysfs.c and
drivers/accel/ivpu/ivpu_sysfs.c. The drivers report the utilization of a GPU only per program.
"""

from __future__ import annotations

from cdigen.host.procfs import number_behind
from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.stats import DeviceStats
from cdigen.value import replace
from cdigen.vendors.intel.presence import GAUDI, GPU, NPU
from cdigen.vendors.kernel.device_files import DEADLINE_S, DeviceFiles, read_devices
from cdigen.vendors.kernel.drm.clients import ROLES, processes_of, read_clients
from cdigen.vendors.kernel.pci.health import is_suspended
from cdigen.vendors.kernel.sensors import SUSPENDED, Sensors, files_to_read, mhz

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.context import DiscoveryContext

_BUSY = "npu_busy_time_us"
_NPU_FILES = ("npu_memory_utilization", "npu_current_frequency_mhz", "npu_max_frequency_mhz")
_GAUDI_FILES = ("clk_cur_freq_mhz", "clk_max_freq_mhz")
_VRAM = "physical_vram_size_bytes"
_CLASSES = (GPU, NPU, GAUDI)


def read_stats(
    context: DiscoveryContext, inventory: Inventory, *, deadline_s: float = DEADLINE_S
) -> tuple[DeviceStats, ...]:
    """Return the statistics of each GPU, NPU and Gaudi in INVENTORY; raise no exception.

    The function does not resume suspended devices. A device that does not answer within DEADLINE_S does not
    delay the other devices.
    """
    host = context.host
    devices = [device for device in inventory.accelerators if device.device_class in _CLASSES]
    names = {
        device.address: _names(host, device) for device in devices if not is_suspended(host, device.address)
    }
    requests = {
        address: files_to_read(host, f"{PCI_DEVICES}/{address}", files, (_BUSY,))
        for address, files in names.items()
        if address
    }
    results = read_devices(host, requests, deadline_s=deadline_s)
    gpus = [device for device in devices if device.device_class == GPU and device.address in requests]
    nodes = [node for device in gpus for node in device.nodes if node.role in ROLES]
    clients = read_clients(host, nodes, deadline_s=deadline_s)
    processes = {
        device.address: processes_of(host, clients.by_address.get(device.address, {}))
        for device in gpus
        if clients.is_complete
    }
    return tuple(
        replace(_of_device(device, results.get(device.address)), processes=processes.get(device.address))
        for device in devices
    )


def _names(host: Root, device: Accelerator) -> tuple[str, ...]:
    """Return the files with statistics in the folder of DEVICE."""
    if device.device_class == NPU:
        return _NPU_FILES
    if device.device_class == GAUDI:
        return _GAUDI_FILES
    folder = f"{PCI_DEVICES}/{device.address}"
    tiles = [name for name in host.names(folder) if number_behind("tile", name) is not None]
    cards = [name for name in host.names(f"{folder}/drm") if number_behind("card", name) is not None]
    return (
        *(f"{tile}/{_VRAM}" for tile in tiles),
        *(f"tile0/gt0/freq0/{name}" for name in ("act_freq", "rp0_freq")),
        *(f"drm/{card}/{name}" for card in cards for name in _CARD),
    )


# Files of i915 in the folder of the card. Only the i915 releases that Intel ships separately have the files
# with the memory size.
_CARD = ("gt_act_freq_mhz", "gt_RP0_freq_mhz", "lmem_total_bytes", "lmem_avail_bytes")


def _of_device(device: Accelerator, files: DeviceFiles | None) -> DeviceStats:
    if files is None:
        problem = SUSPENDED if device.address else "the PCI address is not known"
        return DeviceStats(address=device.address, problem=problem)
    if files.problem:
        return DeviceStats(address=device.address, problem=files.problem)
    folder = f"{PCI_DEVICES}/{device.address}"
    sensors = Sensors(files, folder)
    by_name = {path.rpartition("/")[2]: path.removeprefix(f"{folder}/") for path in files.texts}

    def number(*names: str) -> int | None:
        return next((sensors.number(by_name[name]) for name in names if name in by_name), None)

    total, used = _memory(files, number("lmem_total_bytes"), number("lmem_avail_bytes"))
    return replace(
        sensors.stats(device.address),
        memory_total=total,
        memory_used=number("npu_memory_utilization") if device.device_class == NPU else used,
        utilization=_busy(sensors.rate(_BUSY)),
        temperature=sensors.temperature("pkg", "package"),
        core_clock=mhz(
            number("act_freq", "gt_act_freq_mhz", "npu_current_frequency_mhz", "clk_cur_freq_mhz")
        ),
        core_clock_max=mhz(
            number("rp0_freq", "gt_RP0_freq_mhz", "npu_max_frequency_mhz", "clk_max_freq_mhz")
        ),
    )


def _memory(files: DeviceFiles, total: int | None, available: int | None) -> tuple[int | None, int | None]:
    """Return the size and the used size of a GPU's memory in bytes. The size includes all tiles."""
    tiles = [files.number(path) for path in files.texts if path.endswith(f"/{_VRAM}")]
    if tiles:
        return (sum(size for size in tiles if size) or None) if None not in tiles else None, None
    if not total:
        return None, None
    return total, total - available if available is not None and available <= total else None


def _busy(microseconds_a_second: float | None) -> float | None:
    if microseconds_a_second is None:
        return None
    return round(min(microseconds_a_second / 10_000, 100.0), 1)


STATS = read_stats
