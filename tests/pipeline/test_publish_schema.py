"""The daemon checks new content with the schema before it writes it; invalid content is not written."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from cdigen.cdi.render import render
from cdigen.cdi.schema import check_in_child
from cdigen.pipeline.generate import GeneratedSpec
from cdigen.pipeline.publish import publish_spec

if TYPE_CHECKING:
    from pathlib import Path

GOOD: dict[str, object] = {
    "cdiVersion": "0.3.0",
    "kind": "example.com/gpu",
    "devices": [{"name": "gpu", "containerEdits": {"env": ["A=B"]}}],
}
FAILING = partial(check_in_child, child=(sys.executable, "-I", "-c", "raise SystemExit('broken')"))


def spec(document: dict[str, object]) -> GeneratedSpec:
    return GeneratedSpec(
        vendor="example",
        kind="example.com/gpu",
        document=document,
        content=render(document),
        findings=(),
        driver="",
    )


def test_a_spec_that_the_schema_refuses_is_not_written(tmp_path: Path) -> None:
    wrong = spec({**GOOD, "x": 5})
    outcome = publish_spec(
        wrong, (str(tmp_path / "cdi"),), str(tmp_path / "state"), check_schema=check_in_child
    )
    assert (outcome.result, "not valid under its schema" in str(outcome.error)) == ("refused", True)
    assert not (tmp_path / "cdi").exists()


def test_a_spec_is_written_with_a_finding_if_the_schema_check_fails(tmp_path: Path) -> None:
    outcome = publish_spec(
        spec(GOOD), (str(tmp_path / "cdi"),), str(tmp_path / "state"), check_schema=FAILING
    )
    assert outcome.result == "written"
    assert [(found.rule, found.path) for found in outcome.findings] == [
        ("schema-unchecked", "example.com/gpu")
    ]
