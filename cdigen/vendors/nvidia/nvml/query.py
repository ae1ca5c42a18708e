"""Query NVML in a child process (``query``).

NVIDIA's library may hang during the reset of a GPU. It may crash, or belong to a driver that was just
replaced. In a child process, such problems do not affect cdigen. cdigen queries NVML only for values that
/proc and /sys do not have, because the start of NVML can resume GPUs for seconds.

Each failure is a finding, and raises no exception. A failure of one GPU does not affect other GPUs.
"""

from __future__ import annotations

import os
import stat

from cdigen.host.root import reason, shown
from cdigen.model.findings import Finding
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.document import MODULE, InvalidNvmlDocument, NvmlFailure, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.childprocess import ChildResult
    from cdigen.model.findings import Severity
    from cdigen.vendors.nvidia.nvml.document import NvmlError, NvmlGpu, NvmlReport

# The rule of the finding that cdigen does not query NVML because pynvml is not installed.
MODULE_MISSING = "nvml-module-missing"

# The rule of the finding that cdigen does not query NVML for another reason.
NOT_QUERIED = "nvml-not-queried"

# The values that only NVML reports.
_NOT_REPORTED = (
    "cdigen does not report memory, load, temperature, power, clocks and NVLink of GPUs, health by NVML, "
    "numbers and UUIDs of MIG instances, UUIDs of GPUs before their first use"
)

# In seconds. Without nvidia-persistenced, the start of NVML took 2 s with one T4, and 24 s on a host whose
# driver discards its state after each use (gvisor issue 9215, nvidia-container-toolkit issue 1053).
DEADLINE_S = 10.0
# The maximum number of hanging processes. If a GPU hangs in the kernel, each process that queries the GPU
# hangs until the reboot.
MAX_STUCK = 3

_RELOAD = (
    "load the module of the library's version: stop all programs that use the GPUs and run "
    "'rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia', or reboot"
)
_FIND_CAUSE = "run 'nvidia-smi' and 'dmesg' to find the cause"
_KERNEL_LOG = "see 'dmesg | grep -e NVRM -e Xid' for the cause"

# Name of an nvmlReturn_t (NVML API reference) -> (meaning in this query, next step).
_EXPLAINED: dict[str, tuple[str, str]] = {
    "NVML_ERROR_CORRUPTED_INFOROM": ("the GPU's InfoROM is corrupt", "replace the GPU"),
    "NVML_ERROR_DRIVER_NOT_LOADED": (
        "the NVIDIA kernel module is not loaded, or its device nodes are missing",
        "run 'modprobe nvidia', then 'cdigen create-nodes'",
    ),
    "NVML_ERROR_FUNCTION_NOT_FOUND": ("the library is too old or is not NVML", "update the driver"),
    "NVML_ERROR_GPU_IS_LOST": ("the GPU has fallen off the bus", f"{_KERNEL_LOG}; reboot the host"),
    "NVML_ERROR_IRQ_ISSUE": ("the kernel reports a problem with the GPU's interrupts", _KERNEL_LOG),
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "the library and the loaded kernel module have different versions",
        _RELOAD,
    ),
    "NVML_ERROR_NO_PERMISSION": ("this process may not use the device nodes", "run as root"),
    "NVML_ERROR_RESET_REQUIRED": ("the GPU has to be reset", "run 'nvidia-smi --gpu-reset'"),
    "NVML_ERROR_UNKNOWN": ("the driver gives no reason", _KERNEL_LOG),
}


@frozen
class NvmlAnswer:
    """The result of a query. ``report`` is None if NVML returned no report. ``findings`` are the failures."""

    report: NvmlReport | None
    findings: tuple[Finding, ...]


def query(
    library: str,
    *,
    what: tuple[str, ...] = ("identity",),
    addresses: tuple[str, ...] = (),
    deadline_s: float = DEADLINE_S,
    child: tuple[str, ...] | None = None,
) -> NvmlAnswer:
    """Query NVML in a child process, and return the reply; raise no exception.

    The child process loads LIBRARY, an absolute path on this machine. The time limit is DEADLINE_S. The
    function rejects a library that other users than root can change.

    WHAT are parts of a GPU's entry (document.PARTS), or only document.DRIVER. With document.DRIVER, NVML
    opens no GPU. If ADDRESSES is not empty, NVML queries only these GPUs, and resumes no other GPU. If one of
    these GPUs hangs and "links" is not in WHAT, the child process stops waiting for this GPU shortly after
    the other GPUs have answered.

    CHILD is the command of the child process. The function adds LIBRARY, WHAT and ADDRESSES as arguments. The
    default is this Python with nvml/child.

    Each failure is a finding. The finding is a warning, not an error, because cdigen also has sources other
    than NVML.
    """
    problem = _unusable(library)
    if problem:
        return NvmlAnswer(report=None, findings=(problem,))
    from cdigen.host.childprocess import run, stuck  # noqa: PLC0415 - most runs query no NVML

    command = child or _own_child()
    if (hanging := stuck(command)) >= MAX_STUCK:
        message = f"NVML is not queried: {hanging} processes of earlier queries hang in the kernel"
        return _without_report(
            "nvml-timeout", library, message, "see 'dmesg'; reboot the host to end the processes"
        )
    try:
        ending = run((*command, library, *what, *addresses), deadline_s=deadline_s, ends_with_output=True)
    except OSError as error:
        message = f"the NVML child process cannot be started: {reason(error)}"
        return _without_report("nvml-failed", library, message)
    return _answer(library, ending, deadline_s, what)


