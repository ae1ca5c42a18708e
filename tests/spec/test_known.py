"""Documents that are judged once: the answers are those of the parts, and memory is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdigen.model.findings import errors
from cdigen.spec import known
from cdigen.spec.parse import parse_document
from cdigen.spec.render import render
from cdigen.spec.rules import check


def spec(devices: int = 1, *, name: str = "gpu") -> dict[str, Any]:
    """Return a good document with as many devices."""
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
def test_a_reading_is_what_parsing_and_the_rules_give_the_first_time_and_the_second(data: bytes) -> None:
    parsed = parse_document(data, yaml=False)
    ruled = () if parsed.document is None else check(parsed.document)
    for _ in range(2):
        reading = known.read(data)
        assert reading.document == parsed.document
        assert reading.findings == (*parsed.findings, *ruled)


def test_the_same_bytes_as_json_and_as_yaml_are_two_readings() -> None:
    data = b"cdiVersion: 0.5.0\n"
    assert known.read(data, yaml=False).document is None
    assert known.read(data, yaml=True).document == {"cdiVersion": "0.5.0"}


def test_equal_bytes_are_read_once() -> None:
    data = render(spec())
    assert known.read(data).document is known.read(bytes(bytearray(data))).document


def test_a_document_is_written_as_it_is_rendered_unless_it_breaks_a_rule() -> None:
    good, bad = spec(), {**spec(), "kind": "\udc80/x"}
    assert known.write(good).content == render(good)
    assert known.write(json.loads(json.dumps(good))) is known.write(good)
    assert known.write(bad).content == b""
    assert errors(known.write(bad).findings)


def test_what_was_asked_for_lately_is_remembered_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(render(spec(name="a")))
    monkeypatch.setattr(known, "BUDGET", 2 * size)
    first, second, third = (render(spec(name=name)) for name in "abc")
    kept = known.read(first).document
    known.read(second)
    assert known.read(first).document is kept
    forgotten = known.read(second).document
    known.read(first)
    known.read(third)
    assert known.read(first).document is kept
    assert known.read(second).document is not forgotten


def test_a_document_beyond_the_budget_is_read_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "BUDGET", 100)
    data = render(spec(50))
    assert known.read(data).document is not known.read(data).document
    assert known.read(data) == known.read(data)


def test_what_is_compared_with_each_of_many_small_documents_is_bounded() -> None:
    """20,000 small files took minutes: each was compared with all before it."""
    first = known.read(b'{"kind": "first"}')
    for number in range(1000):
        known.read(b'{"kind": "%d"}' % number)
    assert known.read(b'{"kind": "first"}') is not first
    last = known.read(b'{"kind": "last"}')
    assert known.read(b'{"kind": "last"}') is last
