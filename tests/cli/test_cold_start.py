"""The start of a command is fast, because commands import only the modules that they need."""

from pathlib import Path

import pytest
from support.command.imports import HEAVY, imported
from support.command.resolve import EXAMPLE
from support.hosts import nvidia_machines


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("generate", "--inventory", str(EXAMPLE)), ("inspect", "--inventory", str(EXAMPLE))],
)
def test_short_commands_import_no_slow_modules(arguments: tuple[str, ...]) -> None:
    assert not imported(*arguments) & HEAVY


def test_the_option_version_imports_no_command() -> None:
    modules = {name for name in imported("--version") if name.startswith("cdigen.")}
    assert modules == {"cdigen.cli", "cdigen.cli.main", "cdigen.model", "cdigen.model.errors"}


def test_printing_a_spec_does_not_import_the_store() -> None:
    assert not any(
        name.startswith("cdigen.store") for name in imported("generate", "--inventory", str(EXAMPLE))
    )


def test_a_host_without_intel_devices_imports_only_one_module_of_intel(host: Path) -> None:
    intels = "cdigen.vendors.intel"
    modules = {name for name in imported("generate", "--root", str(host)) if name.startswith(intels)}
    assert modules == {intels, f"{intels}.vendor", f"{intels}.presence"}


@pytest.mark.usefixtures("real_nodes")
def test_generating_a_spec_imports_no_module_of_health_stats_and_links(tmp_path: Path) -> None:
    nvidia_machines.dgx_h100(tmp_path)
    modules = imported("generate", "--root", str(tmp_path), "--kind", "nvidia.com/gpu")
    assert "cdigen.vendors.nvidia.discovery" in modules
    words = ("health", "stats", "links", "store", "topology")
    assert {
        name for name in modules if name.startswith("cdigen.") and any(each in name for each in words)
    } == set()
