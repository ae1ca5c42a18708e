"""Cached results equal fresh results, and the cache has bounded memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdigen.cdi import parse_cache
from cdigen.cdi.reader import parse_document
from cdigen.cdi.render import render
from cdigen.cdi.rules.document_rules import check
from cdigen.model.findings import errors


def spec(devices: int = 1, *, name: str = "gpu") -> dict[str, Any]:
    """Return a valid document; DEVICES is the number of devices."""
    node = [{"path": "/dev/null"}]
    entries = [{"name": f"{name}{i}", "containerEdits": {"deviceNodes": node}} for i in range(devices)]
    return {"cdiVersion": "0.3.0", "kind": "example.com/gpu", "devices": entries}


@pytest.mark.parametrize(
    "data",
    [
        render(spec()),
        b'{"cdiVersion": "0.5.0", "kind": "no slash", "devices": []}',
        b'{"kind": "a.b/c", "kind": "a.b/c"}',
        b"[1]",
        b"\xff",
        b"",
    ],
)
def test_a_cached_result_equals_a_fresh_parse_and_check(data: bytes) -> None:
    parsed = parse_document(data, yaml=False)
    ruled = () if parsed.document is None else check(parsed.document)
    for _ in range(2):
        reading = parse_cache.parse_and_check(data)
        assert reading.document == parsed.document
        assert reading.findings == (*parsed.findings, *ruled)


def test_the_same_bytes_as_json_and_as_yaml_are_parsed_separately() -> None:
    data = b"cdiVersion: 0.5.0\n"
    assert parse_cache.parse_and_check(data, yaml=False).document is None
    assert parse_cache.parse_and_check(data, yaml=True).document == {"cdiVersion": "0.5.0"}


def test_equal_bytes_are_parsed_once() -> None:
    data = render(spec())
    assert (
        parse_cache.parse_and_check(data).document
        is parse_cache.parse_and_check(bytes(bytearray(data))).document
    )


def test_a_valid_document_is_rendered_and_an_invalid_document_is_not() -> None:
    good, bad = spec(), {**spec(), "kind": "\udc80/x"}
    assert parse_cache.check_and_render(good)[0] == render(good)
    assert parse_cache.check_and_render(json.loads(json.dumps(good))) is parse_cache.check_and_render(good)
    assert parse_cache.check_and_render(bad)[0] == b""
    assert errors(parse_cache.check_and_render(bad)[1])


def test_recent_results_are_cached_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(render(spec(name="a")))
    monkeypatch.setattr(parse_cache, "BUDGET", 2 * size)
    first, second, third = (render(spec(name=name)) for name in "abc")
    kept = parse_cache.parse_and_check(first).document
    parse_cache.parse_and_check(second)
    assert parse_cache.parse_and_check(first).document is kept
    forgotten = parse_cache.parse_and_check(second).document
    parse_cache.parse_and_check(first)
    parse_cache.parse_and_check(third)
    assert parse_cache.parse_and_check(first).document is kept
    assert parse_cache.parse_and_check(second).document is not forgotten


def test_a_document_larger_than_the_budget_is_parsed_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_cache, "BUDGET", 100)
    data = render(spec(50))
    assert parse_cache.parse_and_check(data).document is not parse_cache.parse_and_check(data).document
    assert parse_cache.parse_and_check(data) == parse_cache.parse_and_check(data)


def test_the_number_of_cached_results_is_limited() -> None:
    """Without a limit, 20,000 small files took minutes: each file was compared with all earlier files."""
    first = parse_cache.parse_and_check(b'{"kind": "first"}')
    for number in range(1000):
        parse_cache.parse_and_check(b'{"kind": "%d"}' % number)
    assert parse_cache.parse_and_check(b'{"kind": "first"}') is not first
    last = parse_cache.parse_and_check(b'{"kind": "last"}')
    assert parse_cache.parse_and_check(b'{"kind": "last"}') is last
