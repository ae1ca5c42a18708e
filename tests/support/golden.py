"""Golden files: `compare` compares them with the results of the code; `--update-golden` writes them."""

from pathlib import Path

import pytest

from support.paths import TESTS

GOLDEN = TESTS / "golden"


def compare(request: pytest.FixtureRequest, file: Path, content: str) -> None:
    """Assert that FILE has CONTENT; with `--update-golden`, write CONTENT first."""
    if request.config.getoption("--update-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    assert content == file.read_text()
