"""The tests of tests/e2e that can run with the present parts.

All of these tests need every part that is not optional (the fixture `cache`). A test needs an optional part
if it uses a fixture of provisioned.py whose function contains the part's name.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from support.paths import TESTS
from support.provisioning.parts import E2E, PARTS, Part

SHOWN = 3


def lines(missing: tuple[Part, ...]) -> Iterator[str]:
    """Yield a line for each group of test modules: whether the group can run without the parts MISSING."""
    shared = [part.name for part in missing if not part.is_optional]
    groups: dict[tuple[str, ...], list[str]] = {}
    for module in sorted(E2E.glob("test_*.py")):
        groups.setdefault(needs(module), []).append(module.stem)
    for optional, modules in sorted(groups.items()):
        lacking = [*shared, *(part.name for part in missing if part.name in optional)]
        more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
        verdict = f"cannot run without {', '.join(lacking[:SHOWN])}{more}" if lacking else "can run"
        condition = f", with {' and '.join(optional)}" if optional else ""
        subjects = sorted({name.split("_")[1] for name in modules})
        yield f"{verdict}: test modules {len(modules)}{condition} ({', '.join(subjects)})"


def needs(module: Path) -> tuple[str, ...]:
    """Return the names of the optional parts that a test module uses, sorted."""
    arguments = {node.arg for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.arg)}
    return tuple(sorted(part for fixture, part in fixtures().items() if fixture in arguments))


def fixtures() -> dict[str, str]:
    """Return the fixtures of provisioned.py that name an optional part: fixture -> part."""
    optional = {part.name for part in PARTS if part.is_optional}
    found = {}
    for function in ast.parse((TESTS / "support/provisioned.py").read_text()).body:
        if isinstance(function, ast.FunctionDef):
            texts = {node.value for node in ast.walk(function) if isinstance(node, ast.Constant)}
            for name in optional & texts:
                found[function.name] = name
    return found
