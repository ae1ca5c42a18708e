"""Reads the sources of the tests, and finds the functions that need root.

A function requires root if it calls one of CALLS, starts one of PROGRAMS, contains a script with such a call,
or refers to a function that requires root. Calls under a condition on `os.geteuid` and trees written with
`nodes=False` are exempt. A test declares root by the marker `needs_root` or by a fixture of ROOT_FIXTURES.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from support.abilities import ROOT_FIXTURES
from support.paths import TESTS

PLUGINS = ("command/fixtures.py", "log_pipe.py", "provisioned.py")
CALLS = r"mknod|[fl]?chown|chroot|set(?:|e|re|res)[ug]id|setgroups|initgroups|setns|unshare|fanotify_init"
PROGRAMS = {"chroot", "mknod", "mount", "nsenter", "umount", "unshare"}
OTHER_USER = ("--reuid", "--regid", "--bounding-set")  # setpriv(1); its other options need no root
SCRIPT = re.compile(rf"\bos\.(?:{CALLS})\(")

Unit = tuple[Path, str]


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield NODE and its descendants, except code that only root runs and trees without device nodes."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.If(test=test) if "geteuid" in ast.unparse(test):
                continue
            case ast.Call(keywords=keywords) if any(
                each.arg == "nodes" and isinstance(each.value, ast.Constant) and not each.value.value
                for each in keywords
            ):
                waiting += node.args
            case ast.Assign(value=ast.Tuple(elts=values) as table):  # a table of functions calls no function
                yield table
                waiting += [each for each in values if not isinstance(each, ast.Name | ast.Attribute)]
            case _:
                waiting += ast.iter_child_nodes(node)


def root_call(node: ast.AST) -> str:
    """Return the call of NODE that only root may make, or an empty text."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os" | "libc"), attr=name)) if re.fullmatch(
            CALLS, name
        ):
            return "" if "os.getuid()" in ast.unparse(node) else name
        case ast.Call(func=ast.Name(id="tool"), args=[ast.Constant(value=str(first)), *_]):
            return first if first in PROGRAMS else ""
        case ast.keyword(arg="user", value=ast.Constant(value=int())):
            return "user="
        case (
            ast.List(elts=[ast.Constant(value=str(first)), *rest])
            | ast.Tuple(elts=[ast.Constant(value=str(first)), *rest])
        ):
            words = [each.value for each in rest if isinstance(each, ast.Constant)]
            if first == "setpriv" and any(str(word).startswith(OTHER_USER) for word in words):
                return first
            if first == "unshare" and {"--user", "--map-root-user"} & set(words):
                return ""
            return first if first in PROGRAMS and rest else ""
        case ast.Constant(value=str(text)) if found := SCRIPT.search(text):
            return found[0]
    return ""


class Module:
    """The functions, methods and constants of a file, and the targets of its imported names."""

    def __init__(self, source: str, files: dict[str, Path]) -> None:
        self.units: dict[str, ast.AST] = {}
        self.nodes: dict[str, list[ast.AST]] = {}
        self.imported: dict[str, Unit] = {}
        self.marks = ""
        for node in ast.parse(source).body:
            self._add(node, files)

    def _add(self, node: ast.AST, files: dict[str, Path], prefix: str = "") -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")]):
                self.marks = ast.unparse(node)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.Assign(targets=[ast.Name(id=name)])
            ):
                self.units[prefix + name] = node
                self.nodes[prefix + name] = list(walk(node))
            case ast.ClassDef(name=name):
                for each in node.body:
                    self._add(each, files, f"{name}.")
            case ast.If():  # TYPE_CHECKING
                for each in node.body:
                    self._add(each, files)
            case ast.ImportFrom() | ast.Import():
                module = getattr(node, "module", None)
                for alias in node.names:
                    self._import(
                        files, module or alias.name, module and alias.name, alias.asname or alias.name
                    )

    def _import(self, files: dict[str, Path], module: str, name: str | None, local: str) -> None:
        if file := files.get(module):
            self.imported[local] = (file, name or "")
        elif file := files.get(f"{module}.{name}"):
            self.imported[local] = (file, "")


