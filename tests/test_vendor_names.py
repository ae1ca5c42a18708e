"""No package outside cdigen/vendors tests for a vendor: the vendors' members have all that differs."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

import pytest
from support.paths import REPOSITORY
from support.source_names import syntax_tree

from cdigen.vendors.registry import VENDORS

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = REPOSITORY / "cdigen"
# The names of vendors, and the vendor parts of kinds, also with the slash.
PARTS = {part for row in VENDORS.values() for part in row.cdi_vendors}
WORDS = {*VENDORS, *PARTS, *(f"{part}/" for part in PARTS)}
# A file or folder outside cdigen/vendors, and the reason why it may test for one of WORDS.
EXEMPT = {
    "doctor/migration/": "recognizes the tools of other projects, which have such names",
    "device_users/engines.py": "nvidia is Docker's name of the driver for --gpus",
    "kubelet/resources/nvidia_file.py": "reads the configuration of NVIDIA's device plugin",
    "nri/decision/request/annotations.py": "nvidia is a word of 'nri: {annotations}', the name of a plugin",
    "nri/decision/request/device_request.py": "NVIDIA_VISIBLE_DEVICES is the plugin's own contract",
}
COMPARING_METHODS = {"startswith", "endswith", "removeprefix", "removesuffix"}


def vendor_lines(source: str) -> list[int]:
    """Return the lines of SOURCE that compare with one of WORDS, or have it as the key of a mapping."""
    tree = syntax_tree(source)
    names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target, value in assigned(node)
        if isinstance(target, ast.Name) and is_word(value, set())
    }
    found = (each for node in ast.walk(tree) for each in compared(node) if each is not None)
    return [each.lineno for each in found if is_word(each, names)]


def assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def compared(node: ast.AST) -> Iterator[ast.expr | None]:
    """Yield the operands of a comparison, the keys of a mapping, and the arguments of comparing methods."""
    if isinstance(node, ast.Compare):
        for operand in (node.left, *node.comparators):
            yield operand
            if isinstance(operand, ast.Tuple | ast.List | ast.Set):
                yield from operand.elts
    elif isinstance(node, ast.Dict):
        yield from node.keys
    elif isinstance(node, ast.MatchValue):
        yield node.value
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in COMPARING_METHODS
    ):
        yield from node.args


def is_word(node: ast.AST | None, names: set[str]) -> bool:
    is_name = isinstance(node, ast.Name) and node.id in names
    return is_name or (isinstance(node, ast.Constant) and node.value in WORDS)


@cache
def found() -> dict[str, list[int]]:
    """Return the lines of each file outside cdigen/vendors that test for a vendor."""
    files = {file.relative_to(PACKAGE).as_posix(): file for file in PACKAGE.rglob("*.py")}
    lines = {
        name: vendor_lines(file.read_text())
        for name, file in files.items()
        if not name.startswith("vendors/")
    }
    return {name: numbers for name, numbers in lines.items() if numbers}


def test_no_package_outside_vendors_tests_for_a_vendor() -> None:
    assert {name: lines for name, lines in found().items() if not name.startswith(tuple(EXEMPT))} == {}


def test_every_exemption_is_needed() -> None:
    used = {exempt for exempt in EXEMPT for name in found() if name.startswith(exempt)}
    assert used == set(EXEMPT)


@pytest.mark.parametrize(
    "line",
    [
        'vendor == "nvidia"',
        '"amd" in inventories',
        'vendor not in ("intel", "other")',
        'MODULES = {"nvidia": "module"}',
        'kind.startswith("nvidia.com/")',
        'match vendor:\n    case "amd": pass',
        'NVIDIA = "nvidia"\nvendor != NVIDIA',
        'OTHER, _AMD = "other", "amd"\nvendor == _AMD',
    ],
)
def test_a_test_for_a_vendor_is_found(line: str) -> None:
    assert vendor_lines(line)


@pytest.mark.parametrize("line", ['text = "nvidia"', 'kind == "nvidia.com/gpu"', 'names = ("nvidia", "amd")'])
def test_other_uses_of_a_name_are_permitted(line: str) -> None:
    assert vendor_lines(line) == []
