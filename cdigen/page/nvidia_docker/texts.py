"""The texts of nvidia-docker 1.0: ``info_text``, ``status_text``.

The texts are identical to the output of Go's template and tabwriter. In consecutive lines that have a name
and a value, the values form one column. The number 0 is printed as 0, an unknown value as ``N/A``.
"""

from __future__ import annotations

from itertools import groupby

from cdigen.host.root import shown
from cdigen.page.nvidia_docker.documents import device_info, device_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from cdigen.page.nvidia_docker.devices import NvidiaDockerDevice

    # A line, or a name and its value.
    Line = str | tuple[str, str]

_LINKS = (
    "N/A",
    "Cross CPU socket",
    "Same CPU socket",
    "Host PCI bridge",
    "Multiple PCI switches",
    "Single PCI switch",
    "Same board",
)
_UNKNOWN = "N/A"


def info_text(driver: str, cuda: str, devices: Iterable[NvidiaDockerDevice]) -> str:
    """Return the text /gpu/info of DEVICES; DRIVER and CUDA are versions."""
    lines: list[Line] = ["", ("Driver version:  ", driver), ("Supported CUDA version:  ", cuda), ""]
    for number, device in enumerate(devices):
        lines += [f"Device #{number}", *_info(device_info(device)), ""]
    return _aligned([*lines, ""])


def status_text(devices: Iterable[NvidiaDockerDevice]) -> str:
    """Return the text /gpu/status of DEVICES."""
    lines: list[Line] = [""]
    for number, device in enumerate(devices):
        lines += [f"Device #{number}", *_status(device_info(device), device_status(device)), ""]
    return _aligned([*lines, ""])


def _info(document: dict[str, Any]) -> Iterator[Line]:
    memory, pci, clocks = document["Memory"], document["PCI"], document["Clocks"]
    yield "  Model:  ", _or(document["Model"])
    yield "  UUID:  ", document["UUID"]
    yield "  Path:  ", document["Path"]
    yield "  Family: ", _or(document["Family"])
    yield "  Arch:  ", _or(document["Arch"])
    yield "  Cores:  ", _or(document["Cores"])
    yield "  Power:  ", _or(document["Power"], "W")
    yield "  CPU Affinity:  ", f"NUMA node{document['CPUAffinity']}"
    yield "  PCI"
    yield "    Bus ID:  ", pci["BusID"]
    yield "    BAR1:  ", _or(pci["BAR1"], "MiB")
    yield "    Bandwidth:  ", _or(pci["Bandwidth"], "MB/s")
    yield "  Memory"
    yield "    ECC:  ", _or(memory["ECC"])
    yield "    Global:  ", _or(memory["Global"], "MiB")
    yield "    Constant:  ", _or(memory["Constant"], "KiB")
    yield "    Shared:  ", _or(memory["Shared"], "KiB")
    yield "    L2 Cache:  ", _or(memory["L2Cache"], "KiB")
    yield "    Bandwidth:  ", _or(memory["Bandwidth"], "MB/s")
    yield "  Clocks"
    yield "    Cores:  ", _or(clocks["Cores"], "MHz")
    yield "    Memory:  ", _or(clocks["Memory"], "MHz")
    if not document["Topology"]:
        yield "  P2P Available:  ", "None"
        return
    yield "  P2P Available"
    for link in document["Topology"]:
        yield f"    {link['BusID']} - {_LINKS[link['Link']]}"


def _status(info: dict[str, Any], document: dict[str, Any]) -> Iterator[Line]:
    used, memory, pci = document["Utilization"], document["Memory"], document["PCI"]
    errors, rates = memory["ECCErrors"], pci["Throughput"]
    yield "  Power:  ", _of(document["Power"], info["Power"], "W")
    yield "  Temperature:  ", _or(document["Temperature"], "°C")
    yield "  Utilization"
    for name in ("GPU", "Memory", "Encoder", "Decoder"):
        yield f"    {name}:  ", _or(used[name], "%")
    yield "  Memory"
    yield "    Global:  ", _of(memory["GlobalUsed"], info["Memory"]["Global"], "MiB")
    yield "    ECC Errors"
    for name, key in (("L1 Cache", "L1Cache"), ("L2 Cache", "L2Cache"), ("Global", "Global")):
        yield f"      {name}:  ", _or(errors[key])
    yield "  PCI"
    yield "    BAR1:  ", _of(pci["BAR1Used"], info["PCI"]["BAR1"], "MiB")
    yield "    Throughput"
    yield "      RX:  ", _or(rates["RX"], "MB/s")
    yield "      TX:  ", _or(rates["TX"], "MB/s")
    yield "  Clocks"
    yield "    Cores:  ", _or(document["Clocks"]["Cores"], "MHz")
    yield "    Memory:  ", _or(document["Clocks"]["Memory"], "MHz")
    if not document["Processes"]:
        yield "  Processes:  ", "None"
        return
    yield "  Processes"
    for process in document["Processes"]:
        yield "    - PID:  ", str(process["PID"])
        yield "      Name:  ", process["Name"]
        yield "      Memory:  ", f"{process['MemoryUsed']} MiB"


def _or(value: Any, unit: str = "") -> str:
    if value is None:
        return _UNKNOWN
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{text} {unit}" if unit else text


def _of(used: int | None, total: int | None, unit: str) -> str:
    return _UNKNOWN if used is None or total is None else f"{used} / {total} {unit}"


def _aligned(lines: list[Line]) -> str:
    """Return LINES as a text. In consecutive lines that have a name and a value, the values form a column."""
    made: list[str] = []
    for has_value, group in groupby(lines, key=lambda line: isinstance(line, tuple)):
        several = list(group)
        width = max(len(line[0]) for line in several) if has_value else 0
        made += [
            f"{line[0]:<{width}}{shown(line[1])}" if isinstance(line, tuple) else shown(line)
            for line in several
        ]
    return "\n".join(made)
