"""The child process that asks NVML, started by ``nvml.ask`` as ``python -I child.py LIBRARY``.

It loads NVIDIA's library LIBRARY, asks what the GPUs are, prints one JSON document
(``nvml.document``) and ends with status 0, also where NVML refuses: the document then says what.
Only this file imports pynvml, and nothing of cdigen is imported here: it is a program of its own.
Functions, structures and error codes: NVIDIA's NVML API reference.
"""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

MAX_TEXT = 1024
SONAME = "libnvidia-ml.so.1"

PR_SET_PDEATHSIG = 1  # prctl(2)
SIGKILL = 9

NOT_SUPPORTED = 3
NOT_FOUND = 6
INVALID_ARGUMENT = 2
FUNCTION_NOT_FOUND = 13
UNKNOWN = 999
INIT_FLAG_NO_GPUS = 1  # a machine without GPUs is not an error

# A MIG device's name is its GPU's and then this (nvmlDeviceGetName): "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb".
_PROFILE = re.compile(r"(?:^|\s)MIG\s+((?:\d+c\.)?\d+g\.\d+gb\S*)", re.ASCII)
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
        except UnicodeDecodeError:
            pass  # pynvml makes text of what may be none
        raise NvmlCallError(function, self._names.get(code, f"NVML_ERROR_{code}"), code)

    def value(self, function: str, *arguments: object) -> Any:
        """Return what FUNCTION gives, None where the GPU or the driver knows no such thing."""
        try:
            return self.call(function, *arguments)
        except NvmlCallError as refusal:
            if refusal.code in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}:
                return None
            raise


def main(library: str) -> NoReturn:
    """Ask, print the document on what was standard output, and end without any cleaning up.

    The library's own text goes to standard error. What it would do when the process ends normally
    (destructors, threads) is not waited for: the answer is out, and the kernel takes back the rest.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        document = ask(library)
    except NvmlUnavailable as failure:
        document = failure.document
    except Exception as error:  # noqa: BLE001 - the parent is told in any case, never by a traceback
        document = NvmlUnavailable("internal", f"{type(error).__name__}: {error}").document
    write(out, document)
    os._exit(0)


def write(out: int, document: dict[str, object]) -> None:
    """Write DOCUMENT as JSON to the descriptor OUT, all of it."""
    import json  # noqa: PLC0415 - after the death signal is set

    data = json.dumps(document).encode("ascii")
    while data:
        data = data[os.write(out, data) :]


def ask(library: str) -> dict[str, object]:
    """Return the document; raises NvmlUnavailable where NVML says nothing at all."""
    # An installed tree holds pynvml beside this package, where an isolated Python does not look by itself.
    sys.path.append(os.path.abspath(__file__).rsplit("/", 5)[0])
    try:
        import ctypes  # noqa: PLC0415 - a Python without it shall say so in its document

        import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415 - likewise; it ships no types
    except ImportError as error:
        raise NvmlUnavailable("import", str(error)) from None
    # Where the parent is killed, nobody else would end a child that hangs.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    load(ctypes, library)
    nvml = Nvml(pynvml)
    try:
        nvml.call("nvmlInitWithFlags", INIT_FLAG_NO_GPUS)
        return report(nvml)
    except NvmlCallError as refusal:
        raise NvmlUnavailable("nvml", str(refusal), refusal.document) from None


def load(ctypes: Any, library: str) -> None:
    """Load LIBRARY, and make sure that it is what pynvml will get when it asks for the SONAME."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        raise NvmlUnavailable("load", str(error)) from None
    try:
        known = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        raise NvmlUnavailable("load", f"{library} is a library, but its SONAME is not {SONAME}") from None
    if known._handle != loaded._handle:  # noqa: SLF001 - dlopen's own answer
        raise NvmlUnavailable("other-library", f"another {SONAME} was loaded in the place of {library}")


def report(nvml: Nvml) -> dict[str, object]:
    """Return the document of an NVML that answers."""
    return {"gpus": [gpu(nvml, index) for index in range(nvml.call("nvmlDeviceGetCount"))]}


