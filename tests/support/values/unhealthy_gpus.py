"""Inventories with unhealthy GPUs; ``save`` writes the files of a running daemon on a host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from support.paths import REPOSITORY
from support.values.cycle_reports import CHANGED, STARTING

from cdigen.daemon import status as daemon_status
from cdigen.daemon.cycle.report import next_status
from cdigen.model.health import Cause
from cdigen.model.inventory import Accelerator, Inventory, Partition
from cdigen.model.inventory_json import from_document
from cdigen.service import rundir
from cdigen.service.status import this_process
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = REPOSITORY / "examples/hosts"
FELL = Cause(
    cause="xid-79",
    since="2026-01-01T00:00:00.000Z",
    detail="GPU has fallen off the bus.",
    clears_when="the GPU is reset, or the host is rebooted",
)
ECC = Cause(
    cause="xid-48",
    since="2026-01-01T00:02:00.000Z",
    detail="a double bit ECC error",
    clears_when="the driver reports that no recovery is needed",
)


def example(name: str = "debian13-8xh100") -> dict[str, Inventory]:
    """Return the inventories of the host NAME in examples/hosts, with every device healthy."""
    found = from_document(json.loads((EXAMPLES / f"{name}.json").read_bytes()))
    return {
        vendor: replace(one, accelerators=tuple(map(healthy, one.accelerators)))
        for vendor, one in found.items()
    }


def healthy(gpu: Accelerator) -> Accelerator:
    parts = tuple(replace(part, health="healthy") for part in gpu.partitions)
    return replace(gpu, health="healthy", partitions=parts)


def with_causes(
    inventories: dict[str, Inventory], index: int, *causes: Cause, vendor: str = "nvidia"
) -> dict[str, Inventory]:
    """Return INVENTORIES with CAUSES on the GPU INDEX and on its partitions."""
    whole = inventories[vendor]
    gpus = [
        replace(
            gpu,
            health="unhealthy",
            causes=causes,
            partitions=tuple(replace(part, health="unhealthy", causes=causes) for part in gpu.partitions),
        )
        if gpu.index == index
        else gpu
        for gpu in whole.accelerators
    ]
    return {**inventories, vendor: replace(whole, accelerators=tuple(gpus))}


def split(gpu: Accelerator) -> Accelerator:
    """Return GPU in MIG mode, with two instances; the second instance is unhealthy."""
    uuid = "MIG-d2e3f4a5-b6c7-4d8e-9f0a-1b2c3d4e5f6{}"
    node = replace(
        gpu.nodes[0], path="/dev/nvidia-caps/nvidia-cap30", host_path="/dev/nvidia-caps/nvidia-cap30"
    )
    parts = tuple(
        Partition(
            index=number,
            uuid=uuid.format(number),
            profile="1g.10gb",
            instance=f"gi{number + 7}/ci0",
            graphics=False,
            nodes=(node,),
            usable=True,
            health="unhealthy" if number else "healthy",
            causes=(ECC,) if number else (),
        )
        for number in range(2)
    )
    return replace(gpu, partitioned=True, partitions=parts)


def save(root: Path, inventories: dict[str, Inventory] | None = None) -> Path:
    """Write the files of a running daemon with INVENTORIES below ROOT; return the path of inventory.json."""
    run_dir = root / "run/cdigen"
    rundir.prepare(str(run_dir))
    status = next_status(STARTING, CHANGED, {"files": "", "kernel-log": ""})
    rundir.save_status(str(run_dir), daemon_status.document(status, this_process()))
    daemon_status.save_inventory(str(run_dir), example() if inventories is None else inventories)
    return run_dir / "inventory.json"
