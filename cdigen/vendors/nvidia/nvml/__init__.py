"""The reply of NVML for each GPU, or the reason why there is no reply (``NvmlReply``)."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.vendors.nvidia.nvml.document import NvmlGpu, NvmlReport


@frozen
class NvmlGpuReply:
    """The reply of NVML for one GPU.

    If the reply is incomplete, ``unavailable_reason`` has the reason, else it is empty. ``was_queried`` is
    false if cdigen did not query NVML. In this case, ``unavailable_reason`` is not an error.
    """

    answer: NvmlGpu | None
    unavailable_reason: str
    was_queried: bool


@frozen
class NvmlReply:
    """The replies of NVML, by GPU address. ``unavailable_reason`` applies to GPUs without a reply."""

    gpus: Mapping[str, NvmlGpu]
    unavailable_reason: str
    was_queried: bool = True

    def of(self, address: str) -> NvmlGpuReply:
        """Return the reply for the GPU at ADDRESS."""
        answer = self.gpus.get(address)
        unavailable_reason = self.unavailable_reason if answer is None else _unavailable_reason(answer)
        return NvmlGpuReply(
            answer=answer, unavailable_reason=unavailable_reason, was_queried=self.was_queried
        )


def not_queried(why: str = "") -> NvmlReply:
    """Return a reply without GPUs. WHY is the reason why NVML is not queried."""
    reason = f"NVML was not queried{f' ({why})' if why else ''}"
    return NvmlReply(gpus={}, unavailable_reason=reason, was_queried=False)


def reply_of(report: NvmlReport | None, problem: str) -> NvmlReply:
    """Return the replies in REPORT. If REPORT is None, the result has no GPUs, and PROBLEM is the reason."""
    if report is None:
        return NvmlReply(gpus={}, unavailable_reason=problem)
    nameless = next((gpu for gpu in report.gpus if gpu.address is None), None)
    unavailable_reason = "NVML does not list the GPU"
    if nameless:
        unavailable_reason = (
            _unavailable_reason(nameless) or f"NVML reports no PCI address for NVML's GPU {nameless.index}"
        )
    return NvmlReply(
        gpus={gpu.address: gpu for gpu in report.gpus if gpu.address is not None},
        unavailable_reason=unavailable_reason,
    )


def _unavailable_reason(gpu: NvmlGpu) -> str:
    if error := gpu.error:
        return f"NVML call failed: {error.call} returned {error.name} ({error.code})"
    return "NVML does not report the MIG mode" if gpu.mig_mode is None else ""
