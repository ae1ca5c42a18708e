"""Each hint is one step, or a short sentence: no long lists of steps and alternatives in a line."""

from __future__ import annotations

import ast

import pytest
from support import source_names
from support.paths import REPOSITORY

# Characters without the values of a hint.
LIMIT = 180
HINTS = ("hint", "remedy", "by_hand", "undo_by_hand")


def literal(node: ast.expr) -> str:
    """Return the literal text of the expression NODE; "" for other expressions."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return literal(node.left) + literal(node.right)
    if isinstance(node, ast.IfExp):
        return max(literal(node.body), literal(node.orelse), key=len)
    return ""


def hints(tree: ast.Module) -> list[tuple[int, str]]:
    """Return line and literal text of each hint in TREE: arguments, and constants with such a name."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += [(node.lineno, literal(each.value)) for each in node.keywords if each.arg in HINTS]
        elif isinstance(node, ast.Assign):
            names = [each.id.lower() for each in node.targets if isinstance(each, ast.Name)]
            if any(name.endswith(HINTS) for name in names):
                found.append((node.lineno, literal(node.value)))
    return found


def is_too_much(text: str) -> bool:
    """Return whether TEXT has more than LIMIT characters or more than two parts."""
    return len(text) > LIMIT or text.count("; ") > 1 or text.count(", or ") > 2


def test_each_hint_is_read_once() -> None:
    found = [
        (path.relative_to(REPOSITORY).as_posix(), line, text)
        for path, tree in source_names.trees().items()
        for line, text in hints(tree)
    ]
    assert len(found) > 300
    assert [each for each in found if is_too_much(each[2])] == []


@pytest.mark.parametrize(
    "source",
    [
        'f(hint=f"do {x}; do b; do c")',
        '_MIG_HINT = "use a, or b, or c, or d"',
        'f(hint="a" + ("' + "b" * 200 + '" if x else ""))',
    ],
)
def test_long_hints_are_found(source: str) -> None:
    ((_, text),) = hints(ast.parse(source))
    assert is_too_much(text)
