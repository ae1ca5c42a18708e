"""The first line of the status if runtimes cannot use the specs that the daemon has written."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import CycleRunner, after_first_cycle

from cdigen.daemon.cycle.report import verdict

if TYPE_CHECKING:
    from support.daemon.host import Host

pytestmark = pytest.mark.usefixtures("real_nodes")


def line(cycles: CycleRunner) -> tuple[str, str]:
    return verdict(cycles.run_cycle().report)


@pytest.mark.parametrize("kind", ["FIFO", "crash"])
def test_the_verdict_names_a_file_at_which_runtimes_hang_or_crash(host: Host, kind: str) -> None:
    cycles = after_first_cycle(host)
    file = host.spec.with_name("zz.json")
    if kind == "FIFO":
        os.mkfifo(file)
    else:
        device = {"name": "0", "containerEdits": {"deviceNodes": [None]}}
        file.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "x.com/yy", "devices": [device]}))
    state, text = line(cycles)
    assert (state, str(file) in text) == ("degraded", True)
    file.unlink()
    assert line(cycles)[0] == "ready"


def test_the_verdict_names_a_conflict_of_foreign_files_that_hides_devices(host: Host) -> None:
    cycles = after_first_cycle(host)
    folder = host.root / "etc/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    device = {"name": "0", "containerEdits": {"env": ["A=B"]}}
    for name in ("one", "two"):
        document = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]}
        (folder / f"{name}.json").write_text(json.dumps(document))
    report = cycles.run_cycle().report
    state, text = verdict(report)
    assert (state, "no runtime finds nvidia.com/gpu=0: " in text) == ("degraded", True)
    assert [finding.rule for finding in report.obstacles] == ["conflict"]


def test_the_verdict_ignores_a_broken_file_that_hides_no_devices(host: Host) -> None:
    cycles = after_first_cycle(host)
    host.spec.with_name("zz.json").write_text("{")
    assert line(cycles)[0] == "ready"
