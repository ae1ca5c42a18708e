"""Before it builds, `make release` rejects a clone that has a fault."""

import subprocess
from pathlib import Path

import pytest
from support.abilities import cannot_run, tool
from support.paths import REPOSITORY
from support.processes import captured

from cdigen import __version__

TAG = f"v{__version__}"


def git(clone: Path, *words: str) -> None:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.com")
    subprocess.run([tool("git"), "-C", clone, *identity, *words], check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone without unreleased changes, whose commit has the tag of this version."""
    if not (REPOSITORY / ".git").exists():
        cannot_run("these sources are not a git clone")
    clone = tmp_path / "clone"
    subprocess.run([tool("git"), "clone", "--quiet", REPOSITORY, clone], check=True, capture_output=True)
    log = clone / "CHANGELOG.md"
    text = log.read_text()
    headings = f"## [Unreleased]\n\n## [{__version__}] - 2026-01-01\n"
    log.write_text(text.replace(f"## [{__version__}] - unreleased\n", headings, 1))
    commit(clone)
    return clone


def commit(clone: Path) -> None:
    git(clone, "commit", "--all", "--quiet", "--message", "A release")
    git(clone, "tag", "--force", "--annotate", "--message", "A release", TAG)


def check_error(clone: Path) -> str:
    """Return the one-line error of `packaging/release --check`, or "" if it succeeds."""
    done = captured(["packaging/release", "--check"], cwd=clone)
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) in {(0, 0), (1, 1)}, done.stderr
    return "".join(lines)


def test_a_tagged_and_clean_tree_is_accepted(clone: Path) -> None:
    assert check_error(clone) == ""


def test_a_dirty_tree_is_refused(clone: Path) -> None:
    (clone / "new.txt").write_text("")
    assert "the tree is dirty" in check_error(clone)


def test_a_commit_without_the_tag_of_its_version_is_refused(clone: Path) -> None:
    git(clone, "tag", "--delete", TAG)
    git(clone, "tag", "v99.0")
    assert check_error(clone) == (
        f"packaging/release: HEAD has no tag {TAG} (it has: v99.0); git tag --sign {TAG}"
    )


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("CHANGELOG.md", f"## [{__version__}] - 2026-01-01", "## [98.7] - 2026-01-01"),
        ("packaging/debian/changelog", f"({__version__}-1)", "(98.7-1)"),
        ("packaging/rpm/cdigen.spec", f"Version: {__version__}", "Version: 98.7"),
        ("packaging/rpm/cdigen.spec", f"- {__version__}-1\n", "- 98.7-1\n"),
    ],
)
def test_a_file_with_another_version_is_reported(clone: Path, file: str, old: str, new: str) -> None:
    text = (clone / file).read_text()
    assert old in text
    (clone / file).write_text(text.replace(old, new, 1))
    commit(clone)
    message = check_error(clone)
    assert f"{file} " in message
    assert f"has version '98.7', cdigen/__init__.py has {__version__}" in message


def test_unreleased_changes_are_refused(clone: Path) -> None:
    log = clone / "CHANGELOG.md"
    log.write_text(log.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n- Something.\n", 1))
    commit(clone)
    assert "CHANGELOG.md has lines under Unreleased" in check_error(clone)