def module_problem(child: tuple[str, ...] | None = None) -> Finding | None:
    """Return the finding that pynvml is not installed for the Python of the child process, or None.

    The child process loads no library. CHILD has the same meaning as for ``query``.
    """
    from cdigen.host.childprocess import run  # noqa: PLC0415 - only the doctor uses this

    try:
        ending = run((*(child or _own_child()), "", MODULE), deadline_s=DEADLINE_S, ends_with_output=True)
        answer = read(ending.output, ())
    except (OSError, InvalidNvmlDocument):
        return None  # without a valid document, it is not known whether pynvml is installed
    return _module_missing("", answer) if isinstance(answer, NvmlFailure) else None


def not_queried_finding(library: str, why: str) -> Finding:
    """Return the finding that NVML is not queried, with the reason WHY and the missing values."""
    return _notice(NOT_QUERIED, library, f"{why}: {_NOT_REPORTED}", "")


def _own_child() -> tuple[str, ...]:
    import sys  # noqa: PLC0415 - used here only

    # With -I, environment variables and the current folder do not affect the imports.
    return (sys.executable, "-I", f"{os.path.dirname(os.path.abspath(__file__))}/child")


def _unusable(library: str) -> Finding | None:
    """Return the finding that LIBRARY must not be loaded, or None. The function does not load LIBRARY."""
    from cdigen.host.trust import untrusted  # noqa: PLC0415 - most runs query no NVML

    hint = "install the driver's package with the library, or set the library's path with 'nvml: PATH'"
    try:
        mode = os.stat(library).st_mode
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "not a valid path"
        return _notice("nvml-failed", library, f"{shown(library)} cannot be loaded: {why}", hint)
    if not stat.S_ISREG(mode):
        what = f"{shown(library)} is not a library: it is not a regular file"
        return _notice("nvml-failed", library, what, hint)
    distrust = untrusted(library)
    if not distrust:
        return None
    hint = "the file and every folder above it must belong to root, and only root may have write access"
    return _notice("nvml-untrusted", library, f"{shown(library)} is not loaded: {distrust}", hint)


def _answer(library: str, ending: ChildResult, deadline_s: float, parts: tuple[str, ...]) -> NvmlAnswer:
    if ending.by == "deadline":
        fate = "cannot be ended: it hangs in the kernel" if ending.status is None else "was ended"
        what = f"NVML did not answer within {deadline_s:g} s; its child process {fate}"
        return _without_report("nvml-timeout", library, what, _FIND_CAUSE)
    if ending.by == "flood":
        what = "the NVML child process printed more than 1 MiB"
        return _without_report("nvml-invalid-output", library, what)
    status = ending.status if ending.by == "itself" else 0
    if status is not None and status < 0:
        what = f"NVML crashed: its child process was ended by {_signal(-status)}{_quoted(ending)}"
        return _without_report("nvml-crashed", library, what, _FIND_CAUSE)
    try:
        if status:
            raise InvalidNvmlDocument(f"its exit status is {status}")
        reply = read(ending.output, parts)
    except InvalidNvmlDocument as error:
        what = f"the NVML child process printed no valid document: {error}{_quoted(ending)}"
        return _without_report("nvml-invalid-output", library, what)
    if isinstance(reply, NvmlFailure):
        return NvmlAnswer(report=None, findings=(_failure(library, reply),))
    findings = [_gpu_failure(gpu, gpu.error) for gpu in reply.gpus if gpu.error]
    if ending.last_stderr_line:
        what = f"NVML printed text in addition to its reply; cdigen ignores the text{_quoted(ending)}"
        findings.append(_notice("nvml-invalid-output", library, what, severity="info"))
    return NvmlAnswer(report=reply, findings=tuple(findings))


def _failure(library: str, failure: NvmlFailure) -> Finding:
    if failure.error:
        meaning, hint = _explain(failure.error)
        return _notice(
            "nvml-failed", library, f"NVML call failed: {failure.error.call} returned {meaning}", hint
        )
    message = shown(failure.message)
    if failure.stage == "other-library":
        return _notice("nvml-untrusted", library, f"NVML was not queried: {message}")
    if failure.stage == "import":
        return _module_missing(library, failure)
    return _notice("nvml-failed", library, f"NVML cannot be queried: {message}")


def _module_missing(library: str, failure: NvmlFailure) -> Finding:
    what = f"the Python module pynvml is not installed ({shown(failure.message)}): {_NOT_REPORTED}"
    hint = "install python3-pynvml (Debian: section contrib) or nvidia-ml-py (PyPI)"
    return _notice(MODULE_MISSING, library or "pynvml", what, hint)


def _gpu_failure(gpu: NvmlGpu, error: NvmlError) -> Finding:
    meaning, hint = _explain(error)
    where = f"GPU {gpu.index}" + (f" ({gpu.address})" if gpu.address else "")
    what = f"NVML call failed for {where}: {error.call} returned {meaning}"
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
    return (
        f"; the last line on standard error is {ending.last_stderr_line!r}" if ending.last_stderr_line else ""
    )


def _without_report(rule: str, library: str, message: str, hint: str = "") -> NvmlAnswer:
    return NvmlAnswer(report=None, findings=(_notice(rule, library, message, hint),))


def _notice(rule: str, path: str, message: str, hint: str = "", severity: Severity = "warning") -> Finding:
    return Finding(severity=severity, rule=rule, path=shown(path), message=message, hint=hint)
