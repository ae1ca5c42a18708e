"""The health code of AMD and Intel: registration, a rule for each cause, and detection of driver loads."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree, intel_tree
from support.hosts.nvidia import places
from support.values.health_devices import health_of

from cdigen.vendors import registry
from cdigen.vendors.amd.health import LINES as AMD_LINES
from cdigen.vendors.intel.health import LINES as INTEL_LINES
from cdigen.vendors.kernel.modules import load_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cdigen.vendors.kernel.driver_lines import Line


@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_the_health_code_of_a_vendor_is_registered(vendor: str) -> None:
    assert registry.health(vendor) is importlib.import_module(f"cdigen.vendors.{vendor}.health").HEALTH


@pytest.mark.parametrize(
    ("vendor", "lines"), [("amd", [line for line in AMD_LINES if line.cause]), ("intel", INTEL_LINES)]
)
def test_every_reported_cause_has_one_rule(vendor: str, lines: Sequence[Line]) -> None:
    causes = [rule.cause for rule in health_of(vendor).causes]
    assert len(causes) == len(set(causes))
    assert {line.cause for line in lines} <= set(causes)


@pytest.mark.parametrize(("vendor", "module"), [("amd", "amdgpu"), ("intel", "xe")])
def test_each_load_of_the_driver_has_a_different_identifier(root: Path, vendor: str, module: str) -> None:
    amd_tree.write(root, amd_tree.mi210(1))
    intel_tree.lay(root, intel_tree.one_of_each_driver()[0])
    host, modules = places(root).host, health_of(vendor).modules
    before = load_of(host, *modules)
    assert before
    folder = root / "sys/module" / module
    folder.rename(folder.with_name("gone"))
    assert load_of(host, *modules) == ""
    folder.mkdir()
    assert load_of(host, *modules) not in {"", before}
