"""Names in the source: of rules, kinds of errors, events of the log, options, variables."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from cdigen.cli.main import COMMANDS
from cdigen.cli.parser import Parser
from cdigen.model import errors
from support.paths import REPOSITORY

KEBAB = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each module of the package."""
    return {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((REPOSITORY / "cdigen").rglob("*.py"))
    }


def calls() -> Iterator[tuple[ast.Call, str, dict[str, str]]]:
    """Yield every call of the package, the name that is called, and its module's own text constants."""
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
    """Return the texts that NODE may be: itself, a constant of the module, either side of a choice."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if isinstance(node, ast.Name) and node.id in constants:
        return (constants[node.id],)
    if isinstance(node, ast.IfExp):
        return (*texts(node.body, constants), *texts(node.orelse, constants))
    return ()


def given_as(parameter: str) -> set[str]:
    """Return the texts that the package gives as PARAMETER, by its name or by its place."""
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


def events(*folders: str) -> set[str]:
    """Return the events that the modules of FOLDERS log."""
    found: set[str] = set()
    for path, tree in trees().items():
        if path.parent.name not in folders and path.stem not in folders:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and _is_logger(node.func):
                found.update(texts(node.args[0], {}))
    return found


def _is_logger(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id == "say"
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
    # What a web server gives to a page, and CRI-O's own, are no variables of this process.
    return found - {"PATH_INFO", "REQUEST_METHOD", "CONTAINER_CDI_SPEC_DIRS"}


def options() -> dict[str, set[str]]:
    """Return the options of each command."""
    found = {}
    for command, (module, summary) in COMMANDS.items():
        parser = Parser(prog=command, summary=summary, examples="")
        import_module(module).add_options(parser)
        found[command] = {option for action in parser._actions for option in action.option_strings}
    return found
