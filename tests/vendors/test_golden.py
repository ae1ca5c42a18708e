"""Whole specs, byte by byte, as tests/golden keeps them.

`pytest --update-golden tests/vendors/test_golden.py` writes them anew: read the difference before keeping it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import hosttree
import pytest
from hosttree import Laid
from vendors.fakehost import discover, install

from cdigen import reconcile

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
LAYOUTS = (hosttree.debian_13, hosttree.debian_tesla_470, hosttree.red_hat, hosttree.nixos)


@pytest.mark.usefixtures("real_nodes")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_the_spec_of_a_layout_is_the_golden_one(
    layout: Callable[[Path], Laid], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    install(tmp_path, layout, gpus=2)
    (product,), _ = reconcile.produce({"nvidia": discover(tmp_path)}, host=None)
    golden = GOLDEN / f"{layout.__name__}.json"
    if request.config.getoption("--update-golden"):
        golden.write_bytes(product.content)
    assert product.content.decode() == golden.read_text()


def test_every_golden_spec_has_its_layout() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {f"{layout.__name__}.json" for layout in LAYOUTS}
