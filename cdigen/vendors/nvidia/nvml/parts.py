"""The small parts of a GPU's entry in NVML's reply, and the readers of values that several parts have.

The module in the folder child with the name of a part writes the values of the part.
"""

from __future__ import annotations

from cdigen.host.sysfs import pci_address
from cdigen.model.strict import InvalidValue, many, number, optional, record, typed_record, whole
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.model.strict import Reader

MAX_TEXT = 1024
# A greater size of a memory is an error of NVML.
MAX_BYTES = 1 << 50


@frozen
class NvmlError:
    """A failed call of NVML.

    ``call`` is the function. ``name`` and ``code`` are the error's name and number in the API reference.
    """

    call: str
    name: str
    code: int


def text(value: object, path: str) -> str:
    """Return VALUE if it is a text of 1 to MAX_TEXT printable characters; else raise InvalidValue."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_TEXT:
        raise InvalidValue(path, f"1 to {MAX_TEXT} printable characters")
    return value


def address(value: object, path: str) -> str:
    """Return VALUE if it is a PCI address in the format of sysfs; else raise InvalidValue."""
    spelled = text(value, path)
    if pci_address(spelled) != spelled:
        raise InvalidValue(path, "a PCI address in the format of sysfs")
    return spelled


def perhaps_empty(reader: Reader) -> Reader:
    """Return a reader that accepts an empty text, and all values that READER accepts."""
    return lambda value, path: "" if value == "" else reader(value, path)


ERROR = optional(record(NvmlError, call=text, name=text, code=number))


@frozen
class NvmlLinks:
    """The part ``links`` of a GPU's entry. If ``error`` is set, the values are incomplete.

    ``peers`` maps the address of another GPU to the number of links with that GPU. ``down`` is the number of
    links that are not up. ``switched`` is the number of links to switches. ``reached`` are the addresses of
    the GPUs that the switches connect with this GPU. ``fabric`` is the name of the partition in a cluster's
    fabric, or empty. ``is_joining`` is true if the GPU has not joined the fabric yet.
    """

    error: NvmlError | None
    peers: Mapping[str, int]
    down: int
    switched: int
    reached: tuple[str, ...]
    fabric: str
    is_joining: bool


def _peers(value: object, path: str) -> Mapping[str, int]:
    if not isinstance(value, dict):
        raise InvalidValue(path, "an object")
    return {address(key, path): number(count, f"{path}.{key}") for key, count in value.items()}


LINKS = typed_record(NvmlLinks, error=ERROR, peers=_peers, reached=many(address), fabric=perhaps_empty(text))


@frozen
class NvmlHealth:
    """The part ``health`` of a GPU's entry. Its values show whether the GPU can be used.

    A value is None if the GPU does not support it, or if it was not read because of ``error``.
    ``recovery_action`` is an nvmlDeviceGpuRecoveryAction_t. 0 means no action. Drivers without this value
    report whether the GPU needs a reset (``reset``), or a drain and then a reset (``drain_and_reset``).
    ``remap_failed`` is true if the remapping of a memory row has ever failed. ``ecc_uncorrected`` is the
    number of uncorrected ECC errors since the driver was loaded or the GPU was reset. ``fabric_state`` is an
    nvmlGpuFabricState_t. If the state is completed, ``fabric_status`` is an nvmlReturn_t.
    """

    error: NvmlError | None
    recovery_action: int | None
    reset: bool | None
    drain_and_reset: bool | None
    remap_failed: bool | None
    ecc_uncorrected: int | None
    fabric_state: int | None
    fabric_status: int | None


HEALTH = typed_record(NvmlHealth, error=ERROR)


@frozen
class NvmlMemory:
    """The part ``memory`` of a GPU's entry.

    ``total`` is the size in bytes, or None if the GPU does not report the size. If the query failed,
    ``error`` is set.
    """

    error: NvmlError | None
    total: int | None


MEMORY = record(NvmlMemory, error=ERROR, total=optional(whole(0, MAX_BYTES)))
