"""`cdigen status` on whatever lies where a status should be: an answer, never a defect, and soon."""

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
from cdigen.frontend import rundir
from cdigen.frontend import status as files

TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def saved(root: Path, content: bytes) -> Path:
    """Put CONTENT where the daemon of ROOT keeps its status."""
    rundir.prepare(str(root / "run/cdigen"))
    path = root / "run/cdigen/status.json"
    path.write_bytes(content)
    return path


@pytest.fixture
def status(tmp_path: Path) -> Path:
    """Return the path of a good status of this very process, which counts as a daemon."""
    process = files.this_process()
    whole = {**document(), "pid": process.pid, "pid_started": process.started}
    return saved(tmp_path, json.dumps({**whole, "pid_namespace": process.namespace}).encode())


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in VALUE, as the list or object and the key in it."""
    keys = range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ()
    return [found for key in keys for found in [(value, key), *places(value[key])]]


@st.composite
def statuses(draw: st.DrawFn) -> bytes:
    """Draw a status in which some places hold anything, as a living process has written it."""
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


def answer(content: bytes, *options: str) -> tuple[int, bytes]:
    """Return exit code and output of the command, within this process."""
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
def test_no_status_makes_the_command_fail_as_a_defect(content: bytes, verbose: bool) -> None:  # noqa: FBT001
    # Without --verbose, the entry point would raise what it has no words for.
    code, _ = answer(content, *(["-v"] if verbose else []))
    assert code in {0, 3, 5}


@settings(deadline=None)
@given(content=statuses())
def test_what_is_printed_for_programs_is_one_json_document(content: bytes) -> None:
    code, out = answer(content, "--json")
    assert code in {0, 3, 5}
    given = json.loads(content)
    # No plugin runs, whatever the document says.
    shown = {**given, "devices": [], "nri": None, "kubelet": None} if isinstance(given, dict) else given
    told = json.loads(out)
    if code == 0:
        # Nor is it of the version that asks.
        told["findings"] = [row for row in told["findings"] if row.get("rule") != "other-version-runs"]
    assert (told == shown) == (code == 0)


@settings(deadline=None)
@given(content=st.binary(max_size=64) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_no_status(content: bytes) -> None:
    assert answer(content)[0] == 5


@pytest.mark.parametrize(
    ("path", "value"), [("last_cycle.reasons", 5), ("last_cycle.reasons", None), ("findings.0.rule", [])]
)
def test_a_shape_that_cannot_be_shown_is_refused_in_one_line(
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
def test_what_is_no_file_is_no_status_and_is_not_waited_for(
    cdigen: Run, status: Path, kind: str, options: tuple[str, ...]
) -> None:
    status.unlink()
    MADE[kind](status)
    done = cdigen("status", "--run-dir", status.parent, *options)
    assert done.failed(5, "is not a status", f"it is {kind}", "restart")


def shown_within(memory: int, status: Path) -> subprocess.CompletedProcess[str]:
    """Run `cdigen status` on the file STATUS with so many bytes of address space."""
    return subprocess.run(
        [sys.executable, "-m", "cdigen", "status", "--run-dir", str(status.parent)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )


def test_a_huge_file_costs_neither_time_nor_memory(status: Path) -> None:
    with status.open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no space
    done = shown_within(256 << 20, status)
    assert done.returncode == 5
    assert f"it is a file of more than {files.MAX_STATUS} bytes" in done.stderr


def test_the_dearest_json_within_the_bound_stays_within_half_a_gibibyte(status: Path) -> None:
    status.write_bytes(b"[" + b"[]," * (files.MAX_STATUS // 3 - 1) + b"1]")
    done = shown_within(512 << 20, status)
    assert (done.returncode, "its schema is None" in done.stderr) == (5, True), done.stderr
