"""The doctor's check of the Python module pynvml, which cdigen uses for NVML."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cdigen.doctor.checks import driver
from cdigen.host.root import Root
from cdigen.model.findings import Finding
from cdigen.model.inventory_json import from_document
from cdigen.value import replace
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.nvidia.vendor import VENDOR

if TYPE_CHECKING:
    from cdigen.doctor.result import CheckResult
    from cdigen.model.inventory import Inventory

HOST = Path(__file__).resolve().parents[2] / "examples/hosts/debian13-8xh100.json"
MISSING = Finding(
    severity="warning",
    rule="nvml-module-missing",
    path="libnvidia-ml.so.1",
    message="the Python module pynvml is not installed: no temperature",
    hint="install it",
)


def results(
    *findings: Finding, nvml: str = "auto", root: Path = Path("/nowhere"), is_live: bool = True
) -> list[CheckResult]:
    """Return the results of the driver's checks for a host whose discovery has FINDINGS."""
    inventory = replace(from_document(json.loads(HOST.read_text()))["nvidia"], findings=findings)
    return checked(inventory, SimpleNamespace(nvml=nvml), Root(str(root)), is_live=is_live)


def checked(
    inventory: Inventory, discovery: Any, host: Root, *, vendors: tuple[str, ...] = (), is_live: bool = True
) -> list[CheckResult]:
    """Return the results of the driver's checks for HOST with INVENTORY, with the diagnostics of VENDORS."""
    request = SimpleNamespace(
        vendors=vendors, discovery_context=discovery, spec_dirs=("/etc/cdi",), state_dir="/var/lib/cdigen"
    )
    context: Any = SimpleNamespace(
        failures={},
        inventories={"nvidia": inventory},
        request=request,
        host=host,
        is_live=is_live,
        concerns=lambda _: True,
    )
    return [result for check in driver.CHECKS for result in check(context)]


def module_rows(found: list[CheckResult]) -> list[tuple[bool, bool, str]]:
    return [(row.ok, row.is_checked, row.detail) for row in found if row.check == "nvml-module"]


def test_a_missing_module_is_a_single_warning() -> None:
    wrong = [result for result in results(MISSING) if not result.ok]
    assert [(result.check, result.severity) for result in wrong] == [("nvml-module", "warning")]
    assert wrong[0].detail == "the Python module pynvml is not installed: no temperature; install it"


def test_an_installed_module_is_reported_as_installed() -> None:
    assert module_rows(results()) == [(True, True, "the Python module pynvml is installed")]


@pytest.mark.parametrize(("nvml", "why"), [("off", "nvml: off"), ("auto", "libnvidia-ml.so.1 was not found")])
def test_without_nvml_the_detail_names_the_missing_values(nvml: str, why: str) -> None:
    inventory = from_document(json.loads(HOST.read_text()))["nvidia"]
    host = Root("/nowhere")
    context = DiscoveryContext(host=host, driver=host, dev=host, nvml=nvml)
    (finding,) = VENDOR.diagnostics(context, replace(inventory, files=()))
    assert why in finding.message
    assert "memory, load, temperature" in finding.message
    found = checked(replace(inventory, files=()), context, host, vendors=("nvidia",))
    ((is_ok, is_checked, detail),) = module_rows(found)
    assert (is_ok, is_checked, detail) == (True, False, finding.message)


@pytest.mark.parametrize(
    ("package", "is_offered"),
    [
        ("libnvidia-ml1:amd64.list", True),
        ("libnvidia-ml1.list", True),
        ("libnvidia-tesla-535-ml1:amd64.list", True),
        ("libnvidia-ml1:amd64.triggers", False),
        ("libnvidia-cfg1:amd64.list", False),
    ],
)
def test_the_remedy_is_debians_package_if_nvml_comes_from_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, *, is_offered: bool
) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr")
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / package).touch()
    remedies = {
        is_live: [row.remedy for row in results(MISSING, root=tmp_path, is_live=is_live) if not row.ok]
        for is_live in (True, False)
    }
    assert remedies == {
        True: ["apt-get install --yes python3-pynvml" if is_offered else ""],
        False: [""],
    }


def test_cdigen_in_a_virtual_environment_does_not_get_debians_package_as_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", "/opt/pipx/venvs/cdigen")
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "libnvidia-ml1:amd64.list").touch()
    assert [row.remedy for row in results(MISSING, root=tmp_path) if not row.ok] == [""]
