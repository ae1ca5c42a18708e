"""The matrices in docs/explanation/topology.md equal the output of 'cdigen topology'."""

import re

import pytest
from support.command.fixtures import Run
from support.paths import REPOSITORY

TEXT = (REPOSITORY / "docs/explanation/topology.md").read_text()
SHOWN = re.findall(r"^```\n\$ cdigen topology --inventory (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("inventory", "matrix"), SHOWN, ids=[inventory for inventory, _ in SHOWN])
def test_a_matrix_on_the_page_is_the_output_of_the_command(cdigen: Run, inventory: str, matrix: str) -> None:
    done = cdigen("topology", "--inventory", REPOSITORY / inventory)
    assert done.out.startswith(f"{matrix}\nLegend:\n")


def test_the_page_has_two_matrices_and_every_topology_picture() -> None:
    assert len(SHOWN) == 2
    pictures = {path.name for path in (REPOSITORY / "docs/pictures").glob("topology-*")}
    assert set(re.findall(r"\(\.\./pictures/([^)]+)\)", TEXT)) == pictures
