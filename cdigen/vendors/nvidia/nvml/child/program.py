"""Ask NVML what the parent wants to know, and print the answer: ``main``.

It loads NVIDIA's library, asks, prints one JSON document (``nvml.document``) and ends with status 0, also
where NVML refuses: the document then says what. Only this file imports pynvml, and nothing of cdigen is
imported here: the folder is a program of its own.
Functions, structures and error codes: NVIDIA's NVML API reference.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from session import Nvml, NvmlCallError, NvmlUnavailable, address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

SONAME = "libnvidia-ml.so.1"
# A file each: ``blank`` gives the part before anything is known, ``tell`` fills it in.
PARTS = ("identity", "links", "health", "figures", "memory")
# What is asked of the driver alone.
DRIVER = "driver"
# The part that needs the handles of all GPUs that are asked.
TOGETHER = "links"
# A GPU is given up when it has been silent for so long after another has answered: in time for who waits.
PATIENCE_S = 2.0
TIMEOUT = 10  # NVML_ERROR_TIMEOUT

PR_SET_PDEATHSIG = 1  # prctl(2)
SIGKILL = 9
INIT_FLAG_NO_GPUS = 1  # a machine without GPUs is not an error
INIT_FLAG_NO_ATTACH = 2  # no GPU is opened, which would wake it


def main(library: str, *what: str) -> NoReturn:
    """Ask, print the document on what was standard output, and end without any cleaning up.

    The library's own text goes to standard error. What it would do when the process ends normally
    (destructors, threads) is not waited for: the answer is out, and the kernel takes back the rest.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        document = ask(library, what)
    except NvmlUnavailable as failure:
        document = failure.document
    except Exception as error:  # noqa: BLE001 - the parent is told in any case, never by a traceback
        document = NvmlUnavailable("internal", f"{type(error).__name__}: {error}").document
    write(out, document)
    # The parent sees the end of it, also where a thread that hangs in the kernel keeps this process.
    os.close(out)
    os._exit(0)


def write(out: int, document: dict[str, object]) -> None:
    """Write DOCUMENT as JSON to the descriptor OUT, all of it."""
    import json  # noqa: PLC0415 - after the death signal is set

    data = json.dumps(document).encode("ascii")
    while data:
        data = data[os.write(out, data) :]


def ask(library: str, what: tuple[str, ...]) -> dict[str, object]:
    """Return the document with WHAT of each GPU; raises NvmlUnavailable where NVML says nothing at all.

    Where WHAT has PCI addresses, only those GPUs are asked, since to ask one wakes it; none is where it is
    DRIVER, which tells what CUDA is served.
    """
    parts = [name for name in PARTS if name in what]
    addresses = [word for word in what if ":" in word]
    # An installed tree holds pynvml beside this package, where an isolated Python does not look by itself.
    sys.path.append(os.path.abspath(__file__).rsplit("/", 6)[0])
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
        if what == (DRIVER,):
            nvml.call("nvmlInitWithFlags", INIT_FLAG_NO_GPUS | INIT_FLAG_NO_ATTACH)
            return {"gpus": [], "cuda": nvml.value("nvmlSystemGetCudaDriverVersion")}
        nvml.call("nvmlInitWithFlags", INIT_FLAG_NO_GPUS)
        if addresses and TOGETHER not in parts:
            return {"gpus": entries_at(nvml, parts, addresses)}
        return report(nvml, parts, addresses)
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


def report(nvml: Nvml, parts: list[str], addresses: list[str]) -> dict[str, object]:
    """Return the document of an NVML that answers: of the GPUs at ADDRESSES, or of all if there are none."""
    entries: list[dict[str, Any]] = []
    handles: list[object | None] = []
    for index, where in enumerate(addresses or [None] * nvml.call("nvmlDeviceGetCount")):
        entry, handle = opened(nvml, index, where)
        entries.append(entry)
        handles.append(handle)
    for entry, handle in zip(entries, handles, strict=True):
        for name in parts:
            add_part(nvml, entry, name, handle, handles)
    return {"gpus": entries}


def opened(nvml: Nvml, index: int, where: str | None) -> tuple[dict[str, Any], object | None]:
    """Return the entry and the handle of the GPU at the address WHERE, or else with that INDEX."""
    entry: dict[str, Any] = {"index": index, "address": where, "error": None}
    handle = None
    try:
        if where is None:
            handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
            entry["address"] = address(nvml, handle)
        else:
            handle = nvml.call("nvmlDeviceGetHandleByPciBusId", where)
            entry["index"] = nvml.call("nvmlDeviceGetIndex", handle)
    except NvmlCallError as refusal:
        entry["error"] = refusal.document
    return entry, handle


def entries_at(nvml: Nvml, parts: list[str], addresses: list[str]) -> list[dict[str, Any]]:
    """Return the entries of the GPUs at ADDRESSES, each asked in a thread: one that hangs keeps no other.

    When some have answered, and none for PATIENCE_S, the others are told as timed out; their threads stay.
    """
    import queue  # noqa: PLC0415 - few ask so
    import threading  # noqa: PLC0415 - likewise

    answers: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()

    def tell(position: int, where: str) -> None:
        entry, handle = opened(nvml, position, where)
        for name in parts:
            add_part(nvml, entry, name, handle, [handle])
        answers.put((position, entry))

    for each in enumerate(addresses):
        threading.Thread(target=tell, args=each, daemon=True).start()
    found: dict[int, dict[str, Any]] = {}
    while len(found) < len(addresses):
        try:
            found |= [answers.get(timeout=PATIENCE_S if found else None)]
        except queue.Empty:
            break
    return [
        found[position] if position in found else timed_out(nvml, parts, position, where)
        for position, where in enumerate(addresses)
    ]


def timed_out(nvml: Nvml, parts: list[str], position: int, where: str) -> dict[str, Any]:
    """Return the entry of a GPU that does not answer."""
    refusal = nvml.failure("nvmlDeviceGetHandleByPciBusId", TIMEOUT)
    entry: dict[str, Any] = {"index": position, "address": where, "error": refusal.document}
    for name in parts:
        add_part(nvml, entry, name, None, [])
    return entry


def add_part(
    nvml: Nvml, entry: dict[str, Any], name: str, handle: object | None, handles: list[object | None]
) -> None:
    """Add the part NAME to the ENTRY of a GPU; the first thing that fails is its ``error`` and ends it.

    The identity is in the entry itself, every other part in an object of its own, so that it alone fails.
    """
    module = import_module(name)
    part = entry if name == "identity" else {"error": entry["error"]}
    part |= module.blank()
    entry |= {} if part is entry else {name: part}
    if entry["error"]:
        return
    try:
        module.tell(nvml, part, handle, handles)
    except NvmlCallError as refusal:
        part["error"] = refusal.document
