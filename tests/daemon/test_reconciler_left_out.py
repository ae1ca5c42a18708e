"""The report of a cycle has the number of devices that each spec leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import CycleRunner
from support.daemon.host import Host
from support.hosts import amd_tree
from support.hosts.mig import write_instance, write_minors

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
SETTLE_S = 1.0  # the value that Host.configure writes


def test_left_out_devices_are_counted_for_their_kind(tmp_path: Path) -> None:
    host = Host(tmp_path / "host").prepare()
    amd_tree.write(host.root, amd_tree.mi210(2))
    amd_tree.write_npu(host.root)
    host.configure()
    cycles = CycleRunner(host)
    cycles.run_cycle()
    (host.root / "dev/dri/renderD128").unlink()
    report = cycles.run_cycle(SETTLE_S + 1).report
    assert {spec.kind: spec.left_out for spec in report.specs} == {"amd.com/gpu": 1, "amd.com/npu": 0}


def test_the_left_out_partitions_of_split_gpus_are_counted(host: Host, cycles: CycleRunner) -> None:
    write_minors(host.root, 2)
    write_instance(host.root, 0, 7)
    write_instance(host.root, 0, 9, nodes=False)
    write_instance(host.root, 1, 7, nodes=False)
    cycles.run_cycle()
    (spec,) = cycles.run_cycle(SETTLE_S + 1).report.specs
    assert spec.left_out == 2
