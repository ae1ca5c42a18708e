"""What passes for a status: an object of our schema number with the members of a status, or it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.daemon.status_files import PROCESS, STATUS, changed, document
from support.values.cycle_reports import STARTING

from cdigen.daemon import status as files
from cdigen.frontend.rundir import STATUS_FILE
from cdigen.model.errors import StoreError


def read(folder: Path, content: bytes) -> dict[str, Any]:
    """Return what is read of CONTENT."""
    (folder / STATUS_FILE).write_bytes(content)
    return files.read(str(folder))


@pytest.mark.parametrize("status", [STARTING, STATUS])
def test_what_the_daemon_writes_passes(tmp_path: Path, status: Any) -> None:
    found = json.dumps(files.document(status, PROCESS)).encode()
    assert read(tmp_path, found) == json.loads(found)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("state", 5),
        ("pid", "1"),
        ("pid_started", 1.5),
        ("started", None),
        ("vendors", {}),
        ("last_cycle", []),
        ("sources", None),
        ("journal", "x"),
    ],
)
def test_a_member_of_the_wrong_kind_is_refused_by_its_name(tmp_path: Path, path: str, value: object) -> None:
    with pytest.raises(StoreError, match=f"its member '{path}' is not a"):
        read(tmp_path, changed(path, value))


@pytest.mark.parametrize(
    "key", sorted(files.document(STATUS, PROCESS).keys() - {"schema", "last_success", "owner"})
)
def test_a_status_without_one_of_its_members_is_refused(tmp_path: Path, key: str) -> None:
    whole = document()
    del whole[key]
    with pytest.raises(StoreError, match=f"its member '{key}' is not"):
        read(tmp_path, json.dumps(whole).encode())


@pytest.mark.parametrize("schema", [2, "1", [1], {"a": 1}, None])
def test_a_status_of_another_schema_is_refused(tmp_path: Path, schema: object) -> None:
    with pytest.raises(StoreError, match="its schema is"):
        read(tmp_path, json.dumps({**document(), "schema": schema}).encode())


def test_a_number_that_is_too_long_to_read_is_refused(tmp_path: Path) -> None:
    text = json.dumps({**document(), "more": "HERE"}).replace('"HERE"', "9" * 10_000)
    with pytest.raises(StoreError, match="it is not JSON"):
        read(tmp_path, text.encode())


def test_more_than_is_known_is_not_a_mistake(tmp_path: Path) -> None:
    whole = json.dumps({**document(), "more": {"a": [1]}}).encode()
    assert read(tmp_path, whole)["more"] == {"a": [1]}
