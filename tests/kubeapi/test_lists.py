"""All objects of a list are read, with one object in memory at a time, in small pages after large objects."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.kubeapi.lists import PAGE, PAGE_BYTES, ListPage, PageSize

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(JSON, max_size=5),
    st.dictionaries(TEXT, JSON, max_size=3),
    st.sampled_from([None, 0, 2, "\t"]),
    st.sampled_from(["items first", "items last"]),
)
def test_a_page_has_the_objects_and_metadata_of_its_json(
    items: list[object], metadata: dict[str, object], indent: int | str | None, order: str
) -> None:
    members = {"kind": "PodList", "metadata": metadata, "items": items, "apiVersion": "v1"}
    ordered = dict(sorted(members.items(), reverse=order == "items last"))
    for is_ascii in (True, False):
        page = ListPage(json.dumps(ordered, indent=indent, ensure_ascii=is_ascii).encode())
        assert list(page.items()) == items
        assert (page.metadata, page.count) == (metadata, len(items))


@pytest.mark.parametrize("content", [b"{}", b'{"items": null}', b'{"items": [], "metadata": null}'])
def test_a_list_without_objects_is_empty(content: bytes) -> None:
    page = ListPage(content)
    assert list(page.items()) == []
    assert page.next_page == ""


COMPLETE = '{"metadata": {"continue": "a"}, "items": [{"name": "\\"é]}"}, {}]}'.encode()


@pytest.mark.parametrize(
    "content",
    [COMPLETE[:end] for end in range(len(COMPLETE))]
    + [b"[]", b"null", b"<html>", b'{"items": [1 2]}', b'{"items" [1]}', b'{"items": ["\xff"]}'],
)  # fmt: skip
def test_an_incomplete_or_invalid_page_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(ListPage(content).items())


def large_pod(number: int, variables: int) -> dict[str, object]:
    env = [{"name": f"V{number}", "value": "é"}] * variables
    return {"metadata": {"name": f"p{number}"}, "spec": {"containers": [{"name": "main", "env": env}]}}


def test_only_one_object_is_in_memory_at_a_time() -> None:
    pods = [large_pod(number, 20_000) for number in range(10)]
    content = json.dumps({"metadata": {}, "items": pods}).encode()

    def peak(count: int) -> int:
        tracemalloc.start()
        try:
            for number, _ in enumerate(ListPage(content).items()):
                if number == count:
                    break
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(10) < 1.2 * peak(2)


def test_after_large_objects_the_next_page_is_small_and_later_pages_grow_again() -> None:
    size = PageSize()

    def limit_after(content: bytes) -> int:
        page = ListPage(content)
        list(page.items())
        size.received(page)
        return size.limit

    large = json.dumps({"items": [{"name": "x" * (PAGE_BYTES // 2)}]}).encode()
    assert (size.limit, limit_after(large)) == (PAGE, 1)
    assert limit_after(b'{"items": [{}]}') == PAGE
    assert limit_after(json.dumps({"items": ["x" * (PAGE_BYTES // 8)] * 2}).encode()) == 7
    assert limit_after(b'{"items": []}') == PAGE


def test_the_page_size_decreases_after_each_failed_page_until_a_list_is_complete() -> None:
    size = PageSize()
    limits = []
    for _ in range(5):
        size.failed()
        limits.append(size.limit)
    assert limits == [5, 2, 1, 1, 1]
    page = ListPage(b'{"items": [{}]}')
    list(page.items())
    size.received(page)
    assert size.limit == 1
    size.finished()
    size.received(page)
    assert size.limit == PAGE
