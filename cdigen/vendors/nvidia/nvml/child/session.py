"""Functions for all parts: they call NVML (``Nvml``), convert PCI addresses, and limit texts."""

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
# nvmlDeviceGetMigDeviceHandleByIndex returns these codes for a position without a MIG device. NVML numbers
# positions from 0 to the possible maximum.
NO_MIG_DEVICE = frozenset({NOT_FOUND, INVALID_ARGUMENT})
# With these codes, the GPU or the driver does not support the function. 25 is ARGUMENT_VERSION_MISMATCH, 26
# is DEPRECATED.
NOT_AVAILABLE = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, 25, 26})

_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE)


class NvmlUnavailable(Exception):
    """NVML cannot be used. ``document`` is the output for the parent process, with the reason."""

    def __init__(self, stage: str, message: str, error: dict[str, object] | None = None) -> None:
        super().__init__(message)
        shown = text(message) or "no reason was given"
        self.document: dict[str, object] = {"stage": stage, "message": shown, "error": error}


class NvmlCallError(Exception):
    """A function of NVML failed with the error code ``code``."""

    def __init__(self, call: str, name: str, code: int) -> None:
        super().__init__(f"{call}: {name}")
        self.code = code
        self.document: dict[str, object] = {"call": call, "name": name, "code": code}


class Nvml:
    """Calls functions of pynvml. Each failure is an NvmlCallError with the name of the function."""

    def __init__(self, pynvml: Any) -> None:
        self._pynvml = pynvml
        names = [name for name in dir(pynvml) if name.startswith("NVML_ERROR_")]
        self._names = {getattr(pynvml, name): name for name in names}

    def call(self, function: str, *arguments: object) -> Any:
        """Return the result of NVML's FUNCTION, or raise NvmlCallError."""
        code = UNKNOWN
        try:
            return getattr(self._pynvml, function)(*arguments)
        except self._pynvml.NVMLError as error:
            code = error.value if error.value > 0 else UNKNOWN
        except AttributeError:
            code = FUNCTION_NOT_FOUND  # the installed pynvml does not have this function yet
        except (UnicodeDecodeError, MemoryError):
            pass  # pynvml decodes any bytes as text, and allocates lists of any size that NVML reports
        raise self.failure(function, code)

    def failure(self, function: str, code: int) -> NvmlCallError:
        """Return the error for a failure of NVML's FUNCTION with CODE."""
        return NvmlCallError(function, self._names.get(code, f"NVML_ERROR_{code}"), code)

    def value(self, function: str, *arguments: object) -> Any:
        """Return the result of FUNCTION, or None if the GPU or the driver does not support it."""
        try:
            return self.call(function, *arguments)
        except NvmlCallError as refusal:
            if refusal.code in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}:
                return None
            raise


def address(nvml: Nvml, handle: object) -> str | None:
    """Return a GPU's PCI address in the format of sysfs (``0000:65:00.0``), or None if it is unknown."""
    pci = nvml.value("nvmlDeviceGetPciInfo", handle)
    return bus_address(pci) if pci else None


def bus_address(pci: Any) -> str | None:
    """Return the address in NVML's PCI structure in the format of sysfs, or None if it is invalid."""
    try:
        found = _BUS_ID.fullmatch(pci.busId)
    except UnicodeDecodeError:
        found = None
    if not found:
        return None
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*(int(part, 16) for part in found.groups()))


def text(value: str | None) -> str | None:
    """Return VALUE as a text that the parent process accepts, or None if VALUE is None or empty.

    Unprintable characters are replaced by ``?``, and the text has at most MAX_TEXT characters.
    """
    return "".join(mark if mark.isprintable() else "?" for mark in value or "")[:MAX_TEXT] or None
