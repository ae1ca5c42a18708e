"""For any content of the status file, `cdigen status` ends within seconds and without an internal error."""

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command.fixtures import Run
from support.daemon.status_files import changed, document

from cdigen.cli.main import main
from cdigen.service import rundir
from cdigen.service import status as files

TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def saved(root: Path, content: bytes) -> Path:
    """Write CONTENT into the daemon's status file below ROOT; return the path of the file."""
    rundir.prepare(str(root / "run/cdigen"))
    path = root / "run/cdigen/status.json"
    path.write_bytes(content)
    return path


@pytest.fixture
def status(tmp_path: Path) -> Path:
    """Write a valid status whose daemon is this process; return the path of the file."""
    process = files.this_process()
    whole = {**document(), "pid": process.pid, "pid_started": process.started}
    return saved(tmp_path, json.dumps({**whole, "pid_namespace": process.namespace}).encode())


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return the position of each value inside VALUE: the list or object around the value, and the key."""
    keys = range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ()
    return [found for key in keys for found in [(value, key), *places(value[key])]]


@st.composite
def statuses(draw: st.DrawFn) -> bytes:
    """Return a strategy for statuses with up to four random values; in some, the daemon is this process."""
    whole = document()
    for _ in range(draw(st.integers(0, 4))):
        at, key = draw(st.sampled_from(places(whole)))
        at[key] = draw(VALUES | st.just(document()))
    if draw(st.booleans()):
        whole["more"] = draw(VALUES)
    if draw(st.booleans()):
        process = files.this_process()
        whole.update(pid=process.pid, pid_started=process.started, pid_namespace=process.namespace)
    return json.dumps(whole).encode()


def run_status(content: bytes, *options: str) -> tuple[int, bytes]:
    """Run the command in this process; return the exit code and the output."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "status.json").write_bytes(content)
        out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = main(["status", "--run-dir", folder, *options])
        out.flush()
        buffer = out.detach()
        assert isinstance(buffer, io.BytesIO)
        return code, buffer.getvalue()


@settings(deadline=None)
@given(content=statuses(), verbose=st.booleans())
def test_no_status_causes_an_internal_error(content: bytes, verbose: bool) -> None:  # noqa: FBT001
    # After an unexpected error, the exit code would be 70.
    code, _ = run_status(content, *(["-v"] if verbose else []))
    assert code in {0, 3, 5}


@settings(deadline=None)
@given(content=statuses())
def test_the_json_output_of_status_is_one_document(content: bytes) -> None:
    code, out = run_status(content, "--json")
    assert code in {0, 3, 5}
    given = json.loads(content)
    # No plugin has written a status into the folder.
    shown = {**given, "devices": [], "nri": None, "kubelet": None} if isinstance(given, dict) else given
    report = json.loads(out)
    if code == 0:
        # The version in the status differs from the version of the command, which adds a finding.
        report["findings"] = [row for row in report["findings"] if row.get("rule") != "other-version-runs"]
    assert (report == shown) == (code == 0)


@settings(deadline=None)
@given(content=st.binary(max_size=64) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_content_that_is_not_a_status_is_refused(content: bytes) -> None:
    assert run_status(content)[0] == 5


@pytest.mark.parametrize(
    ("path", "value"), [("last_cycle.reasons", 5), ("last_cycle.reasons", None), ("findings.0.rule", [])]
)
def test_a_status_with_wrong_types_is_refused_in_one_line(
    cdigen: Run, tmp_path: Path, path: str, value: object
) -> None:
    saved(tmp_path, changed(path, value))
    assert cdigen("status", "--root", tmp_path).failed(5, "is not a status", "restart")


MADE: dict[str, Callable[[Path], object]] = {
    "a fifo": os.mkfifo,
    "a directory": Path.mkdir,
    "a symlink to /etc/hostname": lambda path: path.symlink_to("/etc/hostname"),
}


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("kind", MADE)
def test_a_status_that_is_no_regular_file_is_refused_without_waiting(
    cdigen: Run, status: Path, kind: str, options: tuple[str, ...]
) -> None:
    status.unlink()
    MADE[kind](status)
    done = cdigen("status", "--run-dir", status.parent, *options)
    assert done.failed(5, "is not a status", f"it is {kind}", "restart")


def shown_within(memory: int, status: Path) -> subprocess.CompletedProcess[str]:
    """Run `cdigen status` on the file STATUS with MEMORY bytes of address space."""
    return subprocess.run(
        [sys.executable, "-m", "cdigen", "status", "--run-dir", str(status.parent)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )


def test_a_huge_status_is_refused_within_256_mib_of_memory(status: Path) -> None:
    with status.open("wb") as file:
        file.truncate(1 << 40)  # a sparse file, which uses no disk space
    done = shown_within(256 << 20, status)
    assert done.returncode == 5
    assert f"it is a file of more than {files.MAX_STATUS} bytes" in done.stderr


def test_the_most_expensive_json_below_the_limit_needs_less_than_512_mib(status: Path) -> None:
    status.write_bytes(b"[" + b"[]," * (files.MAX_STATUS // 3 - 1) + b"1]")
    done = shown_within(512 << 20, status)
    assert (done.returncode, "its schema is None" in done.stderr) == (5, True), done.stderr
