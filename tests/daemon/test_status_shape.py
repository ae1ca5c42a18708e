"""What passes for a status: every value that is shown is what it has to be, or the file is refused."""

import json
from typing import Any

import pytest
from daemon.reports import CHANGED, MISMATCH, QUIET, STARTING

from cdigen.frontend import status as files
from cdigen.frontend.report import next_status
from cdigen.frontend.statusshape import MAX_DEPTH, parse
from cdigen.value import replace

STATUS = next_status(
    next_status(STARTING, CHANGED, {"files": ""}),
    replace(QUIET, findings=CHANGED.findings, vendors=(MISMATCH,)),
    {"files": "", "uevents": "no permission"},
)
PROCESS = files.Process(pid=1, started=1, namespace="pid:[1]")


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(files.document(STATUS, PROCESS)))
    return found


def changed(path: str, value: object) -> bytes:
    """Return a status with VALUE at PATH, such as ``specs.0.written``."""
    whole = document()
    *above, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place: Any = whole
    for part in above:
        place = place[part]
    place[last] = value
    return json.dumps(whole).encode()


@pytest.mark.parametrize("status", [STARTING, STATUS])
def test_what_the_daemon_writes_passes(status: Any) -> None:
    found = json.dumps(files.document(status, PROCESS)).encode()
    assert parse(found) == json.loads(found)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("state", 5),
        ("pid", True),
        ("pid", "1"),
        ("pid_started", 1.5),
        ("started", None),
        ("last_success", 0),
        ("vendors", {}),
        ("vendors.0", []),
        ("vendors.0.hint", {"x": 2}),
        ("specs.0.devices", None),
        ("specs.0.devices.served", []),
        ("specs.0.written", {}),
        ("findings.0.severity", []),
        ("findings.0.severity", {}),
        ("findings.0.message", None),
        ("last_cycle", []),
        ("last_cycle.reasons", 5),
        ("last_cycle.reasons", None),
        ("last_cycle.reasons.0", "timer"),
        ("last_cycle.reasons.0.source", 5),
        ("last_cycle.error", {"a": 1}),
        ("sources.files", None),
        ("sources.files.healthy", []),
        ("sources.files.problem", 5),
        ("journal.0", 1),
        ("journal.0.summary", ["x"]),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_place(path: str, value: object) -> None:
    # "$.findings[0].severity is not text": the place in the document, or the one above it.
    named = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))
    with pytest.raises(ValueError, match="is not") as caught:
        parse(changed(path, value))
    assert str(caught.value).startswith(f"${named} is not ")


@pytest.mark.parametrize("key", sorted(files.document(STATUS, PROCESS).keys() - {"schema"}))
def test_a_status_without_one_of_its_parts_is_none(key: str) -> None:
    whole = document()
    del whole[key]
    with pytest.raises(ValueError, match=rf"^\$\.{key} is not there"):
        parse(json.dumps(whole).encode())


@pytest.mark.parametrize("schema", [True, 1.0, "1", [1], {"a": 1}, None])
def test_a_schema_is_a_number_and_no_other_value_that_is_equal_to_it(schema: object) -> None:
    with pytest.raises(ValueError, match="its schema is"):
        parse(json.dumps({**document(), "schema": schema}).encode())


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "9" * 10_000])
def test_a_number_that_no_other_program_reads_is_refused(number: str) -> None:
    text = json.dumps({**document(), "more": "HERE"}).replace('"HERE"', number)
    with pytest.raises(ValueError, match="it is no JSON"):
        parse(text.encode())


def test_more_than_is_known_is_no_mistake_as_far_as_it_can_be_printed() -> None:
    assert parse(json.dumps({**document(), "more": {"a": [1]}}).encode())["more"] == {"a": [1]}
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    with pytest.raises(ValueError, match="nests deeper"):
        parse(json.dumps({**document(), "more": json.loads(deep)}).encode())
