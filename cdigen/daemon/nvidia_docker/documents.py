"""1.0's JSON: ``info``, ``status``, ``encoded``; and what Mesos' agent was given, ``mesos``.

Fields stand in 1.0's order, and what is unknown is null. Its programs read them into fixed types: so none is
added.
"""

from __future__ import annotations

import base64
import json
import zlib

from cdigen.daemon.nvidia_docker.devices import mega, mib, whole
from cdigen.model.figures import DeviceFigures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.daemon.nvidia_docker.devices import Device
    from cdigen.pipeline.arguments import DockerArguments

# Of every architecture so far (CUDA C++ Programming Guide, Technical Specifications).
_CONSTANT_KIB = 64
# KiB of shared memory of a multiprocessor, by compute capability (the same table).
_SHARED_KIB = {
    "3.0": 48, "3.2": 48, "3.5": 48, "3.7": 112, "5.0": 64, "5.2": 96, "5.3": 64, "6.0": 64, "6.1": 96,
    "6.2": 64, "7.0": 96, "7.2": 96, "7.5": 64, "8.0": 164, "8.6": 100, "8.7": 164, "8.9": 100,
    "9.0": 228, "10.0": 228, "12.0": 100,
}  # fmt: skip
# Go's encoder writes these in this way, as its output may stand in HTML.
_GO_ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def info(driver: str, cuda: str, devices: Iterable[Device]) -> dict[str, Any]:
    """Return /gpu/info/json of DEVICES; DRIVER and CUDA are versions."""
    return {
        "Version": {"Driver": driver, "CUDA": cuda},
        "Devices": [device_info(device) for device in devices],
    }


def device_info(device: Device) -> dict[str, Any]:
    """Return what /gpu/info/json says of DEVICE."""
    figures, gpu = device.figures, device.accelerator
    arch = device.compute_capability
    return {
        "UUID": device.uuid,
        "Path": device.path,
        "Model": gpu.model or None,
        "Power": whole(figures.power_limit) if figures else None,
        # 1.0 said 0 where the kernel does not know.
        "CPUAffinity": gpu.numa_node or 0,
        "PCI": {
            "BusID": device.bus_id,
            "BAR1": mib(figures.bar1_total) if figures else None,
            "Bandwidth": device.lane_mb_s,
        },
        "Clocks": {
            "Cores": figures.core_clock_max if figures else None,
            "Memory": figures.memory_clock_max if figures else None,
        },
        "Topology": [{"BusID": bus_id, "Link": link} for bus_id, link in device.peers] or None,
        "Family": device.family,
        "Arch": arch,
        "Cores": figures.cores if figures else None,
        "Memory": {
            "ECC": figures.ecc_enabled if figures else None,
            "Global": device.memory_mib,
            "Shared": _SHARED_KIB.get(arch or ""),
            "Constant": _CONSTANT_KIB if arch else None,
            "L2Cache": None,
            "Bandwidth": device.memory_mb_s,
        },
    }


def status(devices: Iterable[Device]) -> dict[str, Any]:
    """Return /gpu/status/json of DEVICES."""
    return {"Devices": [device_status(device) for device in devices]}


def device_status(device: Device) -> dict[str, Any]:
    """Return what /gpu/status/json says of DEVICE."""
    told = device.figures or DeviceFigures(address=device.accelerator.address)
    processes = [
        {"PID": each.pid, "Name": each.name, "MemoryUsed": mib(each.memory) or 0}
        for each in told.processes or ()
    ]
    return {
        "Power": whole(told.power),
        "Temperature": whole(told.temperature),
        "Utilization": {
            "GPU": whole(told.utilization),
            "Memory": whole(told.memory_utilization),
            "Encoder": whole(told.encoder_utilization),
            "Decoder": whole(told.decoder_utilization),
        },
        "Memory": {
            "GlobalUsed": mib(told.memory_used),
            "ECCErrors": {"L1Cache": told.ecc_l1, "L2Cache": told.ecc_l2, "Global": told.ecc_memory},
        },
        "Clocks": {"Cores": told.core_clock, "Memory": told.memory_clock},
        "PCI": {
            "BAR1Used": mib(told.bar1_used),
            "Throughput": {"RX": mega(told.pcie_received), "TX": mega(told.pcie_sent)},
        },
        "Processes": processes or None,
    }


def docker(wanted: DockerArguments) -> dict[str, Any]:
    """Return /docker/cli/json of WANTED; groups, which 1.0 did not know, only where there are any."""
    told: dict[str, Any] = {
        "VolumeDriver": "",
        "Volumes": list(wanted.volumes),
        "Devices": list(wanted.devices),
    }
    return {**told, "Groups": list(wanted.groups)} if wanted.groups else told


def encoded(document: Any) -> bytes:
    """Return DOCUMENT as Go's encoder writes it, with the line's end."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f"{text.translate(_GO_ESCAPES)}\n".encode("utf-8", "replace")


def mesos(driver: str, cuda: str, devices: Iterable[Device]) -> str:
    """Return the options of Mesos' agent for DEVICES: all that is known of them packed, and their UUIDs."""
    known = tuple(devices)
    packed = base64.urlsafe_b64encode(zlib.compress(encoded(info(driver, cuda, known)))).decode().rstrip("=")
    names = ",".join(device.uuid for device in known)
    return f"--attributes=gpus:{packed} --resources=gpus:{{{names}}}"
