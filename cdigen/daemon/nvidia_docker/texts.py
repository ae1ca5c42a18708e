"""1.0's texts for people: ``info_text``, ``status_text``, as Go's template and tabwriter packages made them.

Values stand in one column wherever lines with a name follow each other. A number that is 0 is shown; what is
unknown is ``N/A``.
"""

from __future__ import annotations

from itertools import groupby

from cdigen.daemon.nvidia_docker.documents import device_info, device_status
from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from cdigen.daemon.nvidia_docker.devices import Device

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


def info_text(driver: str, cuda: str, devices: Iterable[Device]) -> str:
    """Return /gpu/info of DEVICES; DRIVER and CUDA are versions."""
    lines: list[Line] = ["", ("Driver version:  ", driver), ("Supported CUDA version:  ", cuda), ""]
    for number, device in enumerate(devices):
        lines += [f"Device #{number}", *_info(device_info(device)), ""]
    return _aligned([*lines, ""])


def status_text(devices: Iterable[Device]) -> str:
    """Return /gpu/status of DEVICES."""
    lines: list[Line] = [""]
    for number, device in enumerate(devices):
        lines += [f"Device #{number}", *_status(device_info(device), device_status(device)), ""]
    return _aligned([*lines, ""])


def _info(told: dict[str, Any]) -> Iterator[Line]:
    memory, pci, clocks = told["Memory"], told["PCI"], told["Clocks"]
    yield "  Model:  ", _or(told["Model"])
    yield "  UUID:  ", told["UUID"]
    yield "  Path:  ", told["Path"]
    yield "  Family: ", _or(told["Family"])
    yield "  Arch:  ", _or(told["Arch"])
    yield "  Cores:  ", _or(told["Cores"])
    yield "  Power:  ", _or(told["Power"], "W")
    yield "  CPU Affinity:  ", f"NUMA node{told['CPUAffinity']}"
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
    if not told["Topology"]:
        yield "  P2P Available:  ", "None"
        return
    yield "  P2P Available"
    for peer in told["Topology"]:
        yield f"    {peer['BusID']} - {_LINKS[peer['Link']]}"


def _status(known: dict[str, Any], told: dict[str, Any]) -> Iterator[Line]:
    used, memory, pci = told["Utilization"], told["Memory"], told["PCI"]
    errors, rates = memory["ECCErrors"], pci["Throughput"]
    yield "  Power:  ", _of(told["Power"], known["Power"], "W")
    yield "  Temperature:  ", _or(told["Temperature"], "°C")
    yield "  Utilization"
    for name in ("GPU", "Memory", "Encoder", "Decoder"):
        yield f"    {name}:  ", _or(used[name], "%")
    yield "  Memory"
    yield "    Global:  ", _of(memory["GlobalUsed"], known["Memory"]["Global"], "MiB")
    yield "    ECC Errors"
    for name, key in (("L1 Cache", "L1Cache"), ("L2 Cache", "L2Cache"), ("Global", "Global")):
        yield f"      {name}:  ", _or(errors[key])
    yield "  PCI"
    yield "    BAR1:  ", _of(pci["BAR1Used"], known["PCI"]["BAR1"], "MiB")
    yield "    Throughput"
    yield "      RX:  ", _or(rates["RX"], "MB/s")
    yield "      TX:  ", _or(rates["TX"], "MB/s")
    yield "  Clocks"
    yield "    Cores:  ", _or(told["Clocks"]["Cores"], "MHz")
    yield "    Memory:  ", _or(told["Clocks"]["Memory"], "MHz")
    if not told["Processes"]:
        yield "  Processes:  ", "None"
        return
    yield "  Processes"
    for process in told["Processes"]:
        yield "    - PID:  ", str(process["PID"])
        yield "      Name:  ", process["Name"]
        yield "      Memory:  ", f"{process['MemoryUsed']} MiB"


def _or(known: Any, unit: str = "") -> str:
    if known is None:
        return _UNKNOWN
    text = str(known).lower() if isinstance(known, bool) else str(known)
    return f"{text} {unit}" if unit else text


def _of(used: int | None, total: int | None, unit: str) -> str:
    return _UNKNOWN if used is None or total is None else f"{used} / {total} {unit}"


def _aligned(lines: list[Line]) -> str:
    """Return LINES as a text, the values of neighbours that have names one below the other."""
    made: list[str] = []
    for has_value, group in groupby(lines, key=lambda line: isinstance(line, tuple)):
        several = list(group)
        width = max(len(line[0]) for line in several) if has_value else 0
        made += [
            f"{line[0]:<{width}}{shown(line[1])}" if isinstance(line, tuple) else shown(line)
            for line in several
        ]
    return "\n".join(made)
