"""The documents of nvidia-docker 1.0: ``info``, ``status``, ``docker``, ``mesos``; ``encoded`` makes JSON.

The fields have the order of nvidia-docker 1.0. An unknown value is null. Programs for nvidia-docker 1.0 read
the documents into fixed types, so cdigen adds only the field "Groups" of ``docker``.
"""

from __future__ import annotations

import base64
import json
import zlib

from cdigen.model.stats import DeviceStats
from cdigen.page.nvidia_docker.devices import mega, mib, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.page.nvidia_docker.devices import NvidiaDockerDevice
    from cdigen.pipeline.arguments import DockerArguments

# Constant memory in KiB. It is the same for all architectures so far (CUDA C++ Programming Guide, Technical
# Specifications).
_CONSTANT_KIB = 64
# Shared memory of a multiprocessor in KiB, by compute capability (the same table).
_SHARED_KIB = {
    "3.0": 48, "3.2": 48, "3.5": 48, "3.7": 112, "5.0": 64, "5.2": 96, "5.3": 64, "6.0": 64, "6.1": 96,
    "6.2": 64, "7.0": 96, "7.2": 96, "7.5": 64, "8.0": 164, "8.6": 100, "8.7": 164, "8.9": 100,
    "9.0": 228, "10.0": 228, "12.0": 100,
}  # fmt: skip
# Characters that Go's encoder escapes, because its output may be used in HTML.
_GO_ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def info(driver: str, cuda: str, devices: Iterable[NvidiaDockerDevice]) -> dict[str, Any]:
    """Return the document /gpu/info/json of DEVICES; DRIVER and CUDA are versions."""
    return {
        "Version": {"Driver": driver, "CUDA": cuda},
        "Devices": [device_info(device) for device in devices],
    }


def device_info(device: NvidiaDockerDevice) -> dict[str, Any]:
    """Return the entry of DEVICE in /gpu/info/json."""
    stats, gpu = device.stats, device.accelerator
    arch = device.compute_capability
    return {
        "UUID": device.uuid,
        "Path": device.path,
        "Model": gpu.model or None,
        "Power": whole(stats.power_limit) if stats else None,
        # nvidia-docker 1.0 reports 0 if the kernel reports no NUMA node.
        "CPUAffinity": gpu.numa_node or 0,
        "PCI": {
            "BusID": device.bus_id,
            "BAR1": mib(stats.bar1_total) if stats else None,
            "Bandwidth": device.lane_mb_s,
        },
        "Clocks": {
            "Cores": stats.core_clock_max if stats else None,
            "Memory": stats.memory_clock_max if stats else None,
        },
        "Topology": [{"BusID": bus_id, "Link": link} for bus_id, link in device.links] or None,
        "Family": device.family,
        "Arch": arch,
        "Cores": stats.cores if stats else None,
        "Memory": {
            "ECC": stats.ecc_enabled if stats else None,
            "Global": device.memory_mib,
            "Shared": _SHARED_KIB.get(arch or ""),
            "Constant": _CONSTANT_KIB if arch else None,
            "L2Cache": None,
            "Bandwidth": device.memory_mb_s,
        },
    }


def status(devices: Iterable[NvidiaDockerDevice]) -> dict[str, Any]:
    """Return the document /gpu/status/json of DEVICES."""
    return {"Devices": [device_status(device) for device in devices]}


def device_status(device: NvidiaDockerDevice) -> dict[str, Any]:
    """Return the entry of DEVICE in /gpu/status/json."""
    stats = device.stats or DeviceStats(address=device.accelerator.address)
    processes = [
        {"PID": each.pid, "Name": each.name, "MemoryUsed": mib(each.memory) or 0}
        for each in stats.processes or ()
    ]
    return {
        "Power": whole(stats.power),
        "Temperature": whole(stats.temperature),
        "Utilization": {
            "GPU": whole(stats.utilization),
            "Memory": whole(stats.memory_utilization),
            "Encoder": whole(stats.encoder_utilization),
            "Decoder": whole(stats.decoder_utilization),
        },
        "Memory": {
            "GlobalUsed": mib(stats.memory_used),
            "ECCErrors": {"L1Cache": stats.ecc_l1, "L2Cache": stats.ecc_l2, "Global": stats.ecc_memory},
        },
        "Clocks": {"Cores": stats.core_clock, "Memory": stats.memory_clock},
        "PCI": {
            "BAR1Used": mib(stats.bar1_used),
            "Throughput": {"RX": mega(stats.pcie_received), "TX": mega(stats.pcie_sent)},
        },
        "Processes": processes or None,
    }


def docker(arguments: DockerArguments) -> dict[str, Any]:
    """Return the document /docker/cli/json of ARGUMENTS.

    The field "Groups" is not part of nvidia-docker 1.0. The document has this field only if ARGUMENTS has
    groups.
    """
    document: dict[str, Any] = {
        "VolumeDriver": "",
        "Volumes": list(arguments.volumes),
        "Devices": list(arguments.devices),
    }
    return {**document, "Groups": list(arguments.groups)} if arguments.groups else document


def encoded(document: Any) -> bytes:
    """Return DOCUMENT in the format of Go's encoder, with a newline at the end."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f"{text.translate(_GO_ESCAPES)}\n".encode("utf-8", "replace")


def mesos(driver: str, cuda: str, devices: Iterable[NvidiaDockerDevice]) -> str:
    """Return the options of Mesos' agent for DEVICES: the compressed ``info``, and the UUIDs."""
    known = tuple(devices)
    packed = base64.urlsafe_b64encode(zlib.compress(encoded(info(driver, cuda, known)))).decode().rstrip("=")
    names = ",".join(device.uuid for device in known)
    return f"--attributes=gpus:{packed} --resources=gpus:{{{names}}}"
