"""The table of each vendor with the variables by which containers request the vendor's devices."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.hosts.added_vendors import minimal, vendor

from cdigen.model.errors import HostError
from cdigen.model.names import is_kind
from cdigen.vendors import other_vendors, registry

if TYPE_CHECKING:
    from pathlib import Path

ROW = (
    "VisibleDevices(variables=({variables},), kinds=('{kind}',), allocated_kinds=r'{allocated}',"
    " nodes='/dev/added[0-9]+', names={names})"
)
PLAIN = {"variables": "'ADDED_VISIBLE_DEVICES'", "kind": "example.com/npu", "allocated": r"example\.com/.+"}


def code(*, names: str = "lambda word: (word, 'npu' + word)", **row: str) -> str:
    """Return the code of a vendor with ROW in its table."""
    made = ROW.format(**{**PLAIN, "names": names, **row})
    return with_table(f"({made},)")


def with_table(table: str) -> str:
    """Return the code of a vendor whose table is TABLE."""
    plain = minimal().replace("import Watches", "import VisibleDevices, Watches")
    return plain.replace("    PCI_VENDORS", f"    VISIBLE_DEVICES = {table}\n    PCI_VENDORS")


def test_every_table_has_valid_kinds_and_patterns() -> None:
    rows = registry.visible_devices()
    assert set(map(id, other_vendors.VISIBLE_DEVICES)) <= set(map(id, rows))
    variables = [variable for row in rows for variable in row.variables]
    assert len(set(variables)) == len(variables)
    for row in rows:
        assert row.kinds
        assert all(is_kind(kind) for kind in row.kinds)
        assert re.fullmatch(row.allocated_kinds, row.kinds[0])
        for pattern in (row.nodes, row.words):
            re.compile(pattern)
        # Other software may use the same prefix. Therefore, a row with a prefix has a pattern for the values.
        assert bool(row.words) == any(variable.endswith("*") for variable in row.variables)


def test_a_read_of_the_tables_imports_no_other_code_of_the_vendors() -> None:
    code = (
        "import sys; from cdigen.vendors.registry import visible_devices; visible_devices()\n"
        "print(*sorted(name for name in sys.modules if name.startswith('cdigen.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    own = {name for name in loaded if name.startswith("cdigen.vendors")}
    assert own == {
        "cdigen.vendors",
        "cdigen.vendors.amd",
        "cdigen.vendors.amd.visible_devices",
        "cdigen.vendors.base",
        "cdigen.vendors.context",
        "cdigen.vendors.intel",
        "cdigen.vendors.intel.visible_devices",
        "cdigen.vendors.other_vendors",
        "cdigen.vendors.registry",
    }
    assert not any(name.startswith(("cdigen.host", "cdigen.pipeline", "cdigen.store")) for name in loaded)


# Vendors of other packages.


def test_a_package_can_add_variables(packages: Path) -> None:
    vendor(packages, "added", code())
    assert len(registry.visible_devices(("nvidia", "added"))) == len(registry.visible_devices()) + 1
    row = registry.visible_devices(("added",))[-1]
    assert (row.variables, row.kinds) == (("ADDED_VISIBLE_DEVICES",), ("example.com/npu",))
    assert row.names("3") == ("3", "npu3")


def test_a_package_without_a_table_has_no_variables(packages: Path) -> None:
    vendor(packages, "added", minimal())
    assert registry.visible_devices(("added",)) == registry.visible_devices()


@pytest.mark.parametrize("names", ["lambda word: 1 / 0", "lambda word: word", "lambda word: ()", "exit"])
def test_a_word_is_used_as_the_device_name_if_the_function_names_fails(packages: Path, names: str) -> None:
    vendor(packages, "added", code(names=names))
    assert registry.visible_devices(("added",))[-1].names("3") == ("3",)


@pytest.mark.parametrize(
    ("defective", "problem"),
    [
        (with_table("3"), "VISIBLE_DEVICES is not a list"),
        (with_table("('A',)"), "VISIBLE_DEVICES[0] is not of the type VisibleDevices"),
        (code(variables="7"), "VISIBLE_DEVICES[0].variables[0] is not text"),
        (code(kind="nvidia.com/gpu"), "kinds not of example.com: nvidia.com/gpu"),
        (code(variables="'NVIDIA_VISIBLE_DEVICES'"), "NVIDIA_VISIBLE_DEVICES matches NVIDIA_*"),
        (code(variables="'CUDA_VERSION'"), "CUDA_VERSION matches CUDA_*"),
        (code(variables="'AMD_VISIBLE_DEVICES'"), "AMD_VISIBLE_DEVICES matches AMD_VISIBLE_DEVICES"),
        (code(variables="'AMD_VISIBLE*'"), "AMD_VISIBLE* matches AMD_VISIBLE_DEVICES"),
        (code(variables="'DOCKER_RESOURCE_X'"), "DOCKER_RESOURCE_X matches DOCKER_RESOURCE_*"),
        (code(variables="'*'"), "invalid name of a variable: '*'"),
        (code(variables="'path'"), "invalid name of a variable: 'path'"),
        (code(allocated="("), "cannot be loaded"),
    ],
)
def test_an_invalid_table_makes_only_this_vendor_unusable(
    packages: Path, defective: str, problem: str
) -> None:
    vendor(packages, "added", defective)
    assert registry.visible_devices(("added",)) == registry.visible_devices()
    with pytest.raises(HostError) as caught:
        registry.load("added").discover(None)  # type: ignore[arg-type]
    assert problem in caught.value.message
