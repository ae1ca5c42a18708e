"""The types and common functions of the member LABELS, which returns labels of a Kubernetes node. No I/O.

Names and values of labels have at most 63 characters, which are letters, digits and ``-_.``. Names and values
begin and end with a letter or a digit (apimachinery, pkg/util/validation: IsQualifiedName,
IsValidLabelValue).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter

from cdigen.value import frozen
from cdigen.vendors.classes import GPU

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cdigen.model.inventory import Accelerator, Inventory, Partition

    # The whole name of a label (nvidia.com/gpu.count), and the value.
    Label = tuple[str, str]

# The sharing strategies with NVIDIA's names (k8s-device-plugin, api/config/v1), and the strategy ``memory``.
NONE, TIME_SLICING, MPS, MEMORY = "none", "time-slicing", "mps", "memory"
MAX = 63
_DIGEST = 8
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_IS_WORD = re.compile(_WORD)
_IS_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


@frozen
class LabelledDevice:
    """The device ``gpu`` of ``vendor``, or a ``partition`` of this device, as a device of ``resource``.

    ``replicas`` is the number of replicas, or 0 for memory units. ``sharing`` is the sharing strategy of the
    device.
    """

    vendor: str
    gpu: Accelerator
    partition: Partition | None
    resource: str
    replicas: int
    sharing: str

    @property
    def profile(self) -> str:
        """The profile of the partition ("1g.10gb"), or "" for a whole device."""
        return self.partition.profile if self.partition else ""


@frozen
class LabelSource:
    """The advertised ``devices`` of one vendor, and the other sources of the vendor's labels.

    ``inventory`` has the devices and the driver. ``has_driver`` is set if the loaded driver is the driver in
    the inventory. ``mig_strategy`` is the key of ``kubelet:``. ``machine`` is the host's model.
    """

    devices: tuple[LabelledDevice, ...]
    inventory: Inventory
    has_driver: bool
    mig_strategy: str
    machine: str

    def whole_devices(self, device_class: str = GPU) -> tuple[Accelerator, ...]:
        """Return the devices of DEVICE_CLASS; a device with several advertised partitions is one device."""
        found = {(each.gpu.address, each.gpu.index): each.gpu for each in self.devices}
        return tuple(gpu for gpu in found.values() if gpu.device_class == device_class)


def device_number(gpu: Accelerator) -> str:
    """Return the PCI device number of GPU in four digits (``74a1``)."""
    return gpu.device_id.removeprefix("0x").lower()


def is_label(label: Label) -> bool:
    """Return whether Kubernetes accepts LABEL."""
    prefix, _, name = label[0].partition("/")
    words = (name, label[1])
    return bool(_IS_PREFIX.fullmatch(prefix)) and all(
        len(word) <= MAX and _IS_WORD.fullmatch(word) for word in words
    )


def label_value(text: str, blank: str = "-", most: int = MAX) -> str:
    """Return TEXT as a label value; BLANK replaces blanks, and other invalid characters are removed.

    NVIDIA's labeller also does this (k8s-device-plugin, internal/lm/resource.go, sanitise). A value of more
    than MOST characters is cut and ends in a digest of TEXT. So two long texts have different values.
    """
    plain = blank.join(re.sub(r"[^A-Za-z0-9._ -]", "", text).split()).strip("-_.")
    if len(plain) <= most:
        return plain
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{plain[: most - _DIGEST - 1].rstrip('-_.')}-{digest}"


def counted_labels(name: str, values: Iterable[str], fit: Callable[..., str] = label_value) -> list[Label]:
    """Return one label NAME if all values are equal, or a label with a count for each different value.

    VALUES has a value for each device, or "" for an unknown value. If values differ or are unknown, the value
    is a part of the name, as in AMD's labeller (``amd.com/gpu.vram.192G=4``). If different values become
    equal through FIT, the label has the sum of their counts.
    """
    every = list(values)
    if every and every.count(every[0]) == len(every):
        value = fit(every[0])
        return [(name, value)] if value else []
    most = MAX - len(name.partition("/")[2]) - 1
    parts = Counter(part for value in every if (part := fit(value, most=most)))
    return [(f"{name}.{part}", str(count)) for part, count in sorted(parts.items())]


def numbers(values: Sequence[int | None]) -> list[str]:
    """Return VALUES as texts, with "" for None."""
    return ["" if value is None else str(value) for value in values]
