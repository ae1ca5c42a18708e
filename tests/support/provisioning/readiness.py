"""Which tests of tests/e2e can run with the parts that are there.

All of them need every part that is not apart (the fixture `cache`). A part that is apart is needed by the
tests that have a fixture whose function in provisioned.py names the part.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from support.paths import TESTS
from support.provisioning.parts import E2E, PARTS, Part

SHOWN = 3


def lines(missing: tuple[Part, ...]) -> Iterator[str]:
    """Yield for each group of test modules whether it can run without the parts MISSING."""
    shared = [part.name for part in missing if not part.is_apart]
    groups: dict[tuple[str, ...], list[str]] = {}
    for module in sorted(E2E.glob("test_*.py")):
        groups.setdefault(needs(module), []).append(module.stem)
    for apart, modules in sorted(groups.items()):
        lacking = [*shared, *(part.name for part in missing if part.name in apart)]
        more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
        verdict = f"cannot run without {', '.join(lacking[:SHOWN])}{more}" if lacking else "can run"
        wanted = f", with {' and '.join(apart)}" if apart else ""
        subjects = sorted({name.split("_")[1] for name in modules})
        yield f"{verdict}: test modules {len(modules)}{wanted} ({', '.join(subjects)})"


def needs(module: Path) -> tuple[str, ...]:
    """Return the names of the parts apart that a test module asks for, sorted."""
    arguments = {node.arg for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.arg)}
    return tuple(sorted(part for fixture, part in fixtures().items() if fixture in arguments))


def fixtures() -> dict[str, str]:
    """Return the fixtures of provisioned.py that name a part apart, and that part."""
    apart = {part.name for part in PARTS if part.is_apart}
    found = {}
    for function in ast.parse((TESTS / "support/provisioned.py").read_text()).body:
        if isinstance(function, ast.FunctionDef):
            texts = {node.value for node in ast.walk(function) if isinstance(node, ast.Constant)}
            for name in apart & texts:
                found[function.name] = name
    return found
