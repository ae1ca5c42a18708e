"""What the doctor says where NVML had to be asked, and pynvml is not installed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cdigen.doctor import driver
from cdigen.model.findings import Finding
from cdigen.model.inventory_json import from_document
from cdigen.value import replace

if TYPE_CHECKING:
    from cdigen.doctor.result import CheckResult

HOST = Path(__file__).resolve().parents[2] / "examples/hosts/debian13-8xh100.json"
MISSING = Finding(
    severity="warning",
    rule="nvml-module-missing",
    path="libnvidia-ml.so.1",
    message="the Python module pynvml is missing",
    hint="install it, if their names are wanted",
)


def results(*findings: Finding) -> list[CheckResult]:
    """Return what the driver's checks say of a host on which discovery found FINDINGS."""
    inventory = replace(from_document(json.loads(HOST.read_text()))["nvidia"], findings=findings)
    request = SimpleNamespace(vendors=())
    context: Any = SimpleNamespace(failures={}, inventories={"nvidia": inventory}, request=request)
    return [result for check in driver.CHECKS for result in check(context)]


def test_one_result_says_that_the_module_is_missed() -> None:
    wrong = [result for result in results(MISSING) if not result.ok]
    assert [(result.check, result.severity) for result in wrong] == [("nvml-module", "warning")]
    assert wrong[0].detail == "the Python module pynvml is missing; install it, if their names are wanted"


def test_where_nothing_needs_the_module_its_absence_is_no_failure() -> None:
    assert [result.ok for result in results() if result.check == "nvml-module"] == [True]
