"""The limits of size: lines of a file and of a function, attributes of a class, files of a folder.

Two classes of one name look like one class to a reader, so the names of public classes differ, too.
"""

import ast
from collections import Counter
from pathlib import Path

from support.paths import REPOSITORY
from support.source_names import syntax_tree

FILE_LINES, FUNCTION_LINES = 400, 60
CLASS_ATTRIBUTES = 15
FOLDER_FILES, FOLDER_FILES_IF_ONE_PER_COMMAND_OR_CHECK = 15, 20

CODE = {path.relative_to(REPOSITORY).as_posix(): path for path in (REPOSITORY / "cdigen").rglob("*.py")}
TESTS = {path.relative_to(REPOSITORY).as_posix(): path for path in (REPOSITORY / "tests").rglob("*.py")}


def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return the functions and classes in the file PATH."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return tuple(node for node in ast.walk(syntax_tree(path.read_text())) if isinstance(node, kinds))


def assigned_attributes(made: ast.ClassDef) -> set[str]:
    """Return the attributes that the methods of MADE assign on ``self``. A frozen value has none of them."""
    return {
        node.attr
        for node in ast.walk(made)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def most_files(folder: str) -> int:
    """Return the number of files that FOLDER may have."""
    has_one_per_command_or_check = folder.startswith(("cdigen/cli", "cdigen/doctor"))
    return FOLDER_FILES_IF_ONE_PER_COMMAND_OR_CHECK if has_one_per_command_or_check else FOLDER_FILES


def test_files_are_short() -> None:
    assert [
        name for name, path in (CODE | TESTS).items() if len(path.read_text().splitlines()) > FILE_LINES
    ] == []


def test_functions_are_short() -> None:
    long = [
        f"{name}: {node.name}"
        for name, path in (CODE | TESTS).items()
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
    ]
    assert long == []


def test_classes_assign_few_attributes() -> None:
    large = {
        node.name
        for path in CODE.values()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and len(assigned_attributes(node)) > CLASS_ATTRIBUTES
    }
    assert large == set()


def test_public_classes_have_different_names() -> None:
    names = Counter(
        node.name
        for path in CODE.values()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == set()


def test_folders_have_few_files() -> None:
    folders = [name.rpartition("/")[0] for name in CODE]
    wide = {folder for folder in folders if folders.count(folder) > most_files(folder)}
    assert wide == set()
