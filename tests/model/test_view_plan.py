from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.model.view import ViewFile, ViewLink, ViewPlan, ends, fault


def plan(*files: str, links: dict[str, str] | None = None, vendor: str = "nvidia") -> ViewPlan:
    return ViewPlan(
        vendor=vendor,
        version="1.2",
        files=tuple(ViewFile(path=path, source=f"/usr/lib/{path}") for path in files),
        links=tuple(ViewLink(path=path, target=target) for path, target in (links or {}).items()),
    )


def test_a_plan_with_plain_paths_and_inner_links_has_no_fault() -> None:
    links = {
        "lib64/a.so": "a.so.1",
        "lib64/a.so.1": "a.so.1.2",
        "lib64/gbm/b.so": "../a.so.1",
        "c": "lib64/a.so",
    }
    assert fault(plan("lib64/a.so.1.2", "bin/x", links=links)) == ""


@pytest.mark.parametrize("path", ["", "/x", "a//b", "a/", "./a", "a/..", "../a", "a\nb", "a\0b", "a\udc80"])
def test_a_path_that_is_not_plain_and_relative_is_a_fault(path: str) -> None:
    assert "is not a plain relative path" in fault(plan(path))


@pytest.mark.parametrize(
    "target", ["", "/lib64/a", "../../a", "b/../a", "..", "../..", "./a", "a/", "a\n", "../../lib64/a"]
)
def test_a_link_target_outside_the_view_or_not_plain_is_a_fault(target: str) -> None:
    assert "the target" in fault(plan("lib64/a", links={"lib64/x": target}))


@pytest.mark.parametrize(
    "links", [{"x": "y"}, {"x": "x"}, {"x": "y", "y": "x"}, {"x": "lib64"}, {"lib64/x": "../lib64"}]
)
def test_a_link_without_a_target_file_in_the_view_is_a_fault(links: dict[str, str]) -> None:
    assert "leads to no file of the view" in fault(plan("lib64/a", links=links))


def test_a_duplicate_path_is_a_fault() -> None:
    assert fault(plan("lib64/a", links={"lib64/a": "b"})) == "lib64/a is a duplicate"


def test_a_path_that_is_a_file_and_a_folder_is_a_fault() -> None:
    assert fault(plan("lib64/a", "lib64/a/b")) == "lib64/a is a file and a folder"


@pytest.mark.parametrize("vendor", ["", "NVIDIA", "nvidia-x", "a/b", "..", "é"])
def test_an_invalid_vendor_name_is_a_fault(vendor: str) -> None:
    assert "does not consist" in fault(plan("a", vendor=vendor))


@pytest.mark.parametrize("source", ["", "lib/a", "/lib/\0a"])
def test_a_source_that_is_not_absolute_is_a_fault(source: str) -> None:
    wrong = ViewPlan(vendor="nvidia", version="1", files=(ViewFile(path="a", source=source),))
    assert "not an absolute path" in fault(wrong)


def test_the_end_of_a_chain_of_links_is_the_file() -> None:
    links = {"a": "b", "b": "d/c", "d/c": "../f", "x": "y", "y": "x"}
    assert ends(plan("f", links=links)) == {"a": "f", "b": "f", "d/c": "f", "x": "", "y": ""}


PART = st.sampled_from(["a", "b", "..", ".", "", "lib64"])
PATH = st.lists(PART, min_size=1, max_size=4).map("/".join)


@given(paths=st.lists(PATH, min_size=1, max_size=4), links=st.dictionaries(PATH, PATH, max_size=4))
def test_the_kernel_resolves_links_of_a_plan_without_fault_within_the_view(
    paths: list[str], links: dict[str, str]
) -> None:
    candidate = plan(*paths, links=links)
    if fault(candidate):
        return
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        for path in candidate.paths():
            (base / path).parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            (base / path).write_bytes(b"")
        for path, target in links.items():
            os.symlink(target, base / path)
        for path, end in ends(candidate).items():
            assert (base / path).resolve() == base / end
