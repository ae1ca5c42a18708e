"""The values that every part of the child's document is made of: texts, PCI addresses, errors."""

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
    """A function of NVML that failed, with the error's name and number in the API reference."""

    call: str
    name: str
    code: int


def text(value: object, path: str) -> str:
    """Return 1 to MAX_TEXT printable characters."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_TEXT:
        raise InvalidValue(path, f"1 to {MAX_TEXT} printable characters")
    return value


def address(value: object, path: str) -> str:
    """Return a PCI address as sysfs spells it."""
    spelled = text(value, path)
    if pci_address(spelled) != spelled:
        raise InvalidValue(path, "a PCI address as sysfs spells it")
    return spelled


def perhaps_empty(reader: Reader) -> Reader:
    """Return a reader of an empty text, or of what READER reads."""
    return lambda value, path: "" if value == "" else reader(value, path)


ERROR = optional(record(NvmlError, call=text, name=text, code=number))
