"""``tests/nightly``: the parts of the long run; an interrupted run continues with the next part."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.abilities import tool

NIGHTLY = Path(__file__).with_name("nightly")
ON_DEBIAN13 = """#!/bin/sh
echo on-debian13 >>ran
! grep --quiet --line-regexp on-debian13 broken
"""
# A target of the Makefile appends its name to `ran`, and fails if the file `broken` names it.
MAKEFILE = """
lint test-processes test-containers test-oldest:
\t@echo $@ >>ran; ! grep --quiet --line-regexp $@ broken
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository with the script, and a Makefile that records its targets."""

    folder: Path

    def nightly(self, *parts: str, broken: str = "") -> tuple[int, list[str]]:
        """Run the parts; return the exit status and the targets that were made."""
        (self.folder / "ran").write_text("")
        (self.folder / "broken").write_text(broken)
        done = subprocess.run(["tests/nightly", *parts], cwd=self.folder, check=False, capture_output=True)
        return done.returncode, (self.folder / "ran").read_text().split()

    def git(self, *arguments: str) -> None:
        identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@localhost"}
        identity |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@localhost"}
        subprocess.run(["git", *arguments], cwd=self.folder, check=True, env={**os.environ, **identity})


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    tool("git")
    made = Repository(folder=tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/nightly").symlink_to(NIGHTLY)
    (tmp_path / "tests/on-debian13").write_text(ON_DEBIAN13)
    (tmp_path / "tests/on-debian13").chmod(0o755)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / ".gitignore").write_text("/build\n/ran\n/broken\n")
    made.git("init", "--quiet")
    made.git("add", ".")
    made.git("commit", "--quiet", "--message", "all")
    return made


PARTS = ("root", "containers", "debian13", "oldest")
TARGETS = ["test-processes", "test-containers", "on-debian13", "on-debian13", "test-oldest"]


def test_all_parts_run_even_if_one_fails(repository: Repository) -> None:
    assert repository.nightly(*PARTS, broken="test-processes\n") == (1, TARGETS)


def test_a_part_that_passed_on_this_commit_is_not_run_again(repository: Repository) -> None:
    repository.nightly(*PARTS, broken="test-containers\n")
    assert repository.nightly(*PARTS) == (0, ["test-containers"])
    assert repository.nightly(*PARTS) == (0, [])


def test_another_commit_is_tested_from_the_start(repository: Repository) -> None:
    repository.nightly(*PARTS)
    repository.git("commit", "--quiet", "--allow-empty", "--message", "next")
    assert repository.nightly(*PARTS) == (0, TARGETS)


def test_uncommitted_changes_are_refused(repository: Repository) -> None:
    (repository.folder / "new").touch()
    assert repository.nightly(*PARTS) == (2, [])


def test_an_unknown_part_is_refused_before_any_part_runs(repository: Repository) -> None:
    assert repository.nightly("root", "no-such-part") == (2, [])
