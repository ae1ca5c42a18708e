"""What every part of the child uses: NVML's calls with their failures (``Nvml``), texts, addresses."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_TEXT = 1024

NOT_SUPPORTED = 3
NOT_FOUND = 6
INVALID_ARGUMENT = 2
FUNCTION_NOT_FOUND = 13
UNKNOWN = 999
# These say that this GPU or driver does not have it; 25 and 26: ARGUMENT_VERSION_MISMATCH, DEPRECATED.
UNASKED = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, 25, 26})

_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE)


class NvmlUnavailable(Exception):
    """Report what keeps NVML from answering at all; ``document`` is what the parent gets to read."""

    def __init__(self, stage: str, message: str, error: dict[str, object] | None = None) -> None:
        super().__init__(message)
        shown = text(message) or "no reason was given"
        self.document: dict[str, object] = {"stage": stage, "message": shown, "error": error}


class NvmlCallError(Exception):
    """Report that one function of NVML failed, and with which code."""

    def __init__(self, call: str, name: str, code: int) -> None:
        super().__init__(f"{call}: {name}")
        self.code = code
        self.document: dict[str, object] = {"call": call, "name": name, "code": code}


class Nvml:
    """pynvml, with every failure as an NvmlCallError that names the function."""

    def __init__(self, pynvml: Any) -> None:
        self._pynvml = pynvml
        names = [name for name in dir(pynvml) if name.startswith("NVML_ERROR_")]
        self._names = {getattr(pynvml, name): name for name in names}

    def call(self, function: str, *arguments: object) -> Any:
        """Return what FUNCTION of NVML gives; raises NvmlCallError."""
        code = UNKNOWN
        try:
            return getattr(self._pynvml, function)(*arguments)
        except self._pynvml.NVMLError as error:
            code = error.value if error.value > 0 else UNKNOWN
        except AttributeError:
            code = FUNCTION_NOT_FOUND  # this pynvml is older than the function
        except (UnicodeDecodeError, MemoryError):
            pass  # pynvml makes text of what may be none, and lists as long as the library says
        raise self.failure(function, code)

    def failure(self, function: str, code: int) -> NvmlCallError:
        """Return the error that FUNCTION of NVML failed with CODE."""
        return NvmlCallError(function, self._names.get(code, f"NVML_ERROR_{code}"), code)

    def structure(self, name: str) -> Any:
        """Return a new structure of pynvml's, which a call fills in; None where it has none of that name."""
        made = getattr(self._pynvml, name, None)
        return None if made is None else made()

    def value(self, function: str, *arguments: object) -> Any:
        """Return what FUNCTION gives, None where the GPU or the driver knows no such thing."""
        try:
            return self.call(function, *arguments)
        except NvmlCallError as refusal:
            if refusal.code in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}:
                return None
            raise


def address(nvml: Nvml, handle: object) -> str | None:
    """Return a GPU's PCI address as sysfs spells it: ``0000:65:00.0``."""
    pci = nvml.value("nvmlDeviceGetPciInfo", handle)
    return bus_address(pci) if pci else None


def bus_address(pci: Any) -> str | None:
    """Return the address in what NVML tells of a place on the PCI bus, as sysfs spells it."""
    try:
        found = _BUS_ID.fullmatch(pci.busId)
    except UnicodeDecodeError:
        found = None
    if not found:
        return None
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*(int(part, 16) for part in found.groups()))


def text(value: str | None) -> str | None:
    """Return VALUE as the parent accepts a text: printable, short, not empty; None for nothing."""
    return "".join(mark if mark.isprintable() else "?" for mark in value or "")[:MAX_TEXT] or None
