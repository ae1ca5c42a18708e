"""What docs/topology.md shows is what the command prints."""

import re

import pytest
from support.command.fixtures import Run
from support.paths import REPOSITORY

TEXT = (REPOSITORY / "docs/topology.md").read_text()
SHOWN = re.findall(r"^```\n\$ cdigen topology --inventory (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("inventory", "matrix"), SHOWN, ids=[inventory for inventory, _ in SHOWN])
def test_the_matrix_is_real(cdigen: Run, inventory: str, matrix: str) -> None:
    done = cdigen("topology", "--inventory", REPOSITORY / inventory)
    assert done.out.startswith(f"{matrix}\nLegend:\n")


def test_the_document_has_matrices_and_every_picture() -> None:
    assert len(SHOWN) == 2
    pictures = {path.name for path in (REPOSITORY / "docs/pictures").glob("topology-*")}
    assert set(re.findall(r"\(pictures/([^)]+)\)", TEXT)) == pictures