class Sources:
    """All files of the tests, and the references between their functions."""

    def __init__(self, files: dict[Path, str]) -> None:
        settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())
        roots = [TESTS.parent / root for root in settings["tool"]["pytest"]["ini_options"]["pythonpath"]]
        names = {
            ".".join(path.relative_to(root).with_suffix("").parts): path
            for root in roots
            for path in files
            if path.is_relative_to(root)
        }
        self.modules = {path: Module(source, names) for path, source in files.items()}
        self.methods: dict[str, list[Unit]] = {}
        for path, module in self.modules.items():
            for name in module.units:
                if "." in name:
                    self.methods.setdefault(name.partition(".")[2], []).append((path, name))
        self.users: dict[Unit, set[Unit]] = {}
        for path, module in self.modules.items():
            reachable = {path, *(file for file, _ in module.imported.values())}
            for name, nodes in module.nodes.items():
                for used in self._references(path, nodes, reachable):
                    self.users.setdefault(used, set()).add((path, name))

    def _fixture(self, path: Path, name: str) -> Unit | None:
        """Return the function that NAME refers to as a fixture of the file PATH."""
        if name in self.modules[path].units:
            return path, name
        folders = [each for each in path.parents if each.is_relative_to(TESTS)]
        for file in (
            *(each / "conftest.py" for each in folders),
            *(TESTS / "support" / each for each in PLUGINS),
        ):
            if file in self.modules and name in self.modules[file].units:
                return file, name
        return None

    def _references(self, path: Path, nodes: list[ast.AST], reachable: set[Path]) -> Iterator[Unit]:
        """Yield the functions and constants of the tests that NODES of the file PATH refer to."""
        module = self.modules[path]
        for each in nodes:
            match each:
                case ast.Name(id=name) if name in module.units:
                    yield path, name
                case ast.Name(id=name) if name in module.imported:
                    yield module.imported[name]
                case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in module.imported:
                    yield module.imported[name][0], attribute
                case ast.Attribute(attr=attribute):
                    yield from (unit for unit in self.methods.get(attribute, ()) if unit[0] in reachable)
                case ast.arg(arg=name) if name != "self" and (fixture := self._fixture(path, name)):
                    yield fixture

    def declares_root(self, unit: Unit) -> bool:
        """Return whether the test or fixture UNIT has the marker `needs_root`, directly or by a fixture."""
        path, name = unit
        node = self.modules[path].units[name]
        if name in ROOT_FIXTURES:
            return True
        if not isinstance(node, ast.FunctionDef):
            return False
        marks = self.modules[path].marks
        for each in node.decorator_list:
            marks += ast.unparse(self.modules[path].units.get(ast.unparse(each), each))
        if "needs_root" in marks:
            return True
        wanted = {each.arg for each in node.args.args}
        for found in re.findall(r"usefixtures\(([^)]*)\)", marks):
            wanted |= set(re.findall(r"\w+", found))
        fixtures = (self._fixture(path, each) for each in wanted)
        return any(each is not None and each != unit and self.declares_root(each) for each in fixtures)

    def undeclared(self) -> list[str]:
        """Return the tests that require root and do not declare it, each with the call that requires root."""
        why = {
            (path, name): reason
            for path, module in self.modules.items()
            for name, nodes in module.nodes.items()
            if (reason := next(filter(None, map(root_call, nodes)), ""))
        }
        found, waiting = [], [unit for unit in why if not self.declares_root(unit)]
        while waiting:
            unit = waiting.pop()
            path, name = unit
            if name.startswith("test_") and path.name.startswith("test_"):
                found.append(f"{path.relative_to(TESTS)}::{name}: {why[unit]}")
            for user in self.users.get(unit, ()):
                if user not in why and not self.declares_root(user):
                    why[user] = f"{name}: {why[unit]}"
                    waiting.append(user)
        return sorted(found)
