"""If standard output cannot be written, the command prints one line on stderr and has exit code 5."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.command.fixtures import Done

DEVICE = '{"name": "0", "containerEdits": {"env": ["A=1"]}}'
SPEC = f'{{"cdiVersion": "0.5.0", "kind": "a.com/b", "devices": [{DEVICE}]}}'
FULL = "/dev/full"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Return a valid spec file in a host without other files."""
    if not os.path.exists(FULL):
        cannot_run("there is no /dev/full")
    path = tmp_path / "etc/cdi/a.json"
    path.parent.mkdir(parents=True)
    path.write_text(SPEC)
    return path


def printed_to(place: str, *arguments: str | Path, stderr: int = subprocess.PIPE) -> Done:
    with open(place, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "cdigen", *map(str, arguments)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=stderr,
            timeout=60,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        )
    return Done(code=done.returncode, out="", err=(done.stderr or b"").decode())


def root_of(spec: Path) -> Path:
    return spec.parents[2]


def is_one_line(done: Done) -> bool:
    lines = [line for line in done.err.splitlines() if "standard output" in line]
    return len(lines) == 1 and done.failed(5, "standard output", "No space left on device")


@pytest.mark.parametrize(
    "command",
    [
        "list --root {root}",
        "list --root {root} --json",
        f"validate{' {spec}' * 60}",
        f"validate{' {spec}' * 60} --json",
        "validate {broken}",
        "--help",
        "--version",
        "generate --help",
    ],
    ids=lambda command: re.sub(r"( {spec})+", " {spec}", command),
)
def test_output_that_cannot_be_written_has_exit_code_5_and_one_error_line(spec: Path, command: str) -> None:
    broken = spec.with_name("broken.txt")
    broken.write_text("{")
    words = command.format(root=root_of(spec), spec=spec, broken=broken).split()
    assert is_one_line(printed_to(FULL, *words))


def test_an_error_that_cannot_be_printed_as_json_keeps_its_exit_code(spec: Path) -> None:
    assert spec.exists()
    done = printed_to(FULL, "generate", "--json", "--nonsense")
    assert done.failed(2, "--nonsense")


def test_if_stderr_is_also_full_the_exit_code_is_5(spec: Path) -> None:
    done = printed_to(FULL, "list", "--json", "--root", root_of(spec), stderr=subprocess.STDOUT)
    assert done.code == 5


@pytest.mark.parametrize("place", [FULL, "a pipe without a reader"])
def test_a_full_stderr_does_not_stop_the_command(spec: Path, place: str) -> None:
    out = spec.with_name("out")
    with stderr_at(place) as stderr:
        done = printed_to(str(out), "list", "--root", root_of(spec), stderr=stderr)
    assert done.code == 0
    assert "a.com/b=0" in out.read_text()


@contextmanager
def stderr_at(place: str) -> Iterator[int]:
    """Open PLACE for writing, or a pipe whose reader has ended."""
    if place == FULL:
        writing = os.open(FULL, os.O_WRONLY)
    else:
        reading, writing = os.pipe()
        os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def test_a_standard_output_that_is_open_only_for_reading_has_exit_code_5(spec: Path) -> None:
    command = f"exec {sys.executable} -m cdigen list --root {root_of(spec)} 1</dev/null"
    done = subprocess.run(["sh", "-c", command], check=False, capture_output=True, timeout=60)
    assert (done.returncode, b"Traceback" in done.stderr) == (5, False)
    assert b"standard output cannot be written: Bad file descriptor" in done.stderr


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_pipe_without_a_reader_as_standard_output_does_not_change_the_exit_code(
    spec: Path, json: tuple[str, ...]
) -> None:
    spec.write_text("{")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "cdigen", "validate", str(spec), *json]
    try:
        done = subprocess.run(command, check=False, stdout=writing, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(writing)
    assert done.returncode == (0 if json else 1)
    assert b"Traceback" not in done.stderr
    assert b"standard output" not in done.stderr
