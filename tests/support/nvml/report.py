"""Query a stand-in machine as cdigen does: with the real child and the real pynvml."""

from pathlib import Path

from support.nvml.standin import Gpu, Machine, gpu, install

from cdigen.model.findings import Finding
from cdigen.vendors.nvidia.nvml.document import NvmlReport
from cdigen.vendors.nvidia.nvml.query import NvmlAnswer, query


def queried(folder: Path, machine: Machine, *, deadline_s: float = 20.0) -> NvmlAnswer:
    answer = query(str(install(folder, machine)), deadline_s=deadline_s)
    assert all(finding.line().isprintable() for finding in answer.findings)
    return answer


def reported(folder: Path, *gpus: Gpu, faults: tuple[str, ...] = ()) -> NvmlReport:
    answer = queried(folder, Machine(gpus=gpus, faults=faults))
    assert answer.findings == ()
    assert answer.report is not None
    return answer.report


def failed_query(folder: Path, *faults: str, deadline_s: float = 20.0) -> Finding:
    """Return the only finding for a machine with two GPUs and FAULTS; assert that there is no report."""
    answer = queried(folder, Machine(gpus=(gpu(0), gpu(1)), faults=faults), deadline_s=deadline_s)
    assert answer.report is None
    (finding,) = answer.findings
    assert finding.severity == "warning"
    return finding
