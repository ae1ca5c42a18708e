"""Whole specs of one host, one for each delivery of the driver's files, compared byte by byte.

`pytest --update-golden tests/vendors/test_golden_ways.py` writes tests/golden/ways again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from support.golden import GOLDEN, compare
from support.hosts import driver_files
from support.hosts.driver_files import put
from support.hosts.nvidia import discover, install, places

from cdigen.config import Settings
from cdigen.model.profile import DEFAULT, STEPS
from cdigen.pipeline import generate
from cdigen.pipeline.delivery import DeliveryOptions
from cdigen.pipeline.generate import GenerateOptions
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path

OF_WAYS = GOLDEN / "ways"
WAYS: dict[str, dict[str, Any]] = {
    "view_and_hook": {},
    "files_and_hook": {"layout": "files", "hook_steps": STEPS, "required_hook_steps": ("update-ldcache",)},
    "hwcaps": {"layout": "hwcaps"},
    "hookless": {"hook": "none"},
    "nvidia_hooks": {"hook": "nvidia"},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_spec_of_a_delivery_equals_its_golden_file(
    way: str, root: Path, request: pytest.FixtureRequest
) -> None:
    install(root, driver_files.debian_13, gpus=2)
    known = Settings()
    module = f"{known.hook.rpartition('/')[0]}/lib/cdigen/hook/main.py"
    for program in (known.hook, module, known.hook_python, known.nvidia_hook):
        put(root / f".{program}", b"", 0o755)
    delivery = DeliveryOptions(
        hook_script=known.hook,
        hook_python=known.hook_python,
        nvidia_hook=known.nvidia_hook,
        state_dir=f"{root}{known.state_dir}",
        make_views=True,
    )
    (product,), _ = generate.generate_specs(
        {"nvidia": discover(root)},
        host=places(root).host,
        options=GenerateOptions(profiles=(replace(DEFAULT, **WAYS[way]),)),
        delivery=delivery,
    )
    # The digest depends on the times of the files, which differ in every test.
    content = re.sub(r"views/nvidia-[0-9a-f]{16}", "views/nvidia-DIGEST", product.content.decode())
    compare(request, OF_WAYS / f"{way}.json", content)


def test_every_golden_file_has_a_delivery() -> None:
    assert {path.stem for path in OF_WAYS.iterdir()} == set(WAYS)
