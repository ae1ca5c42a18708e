"""The schema check in a child process: a failure of the child is only a warning."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.values.spec_documents import plain, rich, to_bytes, with_node

from cdigen.cdi.schema import check_in_child, check_schema


def rules(content: bytes, source: str = "", *, deadline_s: float = 20.0) -> list[str]:
    """Return the rules that a child process reports for CONTENT; the child runs SOURCE if it is not empty."""
    child = (sys.executable, "-I", "-c", source) if source else None
    return [found.rule for found in check_in_child(content, deadline_s=deadline_s, child=child)]


def test_a_good_document_has_no_finding() -> None:
    assert rules(to_bytes(rich())) == []


@pytest.mark.parametrize("document", [{**plain(), "x": 1}, with_node(type="u"), {**plain(), "devices": []}])
def test_the_child_process_has_the_same_findings_as_this_process(document: dict[str, object]) -> None:
    assert check_in_child(to_bytes(document)) == check_schema(document)
    assert rules(to_bytes(document)) == ["schema"]


def test_a_document_larger_than_a_pipe_is_checked_completely() -> None:
    devices = [{"name": f"g{n}", "containerEdits": {"env": [f"A={'x' * 1000}"]}} for n in range(300)]
    content = to_bytes({**plain(), "devices": devices})
    assert len(content) > 1 << 18
    assert rules(content) == []
    assert rules(content.replace(b'"g299"', b"299")) == ["schema"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os.kill(os.getpid(), 11)", "ended with status -11"),
        ("import sys; sys.exit('no module named jsonschema')", "status 1: no module named jsonschema"),
        ("print('[' * 10)", "the output of the child process is invalid"),
        ("print('5')", "the output of the child process is invalid"),
        ("print('[[1], 2]')", "the output of the child process is invalid"),
        ("while True: print('x' * 100000)", "printed too much output"),
    ],
)
def test_a_child_that_fails_is_a_warning_with_the_cause(source: str, reason: str) -> None:
    (found,) = check_in_child(b"{}", child=(sys.executable, "-I", "-c", source))
    assert (found.severity, found.rule) == ("warning", "schema-unchecked")
    assert reason in found.message


def test_a_child_that_hangs_is_ended_at_its_deadline() -> None:
    hangs = (sys.executable, "-c", "import time; time.sleep(3600)")
    (found,) = check_in_child(b"{}", deadline_s=0.3, child=hangs)
    assert "took more than 0.3 s and was ended" in found.message


def test_a_child_that_cannot_be_started_is_a_warning() -> None:
    (found,) = check_in_child(b"{}", child=("/does/not/exist",))
    assert (found.rule, "cannot be started" in found.message) == ("schema-unchecked", True)


def test_a_check_in_the_child_imports_no_jsonschema_in_the_parent() -> None:
    code = (
        "import sys; from cdigen.cdi.schema import check_in_child; "
        f"assert not check_in_child({json.dumps(plain()).encode()!r}); "
        "sys.exit(any(name.partition('.')[0] in ('jsonschema', 'referencing') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
