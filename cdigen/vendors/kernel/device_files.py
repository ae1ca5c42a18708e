"""Read files of devices whose drivers may hang while they ask the device: ``read_devices``, in a child.

Most files of /sys are answered from memory. Those of sensors and error counters make a driver ask its device,
which may take seconds, or for ever while the device is being reset.
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
# How far apart counters are read twice.
APART_S = 0.2
NO_ANSWER = "its driver does not answer"


@frozen
class DeviceFiles:
    """What the files of one device said: ``texts`` by path, and how fast counters rose, in each second.

    Files that could not be read are left out. ``problem`` says why nothing was read, or is empty.
    """

    texts: Mapping[str, str]
    rates: Mapping[str, float]
    problem: str = ""

    def number(self, path: str) -> int | None:
        """Return the number that the file PATH holds, None where there is none."""
        text = self.texts.get(path, "").strip()
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


@frozen
class Wanted:
    """What to read of one device: files, and counters that are read twice."""

    files: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()


def read_devices(
    host: Root, devices: Mapping[str, Wanted], *, deadline_s: float = DEADLINE_S
) -> dict[str, DeviceFiles]:
    """Read what is WANTED of each of DEVICES, by their addresses; never raises.

    A device that does not answer in DEADLINE_S keeps no other from being read.
    """
    if not devices:
        return {}
    from cdigen.host import childprocess  # noqa: PLC0415 - most runs of cdigen start no child

    places = {address: _places(host, wanted) for address, wanted in devices.items()}
    request = {
        address: {"files": list(files), "counters": list(counters), "apart_s": APART_S}
        for address, (files, counters) in places.items()
    }
    command = (os.path.realpath(sys.executable), "-I", "-S", PROGRAM)
    try:
        result = childprocess.run(command, deadline_s=deadline_s, stdin=json.dumps(request).encode())
    except OSError as error:
        return dict.fromkeys(devices, _nothing(f"no child could be started: {reason(error)}"))
    told: dict[str, DeviceFiles] = dict.fromkeys(devices, _nothing(NO_ANSWER))
    # The last line may have been cut off.
    for line in result.output.split(b"\n")[:-1]:
        address, files = _read(line, places)
        if address in told:
            told[address] = files
    return told


def _places(host: Root, wanted: Wanted) -> tuple[dict[str, str], dict[str, str]]:
    """Return the paths on this machine of what is WANTED, with the paths that were asked for."""
    return _resolved(host, wanted.files), _resolved(host, wanted.counters)


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
    told = json.loads(line)
    files, counters = places[told["device"]]
    rates = {
        counters[place]: (second - first) / seconds
        for place, (first, second, seconds) in told["counters"].items()
        if second >= first and seconds > 0
    }
    texts = {files[place]: text for place, text in told["files"].items()}
    return told["device"], DeviceFiles(texts=texts, rates=rates)


def _nothing(problem: str) -> DeviceFiles:
    return DeviceFiles(texts={}, rates={}, problem=problem)
