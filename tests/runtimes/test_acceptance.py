"""Loader verdicts of CDI libraries, listed by releases of runtimes."""

from __future__ import annotations

import json

from cdigen.cdi.loaders.emulation import LoaderVerdict, loader_verdicts
from cdigen.runtimes import releases
from cdigen.runtimes.acceptance import LIBRARIES, groups, rows


def judged(document: dict[str, object]) -> dict[str, LoaderVerdict]:
    base = {
        "cdiVersion": "0.5.0",
        "kind": "vendor.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"env": ["A=B"]}}],
    }
    return loader_verdicts(json.dumps({**base, **document}).encode(), yaml=False, versions=LIBRARIES)


def test_each_release_with_a_new_library_has_a_verdict() -> None:
    verdicts = rows(judged({}))
    assert len(verdicts) == sum(map(len, releases.LIBRARIES.values()))
    assert verdicts["podman-4.3.0"] == "accept"
    assert (verdicts["podman-4.1.0"], verdicts["cri-o-1.24.0"]) == ("reject", "reject")
    verdicts = rows(
        judged({"cdiVersion": "0.3.0", "devices": [{"name": "a", "containerEdits": {"env": ["A=B"]}}]})
    )
    assert (verdicts["podman-4.1.0"], verdicts["cri-o-1.24.0"]) == ("unknown", "unknown")


def test_a_file_that_all_libraries_load_has_no_group() -> None:
    assert groups(judged({})) == ()


def test_releases_that_refuse_are_reported_as_ranges() -> None:
    (group,) = groups(judged({"cdiVersion": "0.7.0", "containerEdits": {"additionalGids": [5]}}))
    assert (group.verdict, group.is_all) == ("reject", False)
    assert "additionalGids" in group.reason
    assert {
        "podman 4.3.0 to before 5.1.0",
        "containerd before 1.7.16",
        "cri-o 1.25.2 to before 1.30.0",
        "docker before 26.1.0",
        "singularity before 4.1.3",
    } == set(group.runtimes)


def test_a_range_begins_with_the_releases_that_were_never_observed() -> None:
    (group,) = groups(judged({"cdiVersion": "0.6.0"}))
    assert {"podman before 4.7.0", "cri-o before 1.28.0", "containerd before 1.7.12"} == set(group.runtimes)


def test_later_releases_that_refuse_are_reported_from_the_first_such_release_on() -> None:
    found = groups(judged({"cdiVersion": "0.7.0", "containerEdits": {"intelRdt": {"enableCMT": True}}}))
    assert "podman from 6.0.0 on" in {name for group in found for name in group.runtimes}
    assert "apptainer" in {name for group in found for name in group.runtimes}


def test_releases_that_crash_are_not_in_the_group_of_releases_that_refuse() -> None:
    found = groups(judged({"cdiVersion": "0.6.0", "kind": "v/gpu"}))
    assert [group.verdict for group in found] == ["reject", "panic"]
    assert not set(found[0].runtimes) & set(found[1].runtimes)


def test_a_file_that_all_libraries_refuse_has_one_group() -> None:
    (group,) = groups(judged({"x": 1}))
    assert group.is_all
