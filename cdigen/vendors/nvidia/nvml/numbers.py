"""Query NVML for the numbers of GPUs, and compare them with cdigen's numbers."""

from __future__ import annotations

from cdigen.vendors.nvidia.devices.numbers import RULE, differing
from cdigen.vendors.nvidia.nvml.query import query
from cdigen.vendors.nvidia.nvml.readiness import is_suspended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory


def query_differing(library: str, host: Root, inventory: Inventory) -> tuple[Finding, ...]:
    """Query NVML's LIBRARY for the numbers of INVENTORY's GPUs, and return the finding if they differ.

    The discovery queries NVML only if a value is missing, because the query resumes suspended GPUs. Also for
    this reason, the result is empty if a GPU is suspended, or if there is only one GPU.
    """
    gpus = inventory.accelerators
    is_known = any(finding.rule == RULE for finding in inventory.findings)
    if is_known or len(gpus) < 2 or any(is_suspended(host, gpu.address) for gpu in gpus):
        return ()
    report = query(library).report
    known = report.gpus if report is not None else ()
    return differing(gpus, {gpu.address: gpu.index for gpu in known if gpu.address})
