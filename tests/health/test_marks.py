"""A mark lasts until it is cleared or the device is replaced; new marks replace a damaged file."""

import os
from pathlib import Path

import pytest
from support.values.health_devices import FIRST, SECOND, gpu, inventory

from cdigen.health import marks
from cdigen.model.errors import StoreError


def test_a_mark_can_be_set_replaced_and_cleared(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    assert marks.read_marks(state) == ((), None)
    marks.mark(state, "nvidia", gpu(), "smells")
    marks.mark(state, "nvidia", gpu(), "burns")
    marks.mark(state, "nvidia", gpu(), "a part", instance="gi1/ci0")
    found, finding = marks.read_marks(state)
    assert ([(one.reason, one.instance) for one in found], finding) == (
        [("burns", ""), ("a part", "gi1/ci0")],
        None,
    )
    removed = marks.clear(state, lambda one: not one.instance)
    assert [one.reason for one in removed] == ["burns"]
    assert [one.reason for one in marks.read_marks(state)[0]] == ["a part"]
    assert marks.clear(state, lambda one: not one.instance) == ()


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "x" * 201])
def test_a_mark_needs_a_reason_in_one_short_line(reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one line|line break"):
        marks.mark(str(tmp_path), "nvidia", gpu(), reason)


@pytest.mark.parametrize("damage", ['{"schema": 1, "ma', '{"schema": 2, "marks": []}', "[]", '{"schema": 1}'])
def test_a_damaged_file_has_a_finding_and_is_renamed_when_the_next_mark_is_set(
    damage: str, tmp_path: Path
) -> None:
    (tmp_path / marks.FILE).write_text(damage)
    found, finding = marks.read_marks(str(tmp_path))
    assert found == ()
    assert finding is not None
    assert finding.rule == "health-marks-damaged"
    marks.mark(str(tmp_path), "nvidia", gpu(), "smells")
    assert (tmp_path / marks.DAMAGED_FILES[0]).read_text() == damage
    assert [one.reason for one in marks.read_marks(str(tmp_path))[0]] == ["smells"]


@pytest.mark.needs_root
def test_the_marks_in_a_file_of_another_user_are_ignored(tmp_path: Path) -> None:
    marks.mark(str(tmp_path), "nvidia", gpu(), "smells")
    os.chown(tmp_path / marks.FILE, 12345, 12345)
    found, finding = marks.read_marks(str(tmp_path))
    assert found == ()
    assert finding is not None
    assert "belongs to uid 12345" in finding.message


def test_a_failed_write_of_a_mark_is_an_error_and_keeps_the_old_marks(tmp_path: Path) -> None:
    marks.mark(str(tmp_path), "nvidia", gpu(), "smells")
    before = (tmp_path / marks.FILE).read_bytes()
    # All users can write to this folder, so cdigen would also read marks of other users.
    tmp_path.chmod(0o777)
    with pytest.raises(StoreError):
        marks.mark(str(tmp_path), "nvidia", gpu(SECOND, uuid="GPU-2"), "smells")
    assert (tmp_path / marks.FILE).read_bytes() == before


def test_outlived_returns_the_marks_on_replaced_devices(tmp_path: Path) -> None:
    made = (marks.mark(str(tmp_path), "nvidia", gpu(), "smells"),)
    assert marks.outlived(made, inventory(gpu(uuid="GPU-2"))) == made
    assert marks.outlived(made, inventory(gpu(uuid=None))) == ()
    assert marks.outlived(made, inventory(gpu(uuid=None, device_id="0x1234"))) == made
    assert marks.outlived(made, inventory(gpu(SECOND))) == (), "the device is in another slot"
    assert marks.outlived(made, inventory()) == (), "the device is missing"
    assert marks.outlived(made, {}) == ()
    assert made[0].address == FIRST
