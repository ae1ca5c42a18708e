from __future__ import annotations

import pytest

from cdigen.runtimes.releases import KNOWN_ISSUES, known_issues
from cdigen.runtimes.targets import RUNTIMES


def names(runtime: str, release: tuple[int, int, int]) -> list[str]:
    return [limit.name for limit in known_issues(runtime, release)]


@pytest.mark.parametrize(
    ("runtime", "release", "name", "is_there"),
    [
        ("podman", (5, 4, 2), "podman-no-run-cdi", False),
        ("podman", (5, 5, 0), "podman-no-run-cdi", True),
        ("podman", (5, 5, 2), "podman-no-run-cdi", True),
        ("podman", (5, 6, 0), "podman-no-run-cdi", False),
        ("podman", (4, 9, 3), "podman-no-additional-gids", True),
        ("docker", (28, 1, 1), "docker-cdi-off", True),
        ("docker", (28, 2, 0), "docker-cdi-off", False),
        ("docker", (29, 4, 0), "docker-forgets-gids", True),
        ("containerd", (1, 7, 24), "containerd-cdi-off", True),
        ("containerd", (2, 1, 9), "containerd-cdi-off", False),
        ("runc", (1, 1, 5), "runc-hook-environment", True),
        ("runc", (1, 3, 6), "runc-hook-environment", False),
    ],
)
def test_a_limit_holds_from_its_first_release_up_to_the_one_that_lifts_it(
    runtime: str, release: tuple[int, int, int], name: str, *, is_there: bool
) -> None:
    assert (name in names(runtime, release)) is is_there


def test_no_release_has_a_limit_twice() -> None:
    for runtime, rows in RUNTIMES.items():
        for release, _, _ in rows:
            assert len(names(runtime, release)) == len(set(names(runtime, release)))


def test_every_row_is_of_a_known_runtime_and_says_what_to_do() -> None:
    for limit in KNOWN_ISSUES:
        assert limit.runtime in {*RUNTIMES, "runc", "crun"}
        assert limit.text
        assert limit.remedy
        assert limit.since is None or limit.until is None or limit.since < limit.until


def test_an_unknown_runtime_has_none() -> None:
    assert known_issues("none", (1, 0, 0)) == ()
