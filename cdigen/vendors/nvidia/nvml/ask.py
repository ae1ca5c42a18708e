"""Ask NVML in a child process (``ask``); whatever goes wrong there is a finding.

The library may hang (a GPU that is being reset), crash, or belong to a driver that was just replaced;
in the child none of this harms. Ask it only for what /proc and /sys do not have: that NVML starts can
wake GPUs for seconds. What went wrong is a finding, never an exception; each GPU stands for itself.
"""

from __future__ import annotations

import os
import stat

from cdigen.host.root import reason, shown
from cdigen.model.findings import Finding
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.document import (
    InvalidNvmlDocument,
    NvmlFailure,
    read,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.childprocess import ChildResult
    from cdigen.model.findings import Severity
    from cdigen.vendors.nvidia.nvml.document import NvmlGpu, NvmlReport
    from cdigen.vendors.nvidia.nvml.shapes import NvmlError

# The rule of the finding that NVML is not asked on this host, because pynvml is not installed.
MODULE_MISSING = "nvml-module-missing"

# A start without nvidia-persistenced took 2 s on one T4 and 24 s on a host that gave up its driver's
# state each time (gvisor issue 9215, nvidia-container-toolkit issue 1053).
DEADLINE_S = 10.0
# A GPU that hangs in the kernel keeps each process that asks about it for ever.
MAX_STUCK = 3

_RELOAD = (
    "load the module that was installed with the library: stop what uses the GPUs and run "
    "'rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia', or reboot"
)
_KERNEL_LOG = "see 'dmesg | grep -e NVRM -e Xid' for what happened to it"

# Names of nvmlReturn_t (NVML API reference), what they mean here, and the next step.
_EXPLAINED: dict[str, tuple[str, str]] = {
    "NVML_ERROR_CORRUPTED_INFOROM": ("the GPU's own memory is corrupt", "have the GPU replaced"),
    "NVML_ERROR_DRIVER_NOT_LOADED": (
        "the NVIDIA kernel module is not loaded, or its device nodes are missing",
        "load it with 'modprobe nvidia'; 'nvidia-modprobe -c 0 -u' makes the nodes",
    ),
    "NVML_ERROR_FUNCTION_NOT_FOUND": ("the library is too old or is not NVML", "update the driver"),
    "NVML_ERROR_GPU_IS_LOST": ("the GPU has fallen off the bus", f"{_KERNEL_LOG}; a reboot brings it back"),
    "NVML_ERROR_IRQ_ISSUE": ("the kernel has trouble with the GPU's interrupts", _KERNEL_LOG),
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "the library and the loaded kernel module are of different versions",
        _RELOAD,
    ),
    "NVML_ERROR_NO_PERMISSION": ("this process may not use the device nodes", "run as root"),
    "NVML_ERROR_RESET_REQUIRED": ("the GPU has to be reset", "'nvidia-smi --gpu-reset' resets it"),
    "NVML_ERROR_UNKNOWN": ("the driver gives no reason", _KERNEL_LOG),
}


@frozen
class NvmlAnswer:
    """What came of asking: the report where there is one, and what went wrong on the way."""

    report: NvmlReport | None
    findings: tuple[Finding, ...]


def ask(
    library: str,
    *,
    what: tuple[str, ...] = ("identity",),
    addresses: tuple[str, ...] = (),
    deadline_s: float = DEADLINE_S,
    child: tuple[str, ...] | None = None,
) -> NvmlAnswer:
    """Have a child load LIBRARY (an absolute path of this machine) and ask it, for DEADLINE_S at the most.

    WHAT are parts of a GPU's entry (document.PARTS), or document.DRIVER alone, which opens no GPU. Where
    there are ADDRESSES, only the GPUs there are asked, and no other is woken; one that hangs is given up soon
    after the others have answered, unless links are in WHAT. CHILD is the command that is started with
    LIBRARY, WHAT and ADDRESSES as its last arguments;
    by default this Python with nvml/child. A library that others than root may change is not loaded. Never
    raises: whatever happens is a finding, and those without a report are warnings, for NVML is never all
    there is.
    """
    problem = _unusable(library)
    if problem:
        return NvmlAnswer(report=None, findings=(problem,))
    from cdigen.host.childprocess import run, stuck  # noqa: PLC0415 - most runs of cdigen ask no NVML

    command = child or _own_child()
    if (hanging := stuck(command)) >= MAX_STUCK:
        message = f"NVML is not asked: {hanging} processes that asked it hang in the kernel"
        return _without_report("nvml-timeout", library, message, "see 'dmesg'; a reboot ends them")
    try:
        ending = run(
            (*command, library, *what, *addresses),
            deadline_s=deadline_s,
            ends_with_output=True,
        )
    except OSError as error:
        message = f"the process that asks NVML cannot be started: {reason(error)}"
        return _without_report("nvml-failed", library, message)
    return _answer(library, ending, deadline_s, what)


