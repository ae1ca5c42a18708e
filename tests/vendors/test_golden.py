"""Whole specs, compared byte by byte with the files in tests/golden.

`pytest --update-golden tests/vendors/test_golden.py` writes the files again. Read the difference before you
commit the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.golden import GOLDEN, compare
from support.hosts import driver_files, nvidia_platforms
from support.hosts.nvidia import discover, install

from cdigen.pipeline import generate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.hosts.driver_files import Laid

LAYOUTS = (driver_files.debian_13, driver_files.debian_tesla_470, driver_files.red_hat, driver_files.nixos)
PLATFORMS = (nvidia_platforms.orin, nvidia_platforms.thor, nvidia_platforms.wsl2)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_the_spec_of_a_driver_layout_equals_its_golden_file(
    layout: Callable[[Path], Laid], root: Path, request: pytest.FixtureRequest
) -> None:
    install(root, layout, gpus=2)
    compare(request, GOLDEN / f"{layout.__name__}.json", spec(root))


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.__name__)
def test_the_spec_of_a_platform_equals_its_golden_file(
    platform: Callable[[Path], None], root: Path, request: pytest.FixtureRequest
) -> None:
    platform(root)
    compare(request, GOLDEN / f"{platform.__name__}.json", spec(root))


def spec(root: Path) -> str:
    (product,), _ = generate.generate_specs({"nvidia": discover(root)}, host=None)
    return product.content.decode()


def test_every_golden_file_has_a_driver_layout_or_a_platform() -> None:
    names = {f"{made.__name__}.json" for made in (*LAYOUTS, *PLATFORMS)}
    assert {path.name for path in GOLDEN.iterdir() if path.is_file()} == names
