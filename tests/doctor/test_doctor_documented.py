"""docs/reference/checks.md documents every check, and a run of the doctor takes less than 5 s."""

import ast
import re
import time
from pathlib import Path

from support.doctor.broken_host import BINARIES, BrokenHost
from support.paths import REPOSITORY
from support.waiting import limited

NAME = re.compile(r"[a-z]+(?:-[a-z]+)+")
# The functions that make results; the first argument is the name of the check.
RESULTS = {"passed", "error", "warning", "skipped", "needs_system", "finding", "failed"}


def named_in(path: Path) -> set[str]:
    """Return the names of checks in the code at PATH: literals and constants."""
    tree = ast.parse(path.read_text())
    assigned = [(node.targets[0], node.value) for node in tree.body if isinstance(node, ast.Assign)]
    constants: dict[str, str] = {}
    for target, values in assigned:
        if isinstance(target, ast.Tuple) and isinstance(values, ast.Tuple):
            for name, value in zip(target.elts, values.elts, strict=True):
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                    constants[name.id] = str(value.value)
    found = set()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        function, first = call.func, call.args[0]
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if called == "failed":  # the severity comes first
            first = call.args[1]
        if called in RESULTS and isinstance(first, ast.Constant):
            found.add(str(first.value))
        if called in RESULTS and isinstance(first, ast.Name) and first.id in constants:
            found.add(constants[first.id])
    return found


def documented() -> set[str]:
    text = (REPOSITORY / "docs/reference/checks.md").read_text()
    rows = re.findall(r"^\| (`[^|]*`) \|", text, flags=re.MULTILINE)
    return {name for names in rows for name in re.findall(r"`([A-Za-z-]+)`", names)}


def test_every_check_in_the_code_is_documented() -> None:
    named = set().union(*(named_in(path) for path in (REPOSITORY / "cdigen/doctor").rglob("*.py")))
    assert len(named) > 30
    assert named - documented() == set()


def test_every_check_of_a_host_with_all_runtimes_is_documented(tmp_path_host: BrokenHost) -> None:
    names = {row["check"] for row in tmp_path_host.results("--user", "root")}
    general = {re.sub(rf"^({'|'.join(BINARIES)})-", "RUNTIME-", name) for name in names}
    assert {name for name in general if not name.startswith("limit-")} - documented() == set()


@limited(5.0)
def test_a_host_without_failures_is_checked_within_five_seconds(
    tmp_path_host: BrokenHost, within_s: float
) -> None:
    took = []
    for _ in range(3):
        began = time.monotonic()
        tmp_path_host.doctor(wrong=False)
        took.append(time.monotonic() - began)
    assert min(took) < within_s
