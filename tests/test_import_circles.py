"""No module of the package imports itself, directly or indirectly, not even by an import in a function."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from support.paths import REPOSITORY
from support.source_names import syntax_tree


def name_of(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in (REPOSITORY / "cdigen").rglob("*.py")}


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the imports of NODE at run time, without those that only type checkers read."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        submodules = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name if name in MODULES else node.module for name in submodules)
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


def test_no_module_is_in_an_import_cycle() -> None:
    graph = {
        name: {target for target in imports(syntax_tree(path.read_text())) if target in MODULES}
        for name, path in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError with the cycle
