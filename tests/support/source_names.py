"""Names in the sources: rules, kinds of errors, log events, options, variables."""

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cdigen.cli.main import COMMANDS, command_parser
from cdigen.model import errors
from support.paths import REPOSITORY

KEBAB = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")


def syntax_tree(source: str) -> ast.Module:
    """Return the syntax tree of SOURCE.

    The collector is off meanwhile: a finalizer that formats a traceback parses, too, and CPython 3.11 then
    fails with "AST constructor recursion depth mismatch".
    """
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each module of the package."""
    return {
        path: syntax_tree(path.read_text(encoding="utf-8"))
        for path in sorted((REPOSITORY / "cdigen").rglob("*.py"))
    }


def calls() -> Iterator[tuple[ast.Call, str, dict[str, str]]]:
    """Yield every call in the package, the called name, and the text constants of the call's module."""
    for tree in trees().values():
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                yield node, name, constants


def texts(node: ast.expr | None, constants: dict[str, str]) -> tuple[str, ...]:
    """Return the possible texts of NODE: a literal, a constant of the module, or both of a conditional."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if isinstance(node, ast.Name) and node.id in constants:
        return (constants[node.id],)
    if isinstance(node, ast.IfExp):
        return (*texts(node.body, constants), *texts(node.orelse, constants))
    return ()


def passed_as(parameter: str) -> set[str]:
    """Return the texts that the package passes as PARAMETER, by its name or by its position."""
    places: dict[str, set[int]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
                if parameter in names:
                    is_method = names[0] in {"self", "cls"}
                    places.setdefault(node.name, set()).add(names.index(parameter) - is_method)
    found: set[str] = set()
    for call, name, constants in calls():
        for keyword in call.keywords:
            if keyword.arg == parameter:
                found.update(texts(keyword.value, constants))
        for place in places.get(name, ()):
            if place < len(call.args):
                found.update(texts(call.args[place], constants))
    return found


def error_kinds() -> dict[str, set[int]]:
    """Return the kinds of errors that commands end with, each with its exit codes."""
    classes = {name: one.exit_code for name, one in vars(errors).items() if name.endswith("Error")}
    found: dict[str, set[int]] = {}
    for one in vars(errors).values():
        if hasattr(one, "default_kind"):
            found.setdefault(one.default_kind, set()).add(one.exit_code)
    for call, name, constants in calls():
        if name in classes:
            for keyword in call.keywords:
                for kind in texts(keyword.value, constants) if keyword.arg == "kind" else ():
                    found.setdefault(kind, set()).add(classes[name])
    return found


def events(*places: str) -> set[str]:
    """Return the log events of PLACES: modules of the package, and folders without their subfolders."""
    found: set[str] = set()
    for path, tree in trees().items():
        module = path.relative_to(REPOSITORY / "cdigen")
        if not {module.as_posix(), module.parent.as_posix()} & {*places}:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and _is_logger(node.func):
                found.update(texts(node.args[0], {}))
    return found


def _is_logger(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id == "log"
    is_level = isinstance(called, ast.Attribute) and called.attr in {"debug", "info", "warning", "error"}
    return is_level and "log" in ast.unparse(called)


def variables() -> set[str]:
    """Return the environment variables that the package reads, by their names or by constants."""
    found: set[str] = set()
    for call, name, constants in calls():
        if name == "get" and call.args and "environ" in ast.unparse(call.func):
            found.update(texts(call.args[0], constants))
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                names = (text for element in node.value.elts for text in texts(element, {}))
                found.update(name for name in names if name.startswith("NRI_PLUGIN_"))
    # A variable of CRI-O, not of cdigen.
    return found - {"CONTAINER_CDI_SPEC_DIRS"}


def options() -> dict[str, set[str]]:
    """Return the options of each command."""
    found = {}
    for command in COMMANDS:
        actions = command_parser(command)._actions
        found[command] = {option for action in actions for option in action.option_strings}
    return found


def messages(module: ast.Module) -> Iterator[str]:
    """Yield the strings of MODULE that are no docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body[0] for node in ast.walk(module) if isinstance(node, documented) and node.body]
    docstrings = {id(first.value) for first in bodies if isinstance(first, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
