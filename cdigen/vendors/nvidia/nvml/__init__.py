"""What NVML said of each GPU, or why it did not (``NvmlReply``), for the readers of GPUs and MIG."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.vendors.nvidia.nvml.document import NvmlGpu, NvmlReport


@frozen
class NvmlGpuReply:
    """What NVML said of one GPU; ``silence`` says why that is not all, or is empty.

    ``was_asked`` tells a silence that was chosen from one that is a fault.
    """

    answer: NvmlGpu | None
    silence: str
    was_asked: bool


@frozen
class NvmlReply:
    """What NVML said of every GPU, by its address; ``silence`` is why it said nothing of the others."""

    gpus: Mapping[str, NvmlGpu]
    silence: str
    was_asked: bool = True

    def of(self, address: str) -> NvmlGpuReply:
        """Return what it said of the GPU at ADDRESS."""
        answer = self.gpus.get(address)
        silence = self.silence if answer is None else _silence(answer)
        return NvmlGpuReply(answer=answer, silence=silence, was_asked=self.was_asked)


def not_asked(why: str = "") -> NvmlReply:
    """Return the reply of an NVML that must not be asked, or cannot be."""
    return NvmlReply(gpus={}, silence=f"NVML was not asked{f' ({why})' if why else ''}", was_asked=False)


def reply_of(report: NvmlReport | None, problem: str) -> NvmlReply:
    """Return what REPORT says; PROBLEM is why there is none."""
    if report is None:
        return NvmlReply(gpus={}, silence=problem)
    nameless = next((gpu for gpu in report.gpus if gpu.address is None), None)
    silence = "NVML does not list it"
    if nameless:
        silence = _silence(nameless) or f"NVML does not tell the address of its GPU {nameless.index}"
    return NvmlReply(
        gpus={gpu.address: gpu for gpu in report.gpus if gpu.address is not None},
        silence=silence,
    )


def _silence(gpu: NvmlGpu) -> str:
    if error := gpu.error:
        return f"NVML does not tell all: {error.call} gives {error.name} ({error.code})"
    return "NVML does not tell whether it is in MIG mode" if gpu.mig_mode is None else ""
