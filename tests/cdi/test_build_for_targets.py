"""The CDI libraries of every target load the specs that cdigen writes for the target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.values.spec_documents import verdicts

from cdigen.cdi.library import RELEASES
from cdigen.cdi.validation import validate_content
from cdigen.cdi.version import is_newer
from cdigen.model.inventory_json import from_document
from cdigen.pipeline import generate
from cdigen.runtimes.releases import LIBRARIES
from cdigen.runtimes.targets import parse

if TYPE_CHECKING:
    from cdigen.model.inventory import Inventory

TESTS = Path(__file__).resolve().parents[1]
EXAMPLES = TESTS.parent / "examples"
WRITTEN = [*(TESTS / "golden").glob("*.json"), *(TESTS / "golden" / "ways").glob("*.json")]
TARGETS = [
    f"{runtime}-{'.'.join(map(str, first))}" for runtime, rows in LIBRARIES.items() for first, _ in rows
]


def libraries(oldest: str) -> tuple[str, ...]:
    """Return the tested libraries of the version OLDEST and later, which must all load the spec."""
    return (*(version for version in RELEASES if not is_newer(oldest, version)), "main")


def assert_loads(content: bytes, versions: tuple[str, ...]) -> None:
    for yaml in (False, True):
        answers = verdicts(content, yaml=yaml, versions=versions)
        assert answers == dict.fromkeys(versions, "accept")


def inventory(*, closed: bool = False) -> dict[str, Inventory]:
    """Return the inventory of an example host; if CLOSED, its DRM nodes are open only to group 44."""
    document: dict[str, Any] = json.loads((EXAMPLES / "hosts" / "debian13-8xh100.json").read_text())
    waiting: list[Any] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if closed and "/dri/" in str(value.get("path", value.get("host_path", ""))) and "mode" in value:
                value |= {"mode": 0o660, "gid": 44}
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return from_document(document)


@pytest.mark.parametrize("file", WRITTEN, ids=lambda path: path.stem)
def test_every_library_loads_a_golden_spec(file: Path) -> None:
    content = file.read_bytes()
    assert_loads(content, libraries("0.5.2"))
    assert not [
        found for found in validate_content(content, yaml=False).findings if found.severity == "error"
    ]


def test_every_library_loads_the_example() -> None:
    assert_loads((EXAMPLES / "specs" / "debian13-8xh100.json").read_bytes(), libraries("0.5.2"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_the_library_of_a_target_and_later_libraries_load_its_spec(target: str, closed: bool) -> None:  # noqa: FBT001
    wanted = parse(target)
    (product,), broken = generate.generate_specs(
        inventory(closed=closed), host=None, options=generate.GenerateOptions(target=wanted)
    )
    assert broken == {}
    assert not is_newer(product.document["cdiVersion"], wanted.newest)
    assert_loads(product.content, libraries(wanted.library))
