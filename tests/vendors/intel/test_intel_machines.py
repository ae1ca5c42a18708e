"""The devices of whole machines with Intel's accelerators, and whole specs, byte by byte.

`pytest --update-golden tests/vendors/intel/test_intel_machines.py` writes tests/golden/intel again. Read the
difference before you commit the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.golden import GOLDEN, compare
from support.hosts.intel import discover, places, rules
from support.hosts.intel_tree import arc_a770, b60, flex_170, gaudi_3, laptop, max_1550

from cdigen.pipeline import generate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.hosts.intel_tree import Device

pytestmark = pytest.mark.usefixtures("real_nodes")

INTELS = GOLDEN / "intel"


def flex_170_with_vms() -> tuple[Device, ...]:
    """Describe a Flex 170 with two virtual functions that are bound to VFIO."""
    return flex_170(4, vfio=(1, 2))


MACHINES = (laptop, flex_170, flex_170_with_vms, b60, max_1550, gaudi_3, arc_a770)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_the_specs_of_an_intel_machine_equal_their_golden_files(
    machine: Callable[[], tuple[Device, ...]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    inventory = discover(tmp_path, *machine(), vfio=machine is flex_170_with_vms)
    products, broken = generate.generate_specs({"intel": inventory}, host=places(tmp_path).host)
    assert (rules(inventory), broken) == ({}, {})
    for product in products:
        file = INTELS / f"{machine.__name__}.{product.kind.rpartition('/')[2]}.json"
        compare(request, file, product.content.decode())


def test_every_golden_file_of_intel_has_a_machine() -> None:
    assert {path.name.partition(".")[0] for path in INTELS.iterdir()} == {
        machine.__name__ for machine in MACHINES
    }
