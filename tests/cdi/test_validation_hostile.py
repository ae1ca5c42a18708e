"""A separate process validates each hostile file, and reports a verdict within 5 s and 300 MiB."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.values.spec_documents import verdicts

from cdigen.cdi.reader import MAX_SIZE
from cdigen.cdi.validation import validate_content

if TYPE_CHECKING:
    from collections.abc import Callable

CONFORMANCE = Path(__file__).resolve().parents[1] / "data" / "cdi-conformance" / "specs"
ANSWERS = {"accept", "reject", "panic", "unknown"}
MAX_SECONDS = 5
MAX_BYTES = 300 << 20
DEVICES = 100_000
LEVELS = 10_000


def limit() -> None:
    """Limit CPU time and memory of the child; on a busy machine, the same work takes more CPU time."""
    resource.setrlimit(resource.RLIMIT_CPU, (4 * MAX_SECONDS, 4 * MAX_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))


def validate(file: Path) -> dict[str, Any]:
    """Run `cdigen validate` on FILE within the limits; return the row of its JSON output."""
    done = subprocess.run(
        [sys.executable, "-m", "cdigen", "validate", "--json", str(file)],
        check=False,
        capture_output=True,
        preexec_fn=limit,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
    )
    assert done.returncode in {0, 1}, (done.returncode, done.stderr[-2000:])
    assert done.stderr == b""
    (row,) = json.loads(done.stdout)
    assert set(row["loaders"].values()) <= ANSWERS
    assert isinstance(row, dict)
    return row


def spec(devices: list[Any], **fields: object) -> str:
    return json.dumps({"cdiVersion": "0.5.0", "kind": "vendor.com/gpu", "devices": devices, **fields})


def many_devices() -> str:
    return spec(
        [
            {"name": str(n), "containerEdits": {"deviceNodes": [{"path": f"/dev/x{n}"}]}}
            for n in range(DEVICES)
        ]
    )


def many_devices_in_yaml() -> str:
    device = "- name: 'g{0}'\n  containerEdits:\n    deviceNodes:\n    - path: /dev/x{0}\n"
    head = "cdiVersion: 0.3.0\nkind: vendor.com/gpu\ndevices:\n"
    return head + "".join(device.format(n) for n in range(DEVICES))


def laughs() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    return "\n".join([*lines, "cdiVersion: 0.5.0", "kind: a.b/cc", "devices: *a29", ""])


HOSTILE: dict[str, Callable[[], str]] = {
    "devices.yaml": many_devices_in_yaml,
    "yaml-devices.json": many_devices_in_yaml,
    "bad-devices.json": lambda: spec([{"name": "a b", "containerEdits": {"env": ["A"]}}] * DEVICES),
    "empty-devices.json": lambda: spec([{}] * 200_000),
    "null-devices.json": lambda: spec([None] * 2_000_000),
    "same-devices.json": lambda: spec([{"name": "a", "containerEdits": {"env": ["A=B"]}}] * DEVICES),
    "many-warnings.json": lambda: spec(
        [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/x", "major": 1}] * 50_000}}]
    ),
    "lists.json": lambda: "[" * LEVELS + "]" * LEVELS,
    "lists.yaml": lambda: "[" * LEVELS + "]" * LEVELS,
    "objects.json": lambda: '{"a":' * LEVELS + "1" + "}" * LEVELS,
    "objects.yaml": lambda: '{"a":' * LEVELS + "1" + "}" * LEVELS,
    "blocks.yaml": lambda: "- " * LEVELS + "a",
    "only-braces.json": lambda: "{" * (MAX_SIZE - 1),
    "only-braces.yaml": lambda: "{" * (MAX_SIZE - 1),
    "laughs.yaml": laughs,
    "laughs.json": laughs,
    "anchors.yaml": lambda: "[" + ",".join(f"&a{n} x" for n in range(500_000)) + "]",
    "spaces.json": lambda: " " * MAX_SIZE,
    "nul.json": lambda: "\0" * MAX_SIZE,
    "digits.json": lambda: '{"a":' + "9" * (MAX_SIZE - 6) + "}",
    "numbers.json": lambda: "[" + "1," * (MAX_SIZE // 2 - 2) + "1]",
    "nan.json": lambda: '{"a":[' + "NaN," * 500_000 + "1]}",
    "backslashes.json": lambda: '{"a":"' + "\\" * (MAX_SIZE - 8) + '"}',
    "surrogates.json": lambda: '{"a":"' + "\\ud83d" * 2_500_000 + '"}',
    "apostrophes.json": lambda: '{"a":"' + "\\'" * 8_000_000 + '"}',
    "same-keys.json": lambda: "{" + ",".join(['"k":1'] * 500_000) + "}",
    "unknown-keys.json": lambda: "{" + ",".join(f'"k{n}":1' for n in range(500_000)) + "}",
    "long-key.json": lambda: '{"' + "k" * (MAX_SIZE - 9) + '":1}',
    "tag.yaml": lambda: "!" * (MAX_SIZE - 1),
    "lines.yaml": lambda: "a:\n" + "- b\n" * 4_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_has_its_verdict_in_bounded_time_and_memory(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(HOSTILE[name](), encoding="utf-8")
    row = validate(file)
    assert len(row["findings"]) <= 1100
    assert row["valid"] is (name == "many-warnings.json")


def test_a_hundred_thousand_devices_have_a_verdict(tmp_path: Path) -> None:
    file = tmp_path / "devices.json"
    file.write_text(many_devices())
    assert set(validate(file)["loaders"].values()) == {"accept"}
    file.write_text(many_devices().replace("/dev/x99999", "dev/x99999"))
    (found,) = validate(file)["findings"]
    assert (found["rule"], found["line"]) == ("path-not-absolute", 1)


def test_an_error_after_too_many_warnings_is_reported(tmp_path: Path) -> None:
    nodes: list[dict[str, object]] = [{"path": f"/dev/x{n}", "major": 1} for n in range(3000)]
    file = tmp_path / "x.json"
    file.write_text(spec([{"name": "a", "containerEdits": {"deviceNodes": [*nodes, {"path": "x"}]}}]))
    rules = [found["rule"] for found in validate(file)["findings"]]
    assert rules.count("node-numbers-given") == 1000
    assert rules[-2:] == ["path-not-absolute", "more-findings"]


def test_a_file_above_the_limit_is_refused_without_reading_it(tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    row = validate(file)
    assert [found["rule"] for found in row["findings"]] == ["too-large"]
    assert set(row["loaders"].values()) == {"unknown"}


def validated(data: bytes, *, yaml: bool) -> None:
    """Validate DATA like the command; any exception fails the test."""
    result = validate_content(data, yaml=yaml)
    assert result.parsed.document is not None or result.findings
    answers = verdicts(data, yaml=yaml, versions=("0.5.2", "1.1.0"))
    assert set(answers.values()) <= ANSWERS


@pytest.mark.parametrize("yaml", [False, True])
def test_files_with_every_byte_value_have_a_verdict(yaml: bool) -> None:  # noqa: FBT001
    good = spec([{"name": "0", "containerEdits": {"env": ["A=B"]}}]).encode()
    for byte in range(256):
        one = bytes([byte])
        for data in (one, one * 3, one + good, good + one, good.replace(b"A=B", b"A=" + one)):
            validated(data, yaml=yaml)
    validated(bytes(range(256)), yaml=yaml)
    validated(bytes(reversed(range(256))), yaml=yaml)


@pytest.mark.parametrize("yaml", [False, True])
def test_every_recorded_document_has_a_verdict(yaml: bool) -> None:  # noqa: FBT001
    lines = (CONFORMANCE.parents[1] / "cdi-loaders" / "documents.jsonl").read_text().splitlines()
    for row in map(json.loads, lines):
        validated(row["text"].encode() if "text" in row else bytes.fromhex(row["hex"]), yaml=yaml)


DOCUMENTS = sorted(CONFORMANCE.iterdir())


@pytest.mark.wall_clock
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_conformance_document_cut_at_every_byte_has_a_verdict(document: Path) -> None:
    data = document.read_bytes()
    start = time.process_time()
    for end in range(len(data)):
        validated(data[:end], yaml=False)
    assert time.process_time() - start < 4 * MAX_SECONDS


@settings(deadline=2000)
@given(st.data())
def test_any_part_of_a_document_has_a_verdict(draw: st.DataObject) -> None:
    data = draw.draw(st.sampled_from(DOCUMENTS)).read_bytes()
    first = draw.draw(st.integers(0, len(data)))
    last = draw.draw(st.integers(first, len(data)))
    validated(data[first:last], yaml=True)
    validated(data[:first] + data[last:], yaml=True)
    validated(data[:first] + data[last:], yaml=False)
