"""Query NVML for the parent process, and print the reply (``main``).

The program loads NVIDIA's library, queries NVML, prints a JSON document (``nvml.document``) and ends with
status 0. If NVML fails, the document has the reason. Only this file imports pynvml. This folder is a separate
program, which does not import modules of cdigen. NVIDIA's NVML API reference describes the functions,
structures and error codes.
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
# The parts of a GPU's entry. Each part has a module in this folder. The function ``blank`` of the module
# returns the part without values. ``read`` writes the values.
PARTS = ("identity", "links", "health", "stats", "memory")
# The query of the driver only.
DRIVER = "driver"
# The query whether pynvml can be imported. It loads no library.
MODULE = "module"
# The part that needs the handles of all queried GPUs.
TOGETHER = "links"
# In seconds. After the reply of a GPU, this program waits at most this time for the reply of a further GPU.
# The time is limited because the parent process waits for the document.
GRACE_S = 2.0
TIMEOUT = 10  # NVML_ERROR_TIMEOUT

PR_SET_PDEATHSIG = 1  # prctl(2)
SIGKILL = 9
INIT_FLAG_NO_GPUS = 1  # a machine without GPUs is not an error
INIT_FLAG_NO_ATTACH = 2  # NVML opens no GPU, because opening a GPU resumes it


def main(library: str, *what: str) -> NoReturn:
    """Query NVML, print the document on standard output, and end the process without cleanup.

    Text that NVIDIA's library prints is redirected to standard error. The process does not run the library's
    destructors, and does not wait for its threads. These steps are not needed after the document is written,
    because the kernel frees all resources.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        document = query(library, what)
    except NvmlUnavailable as failure:
        document = failure.document
    except Exception as error:  # noqa: BLE001 - the parent always gets a document, not a traceback
        document = NvmlUnavailable("internal", f"{type(error).__name__}: {error}").document
    write(out, document)
    # The parent reads the end of the output, even if a thread hangs in the kernel and this process cannot
    # end.
    os.close(out)
    os._exit(0)


def write(out: int, document: dict[str, object]) -> None:
    """Write the whole DOCUMENT as JSON to the file descriptor OUT."""
    import json  # noqa: PLC0415 - after the death signal is set

    data = json.dumps(document).encode("ascii")
    while data:
        data = data[os.write(out, data) :]


def query(library: str, what: tuple[str, ...]) -> dict[str, object]:
    """Return the document with the parts in WHAT of each GPU; raise NvmlUnavailable if NVML fails.

    If WHAT contains PCI addresses, the function queries only these GPUs, because a query resumes a GPU. If
    WHAT is DRIVER, the function queries no GPU, and the document contains the CUDA version.
    """
    parts = [name for name in PARTS if name in what]
    addresses = [word for word in what if ":" in word]
    # An installed tree has pynvml next to the package cdigen. Python with -I does not search this folder.
    sys.path.append(os.path.abspath(__file__).rsplit("/", 6)[0])
    try:
        import ctypes  # noqa: PLC0415 - if ctypes is missing, the document contains the error

        import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415 - same reason; pynvml has no types
    except ImportError as error:
        raise NvmlUnavailable("import", str(error)) from None
    if what == (MODULE,):
        return {"gpus": []}
    # If the parent is killed, the kernel also kills this process. No other process would end a hanging query.
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
    """Load LIBRARY; raise NvmlUnavailable if this fails, or if pynvml would use another library."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        raise NvmlUnavailable("load", str(error)) from None
    try:
        known = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        raise NvmlUnavailable("load", f"{library} is a library, but its SONAME is not {SONAME}") from None
    if known._handle != loaded._handle:  # noqa: SLF001 - the handle from dlopen
        raise NvmlUnavailable("other-library", f"another {SONAME} was loaded in the place of {library}")


def report(nvml: Nvml, parts: list[str], addresses: list[str]) -> dict[str, object]:
    """Return the document with PARTS of the GPUs at ADDRESSES, or of all GPUs if ADDRESSES is empty."""
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
    """Return the entry and the handle of the GPU at the address WHERE.

    If WHERE is None, the function returns the GPU with the index INDEX.
    """
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
    """Return the entries of the GPUs at ADDRESSES.

    The function queries each GPU in a separate thread, so that no GPU delays the others. The function stops
    waiting if some GPUs have answered and no further GPU answers within GRACE_S. The entries of GPUs without
    an answer have the error NVML_ERROR_TIMEOUT. The threads of these GPUs continue.
    """
    import queue  # noqa: PLC0415 - rarely used
    import threading  # noqa: PLC0415 - rarely used

    answers: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()

    def read_gpu(position: int, where: str) -> None:
        entry, handle = opened(nvml, position, where)
        for name in parts:
            add_part(nvml, entry, name, handle, [handle])
        answers.put((position, entry))

    for each in enumerate(addresses):
        threading.Thread(target=read_gpu, args=each, daemon=True).start()
    found: dict[int, dict[str, Any]] = {}
    while len(found) < len(addresses):
        try:
            found |= [answers.get(timeout=GRACE_S if found else None)]
        except queue.Empty:
            break
    return [
        found[position] if position in found else timed_out(nvml, parts, position, where)
        for position, where in enumerate(addresses)
    ]


def timed_out(nvml: Nvml, parts: list[str], position: int, where: str) -> dict[str, Any]:
    """Return the entry of a GPU that does not answer. WHERE is the address of the GPU."""
    refusal = nvml.failure("nvmlDeviceGetHandleByPciBusId", TIMEOUT)
    entry: dict[str, Any] = {"index": position, "address": where, "error": refusal.document}
    for name in parts:
        add_part(nvml, entry, name, None, [])
    return entry


def add_part(
    nvml: Nvml, entry: dict[str, Any], name: str, handle: object | None, handles: list[object | None]
) -> None:
    """Add the part NAME to the ENTRY of a GPU. If a call fails, the part has the ``error``.

    The values of ``identity`` are in ENTRY itself. Each other part is a separate object in ENTRY, so that an
    error in it does not affect other parts.
    """
    module = import_module(name)
    part = entry if name == "identity" else {"error": entry["error"]}
    part |= module.blank()
    entry |= {} if part is entry else {name: part}
    if entry["error"]:
        return
    try:
        module.read(nvml, part, handle, handles)
    except NvmlCallError as refusal:
        part["error"] = refusal.document
