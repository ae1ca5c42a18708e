"""The texts in the picture of a topology: for each device, for each island, and for the whole picture.

The functions do not escape the texts, and do not cut the texts to a width.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from cdigen.topology.levels import islands, relation
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.model.inventory import Accelerator, Partition
    from cdigen.topology.matrix import MatrixDevice

# Vendor names at the start of a model name. The picture omits these names.
_VENDORS = ("NVIDIA", "AMD", "Intel")
_TECHNOLOGIES = {"nvlink": "NVLink", "xgmi": "XGMI", "xelink": "Xe Link"}
# The letters that identify islands in the picture. After the last letter, the letters are doubled.
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@frozen
class Label:
    """The text in a device: its ``name``, ``notes`` below the name, and ``trouble``.

    ``trouble`` has the state of an unhealthy or unusable device, and its causes. ``parts`` has a value for
    each partition of the device: whether the partition can be used.
    """

    name: str
    notes: tuple[str, ...]
    trouble: tuple[str, ...]
    parts: tuple[bool, ...]


@frozen
class IslandLabel:
    """The text in an island: its letter and its links. ``members`` are the positions of its devices."""

    letter: str
    text: str
    members: tuple[int, ...]


def device_labels(devices: Sequence[MatrixDevice]) -> tuple[Label, ...]:
    """Return the label of each of DEVICES, with the model if DEVICES have several models."""
    models = {device.accelerator.model for device in devices}
    return tuple(_label(device.label, device.accelerator, with_model=len(models) > 1) for device in devices)


def _label(name: str, device: Accelerator, *, with_model: bool) -> Label:
    notes = [device.address.removeprefix("0000:"), *([_without_vendor(device.model)] if with_model else [])]
    return Label(
        name=name,
        notes=tuple(note for note in (*notes, *_profiles(device.partitions)) if note),
        trouble=_trouble(device),
        parts=tuple(_is_usable(partition) for partition in device.partitions),
    )


def _without_vendor(model: str) -> str:
    vendor, _, rest = model.partition(" ")
    return rest if rest and vendor in _VENDORS else model


def _profiles(partitions: Iterable[Partition]) -> list[str]:
    counts = Counter(partition.profile for partition in partitions)
    return [f"{count}x {profile}" for profile, count in counts.items()]


def _is_usable(partition: Partition) -> bool:
    return partition.usable and partition.health != "unhealthy"


def _causes(device: Accelerator | Partition) -> str:
    return ", ".join(cause.cause for cause in device.causes)


def _trouble(device: Accelerator) -> tuple[str, ...]:
    """Return the state of DEVICE (unhealthy or not usable) and its causes, or () if neither applies."""
    if device.health == "unhealthy" or device.causes:
        return ("unhealthy", _causes(device))
    return () if device.usable else ("not usable", "")


def island_labels(devices: tuple[Accelerator, ...]) -> tuple[IslandLabel, ...]:
    """Return a label for each island of DEVICES with at least two devices, in order."""
    joined = [members for members in islands(devices) if len(members) > 1]
    labels = []
    for number, members in enumerate(joined):
        letter = _ALPHABET[number % len(_ALPHABET)] * (1 + number // len(_ALPHABET))
        text = f"{letter} · {_links(tuple(devices[place] for place in members))}"
        labels.append(IslandLabel(letter=letter, text=text, members=members))
    return tuple(labels)


def _links(devices: tuple[Accelerator, ...]) -> str:
    """Return the technology of the links between DEVICES, and the number of links."""
    relations = [relation(one, other) for one, other in combinations(devices, 2)]
    linked = [each for each in relations if each.technology]
    technology = " and ".join(
        sorted({_TECHNOLOGIES.get(each.technology, each.technology) for each in linked})
    )
    counts = sorted({each.count for each in linked})
    if counts == [0]:
        return f"{technology}, number of links unknown"
    number = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    plural = "link" if counts == [1] else "links"
    if all(any(not link.peer for link in device.links) for device in devices) and len(linked) == len(
        relations
    ):
        return f"{technology} switch, {number} {plural} each"
    if len(devices) == 2:
        return f"{technology}, {number} {plural}"
    if len(linked) == len(relations):
        return f"{technology}, {number} {plural} between any two"
    others = {sum(bool(relation(one, other).technology) for other in devices) for one in devices}
    to = f"from each to {min(others)} others" if len(others) == 1 else "between some of them"
    return f"{technology}, {number} {plural} {to}"


def summary(devices: Iterable[Accelerator]) -> str:
    """Return the number of DEVICES of each model in a single line."""
    counts = Counter(device.model for device in devices)
    return ", ".join(f"{count}x {model}" for model, count in counts.items()) or "no device found"


def describe(
    devices: tuple[Accelerator, ...], labels: tuple[Label, ...], joined: tuple[IslandLabel, ...]
) -> str:
    """Return the description of the picture for screen readers."""
    sentences = []
    nodes = dict.fromkeys(device.numa_node for device in devices)
    for node in sorted(nodes, key=lambda node: node is None):
        both = zip(labels, devices, strict=True)
        names = _names(label for label, device in both if device.numa_node == node)
        sentences.append(f"NUMA node {'unknown' if node is None else node}: {names}.")
    sentences += [f"Island {each.text}: {_names(labels[n] for n in each.members)}." for each in joined]
    for label in labels:
        if label.trouble:
            sentences.append(f"{label.name} is {': '.join(filter(None, label.trouble))}.")
        if not all(label.parts):
            sentences.append(f"{label.parts.count(False)} of the partitions of {label.name} cannot be used.")
    return " ".join(sentences) or "No device found."


def _names(labels: Iterable[Label]) -> str:
    return ", ".join(label.name for label in labels)


def details(devices: tuple[Accelerator, ...], labels: tuple[Label, ...], place: int) -> str:
    """Return the properties of the device at PLACE, one per line, for the tooltip of the device."""
    device = devices[place]
    near = [
        f"{relation(device, other).cell} {label.name}"
        for other, label in zip(devices, labels, strict=True)
        if other is not device
    ]
    causes = [f"{cause.cause} since {cause.since}: {cause.detail}" for cause in device.causes]
    parts = [
        f"partition {each.label} ({each.profile}): {_causes(each) or 'not usable'}"
        for each in device.partitions
        if not _is_usable(each)
    ]
    lines = [f"{labels[place].name}: {device.model}", device.address, device.uuid or "", ", ".join(near)]
    return "\n".join(line for line in (*lines, device.problem, *causes, *parts) if line)
