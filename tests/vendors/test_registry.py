"""Vendors in the tree and vendors of other packages. A defect of one vendor does not affect other vendors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.added_vendors import minimal, vendor
from support.hosts.nvidia import places
from support.paths import REPOSITORY

from cdigen.kernellog.drivers import BEGINNINGS
from cdigen.model.errors import ConfigError, HostError
from cdigen.pipeline import discovery, generate
from cdigen.value import replace
from cdigen.vendors import registry
from cdigen.vendors.base import Vendor
from cdigen.vendors.plugin_values import VendorPackage

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

MEMBERS = [name for name in Vendor.__annotations__ if name != "problem"]
OPTIONAL = MEMBERS[MEMBERS.index("diagnostics") + 1 :]
DEFECTIVE = "raise RuntimeError('two\\nlines')"


@pytest.mark.parametrize("name", list(registry.VENDORS))
def test_a_vendor_of_the_tree_matches_its_row(name: str) -> None:
    loaded, row = registry.load(name), registry.VENDORS[name]
    assert (name, row.cdi_vendors[0]) == (loaded.NAME, loaded.CDI_VENDOR)
    for member in OPTIONAL:
        folder = REPOSITORY / f"cdigen/vendors/{name}"
        module = folder / member.lower() / "__init__.py", folder / f"{member.lower()}.py"
        assert any(file.exists() for file in module) == (member in row.members)
        assert (registry._member(member, name) is not None) == (member in row.members)


@pytest.mark.parametrize("name", list(registry.VENDORS))
def test_the_members_of_a_vendor_of_the_tree_have_the_types_of_the_protocol(name: str) -> None:
    """The same checks apply to the vendors of other packages."""
    members = {member: registry._member(member, name) for member in registry.VENDORS[name].members}
    full = replace(registry.load(name), **members)
    found = VendorPackage().vendor(lambda: full)
    assert found.CDI_VENDOR == full.CDI_VENDOR
    assert {member for member in OPTIONAL if getattr(found, member)} == set(registry.VENDORS[name].members)


@pytest.mark.parametrize("name", list(registry.VENDORS))
def test_the_program_that_reads_the_kernel_log_forwards_the_lines_of_each_driver(name: str) -> None:
    for module in registry.load(name).MODULES:
        assert f"{module} 0000:01:00.0: ".encode().startswith(BEGINNINGS)


def test_a_vendor_can_have_kinds_with_further_cdi_vendor_names() -> None:
    assert registry.vendor_of("management.nvidia.com/gpu", registry.VENDORS) == "nvidia"
    assert "management.nvidia.com/" in registry.prefixes(("nvidia",))
    assert registry.prefixes(("amd",)) == ("amd.com/",)
    assert registry.vendor_of("nvidia.com.example/gpu", registry.VENDORS) == ""


def test_every_vendor_of_the_tree_reports_that_its_driver_is_not_loaded(tmp_path: Path) -> None:
    found, failures = discovery.discover(tuple(registry.VENDORS), places(tmp_path))
    assert found == {}
    assert {error.kind for error in failures.values()} == {"driver-not-loaded"}


def test_a_package_adds_a_vendor(packages: Path) -> None:
    assert "added" not in registry.NAMES
    registry._entry_point.cache_clear()
    vendor(packages, "added", minimal())
    assert "added" in registry.NAMES
    assert registry.load("added").CDI_VENDOR == registry.cdi_vendor("added") == "example.com"
    assert registry.vendor_of("example.com/npu", ("nvidia", "added")) == "added"
    assert list(registry.NAMES) == list(registry.VENDORS)


def test_a_vendor_that_no_package_has_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"known: nvidia, amd, intel"):
        registry.load("unheard-of")


@pytest.mark.parametrize(
    ("code", "name", "problem"),
    [
        ("raise ImportError('broken')", "added", "ImportError: broken"),
        ("class VENDOR: NAME = 'added'", "added", "lacks ['CDI_VENDOR', 'MODULES'"),
        (minimal(), "other", "has another NAME: 'added'"),
        (minimal(cdi_vendor="nvidia.com"), "added", "'nvidia.com'"),
        (minimal(cdi_vendor="management.nvidia.com"), "added", "'management.nvidia.com'"),
    ],
    ids=["import fails", "lacks names", "other name", "kinds of nvidia", "further kinds of nvidia"],
)
def test_an_invalid_vendor_object_is_a_failure_with_one_line(
    packages: Path, tmp_path: Path, code: str, name: str, problem: str
) -> None:
    vendor(packages, "added", code, entry=name)
    found, failures = discovery.discover((name, "amd"), places(tmp_path))
    assert found == {}
    assert problem in failures[name].message
    assert failures[name].message.isprintable()
    assert (failures[name].kind, failures["amd"].kind) == ("vendor-defect", "driver-not-loaded")


def test_a_defect_of_a_vendor_fails_only_this_vendor(packages: Path, tmp_path: Path) -> None:
    vendor(packages, "added", minimal(discover=DEFECTIVE))
    _, failures = discovery.discover(("added", "amd"), places(tmp_path))
    assert (failures["added"].kind, failures["amd"].kind) == ("vendor-defect", "driver-not-loaded")
    text = "the code for added (cdigen_added:VENDOR) failed: RuntimeError: two lines"
    assert failures["added"].message == text


def test_a_defect_in_edits_is_an_error_of_the_vendors_kind(packages: Path, tmp_path: Path) -> None:
    vendor(packages, "added", minimal(edits=DEFECTIVE))
    found, _ = discovery.discover(("added",), places(tmp_path))
    products, broken = generate.generate_specs(found, host=None)
    assert products == ()
    assert broken["example.com/gpu"].kind == "vendor-defect"


def test_a_defect_in_watches_does_not_affect_the_watches_of_other_vendors(
    packages: Path, tmp_path: Path
) -> None:
    vendor(packages, "added", minimal(watches=DEFECTIVE))
    wanted, failures = discovery.watches(("added", "amd"), places(tmp_path))
    assert (len(wanted), list(failures)) == (1, ["added"])


def test_a_defect_in_the_diagnostics_is_a_finding(packages: Path, tmp_path: Path) -> None:
    vendor(packages, "added", minimal(diagnostics=DEFECTIVE))
    (finding,) = discovery.diagnostics("added", places(tmp_path), None)
    assert (finding.severity, finding.rule) == ("error", "vendor-defect")


def test_absent_vendors_are_not_reported_if_another_vendor_is_present(packages: Path, tmp_path: Path) -> None:
    vendor(packages, "added", minimal())
    found, failures = discovery.discover(("added", "amd"), places(tmp_path))
    assert discovery.relevant_failures(found, failures, places(tmp_path).host) == {}


def test_only_the_absent_vendor_with_a_gpu_on_the_bus_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:03:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x1002\n")
    (folder / "class").write_text("0x120000\n")
    where = places(tmp_path)
    found, failures = discovery.discover(tuple(registry.VENDORS), where)
    assert list(discovery.relevant_failures(found, failures, where.host)) == ["amd"]


def test_a_host_without_any_gpu_has_one_error(tmp_path: Path) -> None:
    where = places(tmp_path)
    found, failures = discovery.discover(tuple(registry.VENDORS), where)
    (error,) = discovery.relevant_failures(found, failures, where.host).values()
    assert isinstance(error, HostError)
    assert (error.kind, error.exit_code) == ("driver-not-loaded", 3)
    assert "no GPU is on the PCI bus" in error.message


def test_the_command_accepts_a_vendor_that_a_package_adds(cdigen_process: Run, tmp_path: Path) -> None:
    package = tmp_path / "packages"
    package.mkdir()
    vendor(package, "added", minimal())
    done = cdigen_process(
        "inspect", "--vendor", "added", "--root", tmp_path, "--json", PYTHONPATH=str(package)
    )
    assert done.json["vendors"].keys() == {"added"}, done.err
    assert cdigen_process("inspect", "--vendor", "added", "--root", tmp_path).failed(
        2, "invalid choice: 'added'"
    )


def test_generate_prints_one_line_on_a_host_without_a_gpu(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("generate", "--root", tmp_path)
    assert done.failed(3, "no GPU is on the PCI bus", "the drivers of nvidia, amd, intel are not loaded")
    assert "modprobe" not in done.err
    assert len(done.err.splitlines()) == 1
