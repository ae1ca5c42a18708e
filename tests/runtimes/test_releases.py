from __future__ import annotations

import re

import pytest
from support.documentation.pages import text_of

from cdigen.cdi.version import is_newer
from cdigen.runtimes.releases import (
    BEHAVIOURS,
    LIBRARIES,
    NRI,
    RuntimeBehaviour,
    behaves,
    known_issues,
    library_of,
    nri_of,
)

# The cdiVersion of specs without a target.
DEFAULT_VERSION = "0.5.0"


def names(runtime: str, release: tuple[int, int, int]) -> list[str]:
    return [issue.name for issue in known_issues(runtime, release)]


@pytest.mark.parametrize(
    ("runtime", "release", "name", "exists"),
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
        ("containerd", (2, 2, 7), "containerd-no-higher-imports", False),
        ("containerd", (2, 3, 0), "containerd-no-higher-imports", True),
        ("containerd", (2, 3, 4), "containerd-no-higher-imports", True),
        ("containerd", (2, 3, 5), "containerd-no-higher-imports", False),
        ("containerd", (2, 3, 4), "containerd-mixed-versions", False),
        ("runc", (1, 1, 5), "runc-hook-environment", True),
        ("runc", (1, 3, 6), "runc-hook-environment", False),
    ],
)
def test_an_issue_exists_from_its_first_release_to_the_release_that_fixes_it(
    runtime: str, release: tuple[int, int, int], name: str, *, exists: bool
) -> None:
    assert (name in names(runtime, release)) is exists


def test_no_release_has_an_issue_twice() -> None:
    for runtime, rows in LIBRARIES.items():
        for release, _ in rows:
            assert len(names(runtime, release)) == len(set(names(runtime, release)))


def test_every_issue_is_of_a_known_runtime_and_has_a_remedy() -> None:
    for row in BEHAVIOURS:
        assert row.runtime in {*LIBRARIES, "runc", "crun"}
        assert bool(row.text) is bool(row.remedy)
        assert row.since is None or row.until is None or row.since < row.until


def test_every_behaviour_has_a_row() -> None:
    assert {row.behaviour for row in BEHAVIOURS} == set(RuntimeBehaviour)


def test_a_behaviour_holds_in_each_of_its_ranges_and_for_no_other_runtime() -> None:
    found = [
        release
        for release in ((1, 6, 0), (1, 7, 24), (1, 7, 30), (2, 0, 7), (2, 1, 0))
        if behaves("containerd", release, RuntimeBehaviour.NRI_WITHOUT_CDI)
    ]
    assert found == [(1, 7, 24), (2, 0, 7)]
    assert not behaves("podman", (1, 7, 24), RuntimeBehaviour.NRI_WITHOUT_CDI)


def test_a_runtime_reads_no_specs_before_the_first_library_of_the_table() -> None:
    for runtime, rows in LIBRARIES.items():
        ends = [
            r.until for r in BEHAVIOURS if r.runtime == runtime and r.behaviour is RuntimeBehaviour.NO_CDI
        ]
        assert ends == [rows[0][0]]


def first_release(runtime: str, version: str) -> str:
    """Return major and minor number of the first release of RUNTIME that reads specs of VERSION."""
    found = next(
        since for since, _ in LIBRARIES[runtime] if not is_newer(version, library_of(runtime, since)[1])
    )
    return f"{found[0]}.{found[1]}"


@pytest.mark.parametrize("runtime", LIBRARIES)
def test_the_remedy_without_cdi_is_a_release_that_reads_the_default_spec(runtime: str) -> None:
    (remedy,) = {
        row.remedy
        for row in BEHAVIOURS
        if row.runtime == runtime and row.behaviour is RuntimeBehaviour.NO_CDI
    }
    found = re.fullmatch(r"install \S+ ([\d.]+) or newer(?:, and .+)?", remedy)
    assert found is not None
    assert first_release(runtime, DEFAULT_VERSION) in {found[1], f"{found[1]}.0"}


def test_the_page_of_supported_versions_has_the_first_releases_of_the_table() -> None:
    table = text_of("docs/reference/supported-versions.md").partition("| runtime | first release with CDI |")[
        2
    ]
    rows = re.findall(r"^\| (\S+) \| ([\d.]+) \| ([\d.]+)", table.partition("\n\n")[0], flags=re.MULTILINE)
    assert {name.lower().removesuffix("ce"): (first, usable) for name, first, usable in rows} == {
        runtime: (f"{releases[0][0][0]}.{releases[0][0][1]}", first_release(runtime, DEFAULT_VERSION))
        for runtime, releases in LIBRARIES.items()
    }


def test_a_release_has_the_nri_of_the_last_row_before_it() -> None:
    assert nri_of("containerd", (1, 7, 24)) == (0, 6)
    assert nri_of("containerd", (1, 6, 0)) is None
    assert nri_of("podman", (5, 5, 0)) is None
    for rows in NRI.values():
        assert list(rows) == sorted(set(rows))


def test_an_unknown_runtime_has_no_issues() -> None:
    assert known_issues("none", (1, 0, 0)) == ()