def gpu(nvml: Nvml, index: int) -> dict[str, object]:
    """Return the entry of the GPU INDEX; the first thing that fails is its ``error`` and ends it."""
    entry: dict[str, Any] = {"index": index, **dict.fromkeys(_READERS), "migs": [], "error": None}
    try:
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
        for name, read in _READERS.items():
            entry[name] = read(nvml, handle)
        if entry["mig_mode"]:
            for position in range(nvml.value("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
                add_mig_device(nvml, entry, handle, position)
    except NvmlCallError as refusal:
        entry["error"] = refusal.document
    return entry


def add_mig_device(nvml: Nvml, entry: dict[str, Any], handle: object, position: int) -> None:
    """Add the MIG device at POSITION to ENTRY; one that fails is the GPU's error, the others stay."""
    try:
        device = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, position)
    except NvmlCallError as refusal:
        # Positions without a device are as good as any: NVML numbers 0 to the most there can be.
        if refusal.code not in {NOT_FOUND, INVALID_ARGUMENT}:
            entry["error"] = refusal.document
        return
    try:
        name = profile(nvml, handle, device)
        entry["migs"].append(
            {
                "index": position,
                "uuid": text(nvml.call("nvmlDeviceGetUUID", device)),
                "gpu_instance": nvml.call("nvmlDeviceGetGpuInstanceId", device),
                "compute_instance": nvml.call("nvmlDeviceGetComputeInstanceId", device),
                "profile": name,
                "graphics": "+gfx" in name,
            }
        )
    except NvmlCallError as refusal:
        entry["error"] = refusal.document


def profile(nvml: Nvml, handle: object, device: object) -> str:
    """Return a MIG device's profile, such as ``1g.10gb``; empty where neither name nor sizes tell."""
    found = _PROFILE.search(nvml.value("nvmlDeviceGetName", device) or "")
    if found:
        return str(found[1])
    sizes = nvml.value("nvmlDeviceGetAttributes_v2", device)
    memory = nvml.value("nvmlDeviceGetMemoryInfo", handle)
    if sizes is None or memory is None or not memory.total or not sizes.gpuInstanceSliceCount:
        return ""
    slices, compute = sizes.gpuInstanceSliceCount, sizes.computeInstanceSliceCount
    part = f"{compute}c." if compute and compute < slices else ""
    return f"{part}{slices}g.{profile_gigabytes(sizes.memorySizeMB, memory.total)}gb"


def profile_gigabytes(instance_mib: int, gpu_bytes: int) -> int:
    """Return the size in a profile's name: the eighths of the GPU's memory, rounded to whole GiB.

    The rule is go-nvlib's (pkg/nvlib/device, getMigMemorySizeInGB): 9984 MiB of 80 GiB are an eighth, so 10.
    """
    eighths = -(-(instance_mib << 20) * 8 // gpu_bytes)
    whole = -(-gpu_bytes // (1 << 30))
    return (eighths * whole + 4) // 8


def address(nvml: Nvml, handle: object) -> str | None:
    """Return a GPU's PCI address as sysfs spells it: ``0000:65:00.0``."""
    pci = nvml.value("nvmlDeviceGetPciInfo", handle)
    try:
        found = _BUS_ID.fullmatch(pci.busId) if pci else None
    except UnicodeDecodeError:
        found = None
    if not found:
        return None
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*(int(part, 16) for part in found.groups()))


def mig_mode(nvml: Nvml, handle: object) -> bool | None:
    """Return whether MIG is on now (not: after the next reset); None for a GPU without it."""
    modes = nvml.value("nvmlDeviceGetMigMode", handle)
    return None if modes is None else bool(modes[0])


def text(value: str | None) -> str | None:
    """Return VALUE as the parent accepts a text: printable, short, not empty; None for nothing."""
    return "".join(mark if mark.isprintable() else "?" for mark in value or "")[:MAX_TEXT] or None


# In this order: a GPU that is lost half-way has shown its address first.
_READERS: dict[str, Callable[[Nvml, object], Any]] = {
    "address": address,
    "uuid": lambda nvml, handle: text(nvml.value("nvmlDeviceGetUUID", handle)),
    "mig_mode": mig_mode,
}


if __name__ == "__main__":
    main(sys.argv[1])
