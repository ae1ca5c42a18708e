"""Read files in /sys by a child process, because a driver may hang (``read_devices``).

For most files in /sys, the kernel reads only its memory. For sensors and error counters, the driver queries
the device. The query may take seconds. During a reset of the device, the query may never end.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from cdigen.host.root import reason
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root

PROGRAM = str(Path(__file__).parent / "device_files_child.py")
DEADLINE_S = 5.0
NO_ANSWER = "its driver does not answer"


@frozen
class DeviceFiles:
    """The content of the files of one device.

    ``texts`` maps a path to the text of the file. ``rates`` maps the path of a counter to its increase per
    second. Files that could not be read are left out. ``problem`` is set if the driver did not answer before
    the deadline, or if the child process could not be started.
    """

    texts: Mapping[str, str]
    rates: Mapping[str, float]
    problem: str = ""

    def number(self, path: str) -> int | None:
        """Return the number in the file PATH, or None if the file was not read or has no number."""
        text = self.texts.get(path, "").strip()
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


@frozen
class FilesToRead:
    """The files of one device to read once, and the counters to read twice."""

    files: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()


def read_devices(
    host: Root, devices: Mapping[str, FilesToRead], *, deadline_s: float = DEADLINE_S
) -> dict[str, DeviceFiles]:
    """Return the content of the files in DEVICES; raise no exception.

    DEVICES and the result are mappings by device address. The child process has DEADLINE_S seconds. A device
    that does not answer in this time does not delay the other devices.
    """
    if not devices:
        return {}
    from cdigen.host import childprocess  # noqa: PLC0415 - most runs of cdigen start no child

    # Two mappings from a path on this machine to the requested path, for files and for counters.
    places = {
        address: (_resolved(host, entry.files), _resolved(host, entry.counters))
        for address, entry in devices.items()
    }
    request = {
        address: {"files": list(files), "counters": list(counters)}
        for address, (files, counters) in places.items()
    }
    command = (os.path.realpath(sys.executable), "-I", "-S", PROGRAM)
    try:
        result = childprocess.run(command, deadline_s=deadline_s, stdin=json.dumps(request).encode())
    except OSError as error:
        return dict.fromkeys(devices, _without_files(f"cannot start a child process: {reason(error)}"))
    results: dict[str, DeviceFiles] = dict.fromkeys(devices, _without_files(NO_ANSWER))
    # The last line may be incomplete.
    for line in result.output.split(b"\n")[:-1]:
        address, files = _read(line, places)
        if address in results:
            results[address] = files
    return results


def problems(results: Mapping[str, DeviceFiles]) -> str:
    """Return the problems in RESULTS, a result of ``read_devices``, as a text."""
    return "; ".join(f"{address}: {files.problem}" for address, files in results.items() if files.problem)


def _resolved(host: Root, paths: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for path in paths:
        try:
            found[host.outer_path(host.resolve(path))] = path
        except OSError:
            continue
    return found


def _read(
    line: bytes, places: Mapping[str, tuple[dict[str, str], dict[str, str]]]
) -> tuple[str, DeviceFiles]:
    reply = json.loads(line)
    files, counters = places[reply["device"]]
    rates = {
        counters[place]: (second - first) / seconds
        for place, (first, second, seconds) in reply["counters"].items()
        if second >= first and seconds > 0
    }
    texts = {files[place]: text for place, text in reply["files"].items()}
    return reply["device"], DeviceFiles(texts=texts, rates=rates)


def _without_files(problem: str) -> DeviceFiles:
    return DeviceFiles(texts={}, rates={}, problem=problem)
