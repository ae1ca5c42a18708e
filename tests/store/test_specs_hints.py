"""Hints for foreign files contain a complete command, because the daemon has no option --replace-foreign."""

from pathlib import Path

import pytest

from cdigen.model.errors import SpecError
from cdigen.store import specs
from cdigen.store.records import owned_specs

COMMAND = "'cdigen generate --write --replace-foreign'"


def test_the_hint_for_a_foreign_file_has_the_complete_command(tmp_path: Path) -> None:
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/nvidia.com-gpu.json").write_text("{}")
    with pytest.raises(SpecError) as caught:
        specs.publish(
            str(tmp_path / "cdi"),
            "nvidia.com-gpu.json",
            b"{ }",
            kind="nvidia.com/gpu",
            state_dir=str(tmp_path / "state"),
            check=lambda _: None,
        )
    assert COMMAND in caught.value.hint


def test_the_hint_for_a_damaged_state_file_has_the_complete_command(tmp_path: Path) -> None:
    (tmp_path / owned_specs.STATE_FILE).write_text("[")
    _, (finding,) = owned_specs.read(str(tmp_path))
    assert COMMAND in finding.hint
