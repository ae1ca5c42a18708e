"""A process keeps its last valid configuration, and reports an invalid one once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from cdigen.model.errors import CdigenError, ConfigError
from cdigen.model.findings import Finding
from cdigen.service.configuration import ActiveConfiguration, emptied
from cdigen.service.process.buffered_log import BufferedLogger
from cdigen.value import frozen

if TYPE_CHECKING:
    from pathlib import Path

PREVIOUS = "invalid configuration ignored, the previous one stays active"


@frozen
class Config:
    """The content of the file, in two values."""

    watched: tuple[str, ...]
    name: str = ""
    port: str = ""
    problem: str = ""


class Case:
    """A file with a name and a port in two words, and the configuration that is read from the file."""

    def __init__(self, folder: Path, text: str = "a 1") -> None:
        self.file = folder / "config"
        self.reads = 0
        self.log = BufferedLogger()
        self.write(text, age_s=100)
        self.active = ActiveConfiguration(
            self.load, self.log, check=self.check, notes=self.notes, fixed=lambda config: config.port
        )

    def write(self, text: str, *, age_s: float = 0) -> None:
        self.file.write_text(text)
        if age_s:
            moment = os.stat(self.file).st_ctime - age_s
            os.utime(self.file, (moment, moment))

    def load(self, is_first: bool) -> Config:  # noqa: FBT001 - as ActiveConfiguration calls it
        self.reads += 1
        words = self.file.read_text().split() if self.file.exists() else ["default", "0"]
        if len(words) == 2:
            return Config(watched=(str(self.file),), name=words[0], port=words[1])
        if is_first:
            return Config(watched=(str(self.file),), problem="not two words")
        raise ConfigError("not two words", hint="write two words")

    def check(self, _before: Config, _new: Config) -> None:
        if state := emptied(str(self.file)):
            raise ConfigError(f"the file {state}")

    def notes(self, config: Config) -> tuple[Finding, ...]:
        if config.name != "odd":
            return ()
        return (Finding(severity="warning", rule="odd", path="config", message="an odd name"),)

    def lines(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the log lines since the last call; each line has the event `configuration`."""
        lines, self.log._kept = self.log._kept, []
        assert {event for _, event, _ in lines} <= {"configuration"}
        return [(level, facts) for level, _, facts in lines]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def refreshed(case: Case) -> Config:
    assert case.active.refresh(is_reload=True)
    return case.active.current


def test_an_unchanged_file_is_read_again_only_at_a_reload(case: Case) -> None:
    case.active.refresh()
    before = case.reads
    assert not case.active.has_changed()
    assert not case.active.refresh()
    assert case.reads == before
    assert case.active.refresh(is_reload=True)
    assert case.reads == before + 1


def test_a_changed_file_is_read(case: Case) -> None:
    case.active.refresh()
    case.write("another 1")
    assert case.active.has_changed()
    assert case.active.refresh()
    assert case.active.current.name == "another"
    assert case.active.is_valid
    assert case.lines() == []


def test_a_change_during_the_first_read_is_found_later(tmp_path: Path) -> None:
    class Changing(Case):
        def load(self, is_first: bool) -> Config:  # noqa: FBT001 - as in Case
            found = super().load(is_first)
            if is_first:
                self.file.write_text("later 1")
            return found

    case = Changing(tmp_path)
    assert case.active.current.name == "a"
    assert case.active.refresh()
    assert case.active.current.name == "later"


def test_an_invalid_configuration_is_logged_once_and_the_previous_one_stays_active(case: Case) -> None:
    for text in ("invalid", "invalid again and again"):
        case.write(text)
        assert refreshed(case).name == "a"
        (finding,) = case.active.findings
        assert (finding.message, finding.hint) == (f"{PREVIOUS}: not two words", "write two words")
        assert not case.active.is_valid
    ((level, facts),) = case.lines()
    assert (level, facts["message"]) == ("error", f"{PREVIOUS}: not two words")
    case.write("valid 1")
    assert refreshed(case).name == "valid"
    assert (case.active.findings, case.active.is_valid) == ((), True)
    case.write("invalid")
    refreshed(case)
    assert len(case.lines()) == 1


@pytest.mark.parametrize("state", ["is empty", "was deleted"])
def test_a_configuration_that_the_check_rejects_does_not_become_active(case: Case, state: str) -> None:
    case.file.unlink()
    if state == "is empty":
        case.file.touch()
    case.active.refresh(is_reload=True)
    assert case.active.current.name == "a"
    (finding,) = case.active.findings
    assert state in finding.message or state == "is empty"


def test_an_invalid_configuration_at_the_start_is_reported_with_its_effect_until_it_is_valid(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, "invalid")
    case.active.begin("no device is served", case.active.current.problem)
    assert [facts["message"] for _, facts in case.lines()] == ["no device is served: not two words"]
    case.write("invalid as well, too")
    refreshed(case)
    (finding,) = case.active.findings
    assert finding.message == "invalid configuration ignored, no device is served: not two words"
    case.write("a 1")
    refreshed(case)
    case.write("invalid")
    refreshed(case)
    (finding,) = case.active.findings
    assert finding.message == f"{PREVIOUS}: not two words"


def test_findings_on_a_valid_configuration_are_logged_once(tmp_path: Path) -> None:
    case = Case(tmp_path, "odd 1")
    case.active.begin()
    refreshed(case)
    assert [(level, facts["message"]) for level, facts in case.lines()] == [("warning", "an odd name")]
    assert [finding.rule for finding in case.active.findings] == ["odd"]
    assert case.active.is_valid


def test_settings_that_take_effect_only_at_a_start_are_logged(case: Case) -> None:
    case.write("a 2")
    refreshed(case)
    assert case.lines() == [("warning", {"message": "settings take effect at the next start", "fixed": "2"})]


def test_the_error_of_the_first_read_is_raised(tmp_path: Path) -> None:
    def load(_: bool) -> Config:  # noqa: FBT001 - as ActiveConfiguration calls it
        raise ConfigError("a wrong option")

    with pytest.raises(CdigenError, match="a wrong option"):
        ActiveConfiguration(load, BufferedLogger())
    assert list(tmp_path.iterdir()) == []
