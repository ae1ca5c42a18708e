"""The names of CDI devices without spec files."""

from collections.abc import Iterable

from cdigen.model.names import NameSet
from cdigen.nri.decision.request.select import DeviceNames


def device_names(devices: Iterable[str]) -> DeviceNames:
    """Return the names of DEVICES, which are fully qualified."""
    kinds: dict[str, set[str]] = {}
    for device in devices:
        kind, _, name = device.partition("=")
        kinds.setdefault(kind, set()).add(name)
    return DeviceNames({kind: NameSet(names) for kind, names in kinds.items()}, lambda _: "")
