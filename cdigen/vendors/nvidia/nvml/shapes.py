"""Readers for values that occur in several parts of the child's document: texts, PCI addresses, errors."""

from __future__ import annotations

from cdigen.host.sysfs import pci_address
from cdigen.model.strict import InvalidValue, number, optional, record
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.strict import Reader

MAX_TEXT = 1024


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
