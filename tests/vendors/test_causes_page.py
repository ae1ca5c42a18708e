"""docs/reference/health-causes.md has the tables that the code generates."""

from pathlib import Path

import causes

from cdigen.vendors.nvidia.health import HEALTH
from cdigen.vendors.nvidia.health.xids import XIDS

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/health-causes.md"


def test_the_page_has_the_generated_tables() -> None:
    page = PAGE.read_text()
    assert page == causes.page(page), "run 'make generated'"


def test_every_cause_of_nvidia_except_xids_is_on_the_page() -> None:
    page = PAGE.read_text()
    unnamed = {rule.cause for rule in HEALTH.causes if f"`{rule.cause}`" not in page}
    assert unnamed <= {xid.cause for xid in XIDS}