def _own_child() -> tuple[str, ...]:
    import sys  # noqa: PLC0415 - only here

    # -I: no variable and no folder of whoever called decides what is imported.
    return (sys.executable, "-I", f"{os.path.dirname(os.path.abspath(__file__))}/child")


def _unusable(library: str) -> Finding | None:
    """Return what speaks against LIBRARY before anything of it is loaded."""
    from cdigen.host.trust import untrusted  # noqa: PLC0415 - most runs of cdigen ask no NVML

    hint = "install the driver's package that holds it, or name the library with 'nvml: PATH'"
    try:
        mode = os.stat(library).st_mode
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "no path"
        return _notice("nvml-failed", library, f"{shown(library)} cannot be loaded: {why}", hint)
    if not stat.S_ISREG(mode):
        return _notice(
            "nvml-failed", library, f"{shown(library)} is not a library: it is not a regular file", hint
        )
    distrust = untrusted(library)
    if not distrust:
        return None
    return _notice(
        "nvml-untrusted",
        library,
        f"{shown(library)} is not loaded: {distrust}",
        "it and every folder above it have to belong to root, and nobody else may write there",
    )


def _answer(library: str, ending: ChildResult, deadline_s: float, parts: tuple[str, ...]) -> NvmlAnswer:
    if ending.by == "deadline":
        fate = "cannot be ended: it hangs in the kernel" if ending.status is None else "was ended"
        what = f"NVML did not answer within {deadline_s:g} s; the process that asked it {fate}"
        return _without_report("nvml-timeout", library, what, "see whether 'nvidia-smi' answers, and 'dmesg'")
    if ending.by == "flood":
        return _without_report("nvml-garbage", library, "the process that asks NVML printed more than 1 MiB")
    status = ending.status if ending.by == "itself" else 0
    if status is not None and status < 0:
        what = f"NVML crashed: its process was ended by {_signal(-status)}{_quoted(ending)}"
        return _without_report("nvml-crashed", library, what, "see 'dmesg', and whether 'nvidia-smi' works")
    try:
        if status:
            raise InvalidNvmlDocument(f"it ended with status {status}")
        said = read(ending.output, parts)
    except InvalidNvmlDocument as error:
        what = f"NVML's process gave no proper answer: {error}{_quoted(ending)}"
        return _without_report("nvml-garbage", library, what)
    if isinstance(said, NvmlFailure):
        return NvmlAnswer(report=None, findings=(_failure(library, said),))
    findings = [_gpu_failure(gpu, gpu.error) for gpu in said.gpus if gpu.error]
    if ending.last_stderr_line:
        what = f"NVML printed text beside its answer, which is passed over{_quoted(ending)}"
        findings.append(_notice("nvml-garbage", library, what, severity="info"))
    return NvmlAnswer(report=said, findings=tuple(findings))


def _failure(library: str, failure: NvmlFailure) -> Finding:
    if failure.error:
        meaning, hint = _explain(failure.error)
        return _notice("nvml-failed", library, f"NVML refuses: {failure.error.call} gives {meaning}", hint)
    message = shown(failure.message)
    if failure.stage == "other-library":
        return _notice("nvml-untrusted", library, f"NVML was not asked: {message}")
    if failure.stage == "import":
        what = (
            f"NVML is not asked, because the Python module pynvml is missing ({message}): MIG instances have "
            "no numbers and UUIDs, nor have GPUs a UUID before their first use"
        )
        hint = "install it, if their names are wanted: python3-pynvml (Debian: contrib), nvidia-ml-py (PyPI)"
        return _notice(MODULE_MISSING, library, what, hint)
    return _notice("nvml-failed", library, f"NVML cannot be asked: {message}")


def _gpu_failure(gpu: NvmlGpu, error: NvmlError) -> Finding:
    meaning, hint = _explain(error)
    where = f"GPU {gpu.index}" + (f" ({gpu.address})" if gpu.address else "")
    what = f"NVML does not tell all about {where}: {error.call} gives {meaning}"
    return _notice("nvml-gpu-failed", gpu.address or f"GPU {gpu.index}", what, hint)


def _explain(error: NvmlError) -> tuple[str, str]:
    meaning, hint = _EXPLAINED.get(error.name, ("", ""))
    return f"{error.name} ({error.code})" + (f": {meaning}" if meaning else ""), hint


def _signal(number: int) -> str:
    import signal  # noqa: PLC0415 - only after a crash

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _quoted(ending: ChildResult) -> str:
    return f"; it said {ending.last_stderr_line!r}" if ending.last_stderr_line else ""


def _without_report(rule: str, library: str, message: str, hint: str = "") -> NvmlAnswer:
    return NvmlAnswer(report=None, findings=(_notice(rule, library, message, hint),))


def _notice(rule: str, path: str, message: str, hint: str = "", severity: Severity = "warning") -> Finding:
    return Finding(severity=severity, rule=rule, path=shown(path), message=message, hint=hint)
