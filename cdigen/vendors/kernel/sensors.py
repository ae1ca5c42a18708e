"""Read statistics in sysfs that have the same form for several vendors: hwmon's sensors and the PCIe link.

The names and units are from the kernel's Documentation/hwmon/sysfs-interface.rst (millidegrees Celsius,
microwatts, microjoules, hertz) and Documentation/ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

import re

from cdigen.model.stats import DeviceStats
from cdigen.vendors.kernel.device_files import FilesToRead
from cdigen.vendors.kernel.pci.place import MOST_LANES, link_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdigen.host.root import Root
    from cdigen.vendors.kernel.device_files import DeviceFiles

SUSPENDED = "the device is suspended, and a query would resume it"
_NEEDED = re.compile(
    r"temp\d+_(?:input|label)|power\d+_(?:average|input|cap|max|rated_max)|freq\d+_(?:input|label)"
)
_ENERGY = re.compile(r"energy\d+_input")
_LINK = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
# GT/s -> generation (PCIe 6.0, 8.2.1)
_GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
# Values outside of these limits are invalid. For example, a broken sensor reports a value with all bits set.
_COLDEST, _HOTTEST, _MOST_WATTS, _MOST_MHZ = -100.0, 200.0, 100_000.0, 100_000


def files_to_read(
    host: Root, folder: str, files: Sequence[str] = (), counters: Sequence[str] = ()
) -> FilesToRead:
    """Return the files to read for the PCI device at FOLDER.

    The result contains the files of the device's sensors and link. It also contains FILES and COUNTERS, which
    are names in FOLDER.
    """
    link = link_folder(host, folder)
    paths = [*(f"{link}/{name}" for name in _LINK), *(f"{folder}/{name}" for name in files)]
    counted = [f"{folder}/{name}" for name in counters]
    for monitor in host.names(f"{folder}/hwmon"):
        for name in host.names(f"{folder}/hwmon/{monitor}"):
            if _NEEDED.fullmatch(name):
                paths.append(f"{folder}/hwmon/{monitor}/{name}")
            elif _ENERGY.fullmatch(name):
                counted.append(f"{folder}/hwmon/{monitor}/{name}")
    return FilesToRead(files=tuple(paths), counters=tuple(counted))


class Sensors:
    """The values in the files of the device at FOLDER. A method returns None if a value is not known."""

    def __init__(self, files: DeviceFiles, folder: str) -> None:
        self._files = files
        self._folder = folder
        # Name of a sensor -> path. A device usually has one monitor. If it has several, the last is used.
        self._monitor = {
            path.rpartition("/")[2]: path for path in (*files.texts, *files.rates) if "/hwmon/" in path
        }

    def number(self, name: str) -> int | None:
        """Return the number in the file NAME, or None if the number is negative.

        NAME is a path relative to the device's folder.
        """
        value = self._files.number(f"{self._folder}/{name}")
        return value if value is not None and value >= 0 else None

    def text(self, name: str) -> str:
        """Return the text of the file NAME, or an empty string if the file was not read."""
        return self._files.texts.get(f"{self._folder}/{name}", "")

    def rate(self, name: str) -> float | None:
        """Return the increase of the counter NAME per second."""
        return self._files.rates.get(f"{self._folder}/{name}")

    def percent(self, name: str) -> float | None:
        """Return the percentage in the file NAME."""
        value = self.number(name)
        return float(value) if value is not None and value <= 100 else None

    def temperature(self, *labels: str) -> float | None:
        """Return the temperature in degrees Celsius of the first sensor in LABELS that exists.

        If no sensor in LABELS exists, the result is the temperature of the device's first sensor.
        """
        inputs = sorted(name for name in self._monitor if re.fullmatch(r"temp\d+_input", name))
        names = {self._label(name): name for name in reversed(inputs)}
        name = next((names[label] for label in labels if label in names), next(iter(inputs), ""))
        value = self._sensor(name)
        degrees = None if value is None else value / 1000
        return degrees if degrees is not None and _COLDEST <= degrees <= _HOTTEST else None

    def stats(self, address: str) -> DeviceStats:
        """Return the statistics of the device at ADDRESS that all vendors have: power and PCIe link."""
        generation, width = self._link("current")
        generation_max, width_max = self._link("max")
        return DeviceStats(
            address=address,
            power=self._power(),
            power_limit=self._power_limit(),
            pcie_generation=generation,
            pcie_generation_max=generation_max,
            pcie_width=width,
            pcie_width_max=width_max,
        )

    def _power(self) -> float | None:
        """Return the power in watts, from a power sensor or from the increase of the energy counter."""
        microwatts: float | None = self._first("power1_average", "power1_input")
        if microwatts is None:
            counters = sorted(name for name in self._monitor if _ENERGY.fullmatch(name))
            microwatts = self._files.rates.get(self._monitor[counters[0]]) if counters else None
        return _watts(microwatts)

    def _power_limit(self) -> float | None:
        """Return the configured power limit in watts, or the device's own limit. 0 is not a limit."""
        limits = (self._sensor(f"power{n}_{kind}") for kind in ("cap", "max", "rated_max") for n in (1, 2))
        return _watts(next((limit for limit in limits if limit), None))

    def clock(self, label: str) -> int | None:
        """Return the frequency in MHz of the sensor with LABEL."""
        names = (name for name in self._monitor if re.fullmatch(r"freq\d+_input", name))
        name = next((name for name in sorted(names) if self._label(name) == label), "")
        value = self._sensor(name)
        return mhz(None if value is None else value // 1_000_000)

    def _link(self, which: str) -> tuple[int | None, int | None]:
        """Return the generation and the lanes of the PCIe link. WHICH is ``current`` or ``max``."""
        paths = {path.rpartition("/")[2]: path for path in self._files.texts}
        speed = self._files.texts.get(paths.get(f"{which}_link_speed", ""), "")
        generation = _GENERATIONS.get(speed.partition(" ")[0].strip())
        lanes = self._files.number(paths.get(f"{which}_link_width", ""))
        return generation, lanes if lanes is not None and 0 < lanes <= MOST_LANES else None

    def _label(self, name: str) -> str:
        return self._files.texts.get(self._monitor.get(name.replace("_input", "_label"), ""), "").strip()

    def _first(self, *names: str) -> int | None:
        return next((value for name in names if (value := self._sensor(name)) is not None), None)

    def _sensor(self, name: str) -> int | None:
        return self._files.number(self._monitor[name]) if name in self._monitor else None


def mhz(value: int | None) -> int | None:
    """Return VALUE if it is a valid frequency in MHz, else None. 0 is not valid (stopped clock)."""
    return value if value is not None and 0 < value <= _MOST_MHZ else None


def _watts(microwatts: float | None) -> float | None:
    watts = None if microwatts is None else microwatts / 1_000_000
    return round(watts, 3) if watts is not None and 0 <= watts <= _MOST_WATTS else None
