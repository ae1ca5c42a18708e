"""No test without the marker `wall_clock` depends on the speed of the machine: a check of the sources."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from support.paths import TESTS
from support.source_names import syntax_tree
from support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Code that is not checked: real runtimes, real GPUs, measurements, and the module that calls time.sleep.
ELSEWHERE = (
    "bench/",
    "e2e/",
    "real_gpu/",
    "support/browser/",
    "support/cluster/",
    "support/containers/",
    "support/daemon/watching.py",
    "support/nri/containerd_plugins.py",
    "support/waiting.py",
    "watch/",
)
CLOCKS = frozenset({"time.monotonic", "time.perf_counter", "time.process_time", "process_time", "time.time"})
TOOK = frozenset({"took", "took_s"})
# Arguments that are deadlines, and methods whose first argument is a deadline.
DEADLINES = frozenset({"timeout", "within_s"})
WAITS = frozenset({"communicate", "join", "settimeout", "wait"})


class Checked(ast.NodeVisitor):
    """Gathers in `found` the lines of a module that depend on the clock, each with the reason."""

    def __init__(self, text: str) -> None:
        self.found: list[tuple[int, str]] = []
        self._numbers: dict[str, float] = {}
        self._elapsed = set(TOOK)
        module = syntax_tree(text)
        assigned = [node for node in module.body if isinstance(node, ast.Assign)]
        for node in assigned:
            name = ast.unparse(node.targets[0])
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float):
                self._numbers[name] = node.value.value
        marks = [node for node in assigned if ast.unparse(node.targets[0]) == "pytestmark"]
        if not any("wall_clock" in ast.unparse(node.value) for node in marks):
            self.visit(module)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not any("wall_clock" in ast.unparse(each) for each in node.decorator_list):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._is_elapsed(node.value):
            self._elapsed |= {ast.unparse(target) for target in node.targets}
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        if name == "time.sleep":
            self._find(node, "time.sleep: use `until` or `pause` of tests/support/waiting.py")
        # A value of cdigen, such as a hook of a spec, may have a timeout too.
        is_value = name[:1].isupper() and not name.endswith("Connection")
        given = [each.value for each in node.keywords if each.arg in DEADLINES and not is_value]
        if isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
            given += node.args[:1]
        if any(self._is_short(each, above=1.0) for each in given):
            self._find(node, f"has a deadline of less than {PATIENCE_S:g} s")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for before, operator, after in zip(sides, node.ops, sides[1:], strict=False):
            less, more = (after, before) if isinstance(operator, ast.Gt | ast.GtE) else (before, after)
            if isinstance(operator, ast.Eq) or not self._is_elapsed(less):
                continue
            if self._is_short(more):
                self._find(node, "limits a duration: use `limited` or the marker `wall_clock`")
        self.generic_visit(node)

    def _find(self, node: ast.expr, reason: str) -> None:
        self.found.append((node.lineno, reason))

    def _is_elapsed(self, node: ast.expr) -> bool:
        """Return whether NODE is a name of a duration, or the difference of two readings of a clock."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return any(
                isinstance(each, ast.Call) and ast.unparse(each.func) in CLOCKS for each in ast.walk(node)
            )
        return isinstance(node, ast.Name) and node.id in self._elapsed

    def _is_short(self, node: ast.expr, *, above: float = 0.0) -> bool:
        number = self._numbers.get(ast.unparse(node))
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            number = node.value
        return number is not None and above < number < PATIENCE_S


def modules() -> Iterator[Path]:
    for path in sorted(TESTS.rglob("*.py")):
        if not path.relative_to(TESTS).as_posix().startswith(ELSEWHERE):
            yield path


def test_no_test_without_the_marker_depends_on_a_duration() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {reason}"
        for path in modules()
        for line, reason in Checked(path.read_text()).found
    ]
    assert found == []


BEGAN = "began = time.monotonic()\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"{BEGAN}assert time.monotonic() - began < 5", [2]),
        (f"LIMIT_S = 2.0\n{BEGAN}assert LIMIT_S > time.monotonic() - began", [3]),
        (f"{BEGAN}gone = time.monotonic() - began\nassert 1 <= gone < 5", [3]),
        ("code, took = running.stop()\nassert (code, took < 6) == (0, True)", [2]),
        ("began = time.process_time()\nassert time.process_time() - began < 5", [2]),
        (f"{BEGAN}assert time.monotonic() - began < {PATIENCE_S}", []),
        (f"{BEGAN}assert time.monotonic() - began >= 2", []),
        (f"{BEGAN}assert time.monotonic() - began < within_s", []),
        ("time.sleep(1)", [1]),
        ("@pytest.mark.wall_clock\ndef test_it():\n    time.sleep(1)", []),
        ("pytestmark = pytest.mark.wall_clock\ntime.sleep(1)", []),
        ("process.wait(10)\nprocess.wait(0.1)\nprocess.wait(PATIENCE_S)", [1]),
        ("until(lambda: True, within_s=5)\nrun(timeout=30)\nrun(timeout=60)", [1, 2]),
    ],
)
def test_code_that_depends_on_the_clock_is_found(text: str, lines: list[int]) -> None:
    assert [line for line, _ in Checked(text).found] == lines
