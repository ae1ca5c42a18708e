from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.host.root import Root
from cdigen.runtimes import installed
from cdigen.runtimes.installed import LOW_LEVEL, find, release_in
from cdigen.runtimes.releases import library_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("podman version 4.3.1", (4, 3, 1)),
        ("podman version 6.0.0-dev", (6, 0, 0)),
        ("Docker version 28.5.2+dfsg4, build 3ef3c07c883be49a2e8097bcf6d2952fce1d70eb", (28, 5, 2)),
        ("Docker version 29.0.0-rc.1, build 1234567", (29, 0, 0)),
        ("containerd github.com/containerd/containerd/v2 2.1.9+unknown ", (2, 1, 9)),
        ("containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1", (1, 7, 24)),
        (
            "containerd github.com/containerd/containerd v1.6.33 d2d58213f83a351ca8f528a95fbd145f5654e957",
            (1, 6, 33),
        ),
        ("crio version 1.34.1", (1, 34, 1)),
        ("runc version 1.3.6+ds1", (1, 3, 6)),
        ("crun version 1.28", (1, 28, 0)),
        ("buildkitd github.com/moby/buildkit v0.21.0 52b004d2afe20c5c80967cc1784e718b52d69dae", (0, 21, 0)),
        ("apptainer version 1.5.0-1.el9", (1, 5, 0)),
        ("", None),
        ("version unknown", None),
        ("version 7", None),
        ("version 123456.1", None),
    ],
)
def test_the_version_is_found_in_the_output_of_a_binary(
    text: str, release: tuple[int, int, int] | None
) -> None:
    assert release_in(text) == release


@given(text=st.text(max_size=80))
def test_any_text_results_in_a_release_or_none(text: str) -> None:
    release_in(text)


def test_a_release_has_the_library_in_the_table() -> None:
    assert library_of("podman", (4, 3, 1)) == ("0.5.2", "0.5.0")
    assert library_of("podman", (4, 0, 0)) == ("", "")
    assert library_of("runc", (1, 1, 5)) == ("", "")


def test_runtimes_below_another_root_are_found_and_not_run(tmp_path: Path) -> None:
    place = tmp_path / "usr/bin/podman"
    place.parent.mkdir(parents=True)
    place.write_text("#!/bin/sh\nexit 1\n")
    place.chmod(0o755)
    (found,) = find(Root(str(tmp_path)))
    assert (found.runtime, found.binary, found.release) == ("podman", "/usr/bin/podman", None)
    assert "runs no programs of the tree" in found.problem


def program(folder: Path, name: str, body: str, mode: int = 0o755) -> None:
    place = folder / name
    place.write_text(f"#!/bin/sh\n{body}\n")
    place.chmod(mode)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, other_users: None) -> Iterator[Path]:  # noqa: ARG001 - only root's files are trusted
    # The test replaces the table of folders.
    folder = Path(tempfile.mkdtemp(dir="/var/lib"))
    monkeypatch.setattr(installed, "FOLDERS", (str(folder),))
    monkeypatch.setattr(installed, "_DEADLINE_S", 3.0)
    yield folder
    shutil.rmtree(folder)


def test_the_version_of_a_binary_is_recorded(places: Path) -> None:
    program(places, "podman", "echo podman version 5.4.2")
    program(places, "crun", "echo crun version 1.21; echo more")
    (found,) = find(Root())
    assert found.release == (5, 4, 2)
    assert (found.library, found.newest, found.problem) == ("0.8.0", "0.8.0", "")
    (low,) = find(Root(), LOW_LEVEL)
    assert (low.runtime, low.release) == ("crun", (1, 21, 0))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("sleep 60", "within 3 s"),
        ("exec yes 1.2.3", "without end"),
        ("echo; echo no such library >&2; exit 127", "no such library"),
        ("echo podman version unknown", "podman version unknown"),
        ("kill -9 $$", "no version reported"),
        ("echo podman version 3.4.0", "reads no CDI specs"),
    ],
)
def test_a_binary_without_a_usable_version_does_not_affect_other_binaries(
    places: Path, body: str, problem: str
) -> None:
    program(places, "podman", body)
    program(places, "containerd", "echo containerd x 2.1.9")
    containerd, podman = find(Root())
    assert problem in podman.problem
    assert podman.library == ""
    assert containerd.release == (2, 1, 9)


def test_a_binary_that_other_users_can_change_is_not_run(places: Path) -> None:
    program(places, "podman", f"touch {places}/ran; echo podman version 5.4.2", mode=0o777)
    (found,) = find(Root())
    assert found.release is None
    assert "writable by everyone" in found.problem
    assert not (places / "ran").exists()


def test_a_file_that_cannot_be_executed_is_reported_as_a_problem(places: Path) -> None:
    program(places, "podman", "", mode=0o644)
    (found,) = find(Root())
    assert "cannot be started" in found.problem
