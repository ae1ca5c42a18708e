"""Commands that run in the process of the test have the same results as separate processes."""

import gc
import os
import sys
import threading
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.in_process import run_on
from support.hosts.added_vendors import vendor

LINES: dict[str, tuple[str, ...]] = {
    "text": ("list",),
    "json": ("inspect", "--json"),
    "bytes": ("generate",),
    "warnings": ("doctor",),
    "failure": ("generate", "--strict", "--vendor", "amd"),
    "failure with json": ("generate", "--json", "--vendor", "amd"),
    "unknown option": ("generate", "--wirte"),
    "unprintable": ("generate", "--kind", "\udcff\x1b[1m"),
    "standard input": ("validate", "-", "--json"),
    "standard input by its path": ("validate", "/dev/stdin"),
}


@pytest.mark.parametrize("line", LINES)
def test_a_run_in_process_has_the_result_of_a_separate_process(
    cdigen: Run, cdigen_process: Run, host: Path, line: str
) -> None:
    command, *options = LINES[line]
    words = (command, *options, *(() if command == "validate" else ("--root", str(host))))
    spec = cdigen("generate", "--root", host).out.encode()
    here, there = (run(*words, stdin=spec) for run in (cdigen, cdigen_process))
    assert here == there
    assert here.out or here.err


def test_a_run_in_process_does_not_change_the_process(cdigen: Run, host: Path) -> None:
    def state() -> list[object]:
        files = [os.fstat(number).st_ino for number in range(3)]
        return [dict(os.environ), sys.argv, sys.stdin, sys.stdout, sys.stderr, files, gc.isenabled()]

    before = state()
    assert cdigen("generate", "--root", host, "--wirte", stdin=b"more", EXTRA="1").code == 2
    assert state() == before


def test_a_run_in_process_has_no_environment_variable_of_the_tests(
    monkeypatch: pytest.MonkeyPatch, cdigen: Run
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, cdigen("--help").out.splitlines())) > 40
    assert max(map(len, cdigen("--help", COLUMNS="40").out.splitlines()[:12])) <= 40


@pytest.mark.parametrize(
    ("words", "environment"), [(("run",), {}), (("help", "run"), {}), (("--version",), {"PYTHONPATH": "/"})]
)
def test_commands_that_need_a_process_are_rejected(
    cdigen: Run, words: tuple[str, ...], environment: dict[str, str]
) -> None:
    with pytest.raises(AssertionError, match="cdigen_process"):
        cdigen(*words, **environment)


def test_concurrent_runs_in_process_are_rejected(cdigen: Run) -> None:
    failures: list[str] = []

    def attempt() -> None:
        try:
            cdigen("--version")
        except AssertionError as error:
            failures.append(str(error))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert [failure.partition("\n")[0] for failure in failures] == ["parallel runs need cdigen_process"]


def test_a_run_that_changes_the_process_is_rejected(
    monkeypatch: pytest.MonkeyPatch, cdigen: Run, tmp_path: Path
) -> None:
    """The test uses a vendor from another package, because no command of cdigen changes the process."""
    vendor(tmp_path, "mover", "import os\nos.chdir('/')\nVENDOR = None\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AssertionError, match="the working directory"):
        cdigen("inspect", "--vendor", "mover", "--root", tmp_path)


def test_a_run_writes_to_the_file_descriptors_in_its_arguments() -> None:
    full = os.open("/dev/full", os.O_RDWR)
    try:
        assert run_on([full] * 3, ("--version",), {}) == 5
    finally:
        os.close(full)
