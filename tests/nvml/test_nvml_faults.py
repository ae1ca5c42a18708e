"""The library may hang, crash, print or be a stranger's: a finding, and never more than that."""

import ast
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.abilities import module, tool
from support.nvml.report import asked, refused, reported
from support.nvml.standin import Machine, gpu, install, uuid
from support.waiting import limited

from cdigen.vendors.nvidia.nvml.ask import MAX_STUCK, ask

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 1.5


# ---- a library that misbehaves ----


@pytest.mark.parametrize(
    "fault",
    ["nvmlInitWithFlags hang", "nvmlDeviceGetUUID flood 1", "nvmlDeviceGetUUID signal 19", "load hang"],
)
# A busy machine gets some time to end it; whatever else is waited for would cost the deadline again.
@limited(DEADLINE_S * 2)
def test_a_library_that_hangs_costs_the_deadline_and_no_more(
    folder: Path, fault: str, within_s: float
) -> None:
    library = install(folder, Machine(gpus=(gpu(0),), faults=("load grandchild", fault)))
    started = time.monotonic()
    answer = ask(str(library), deadline_s=DEADLINE_S)
    took = time.monotonic() - started
    assert answer.report is None
    (finding,) = answer.findings
    assert finding.rule == "nvml-timeout"
    assert "did not answer within 1.5 s" in finding.message
    assert DEADLINE_S <= took < within_s


def test_a_slow_library_is_waited_for(folder: Path) -> None:
    started = time.monotonic()
    report = reported(folder, gpu(0), faults=("nvmlInitWithFlags slow 0.7",))
    assert time.monotonic() - started >= 0.7
    assert len(report.gpus) == 1


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("load crash", "SIGSEGV"),
        ("nvmlInitWithFlags crash", "SIGSEGV"),
        ("nvmlDeviceGetUUID crash", "SIGSEGV"),
        ("nvmlInitWithFlags signal 6", "SIGABRT"),
        ("nvmlInitWithFlags signal 9", "SIGKILL"),
        ("nvmlInitWithFlags signal 40", "signal 40"),
    ],
)
def test_a_crash_is_told_by_its_signal(folder: Path, fault: str, name: str) -> None:
    finding = refused(folder, fault)
    assert finding.rule == "nvml-crashed"
    assert f"its process was ended by {name}" in finding.message


@pytest.mark.parametrize("status", [0, 3])
def test_a_library_that_ends_the_process_gives_no_answer(folder: Path, status: int) -> None:
    finding = refused(folder, f"nvmlDeviceGetUUID exit {status}")
    assert finding.rule == "nvml-garbage"
    assert "no proper answer" in finding.message


def test_what_a_library_prints_does_not_get_into_the_answer(folder: Path) -> None:
    answer = asked(folder, Machine(gpus=(gpu(0),), faults=("nvmlInitWithFlags rubbish",)))
    assert answer.report is not None
    assert len(answer.report.gpus) == 1
    (finding,) = answer.findings
    assert (finding.severity, finding.rule) == ("info", "nvml-garbage")
    assert """'NVML: {"rubbish": [1, 2'""" in finding.message


@pytest.mark.wall_clock
def test_a_process_that_a_library_leaves_behind_costs_no_time(folder: Path) -> None:
    started = time.monotonic()
    report = reported(folder, gpu(0), faults=("nvmlInitWithFlags grandchild",))
    assert time.monotonic() - started < 10
    assert len(report.gpus) == 1


@pytest.mark.parametrize(
    ("script", "rule", "words"),
    [
        ("", "nvml-garbage", "not JSON"),
        ("print('rubbish')", "nvml-garbage", "not JSON"),
        ("""print('{"gpus": [{"index"')""", "nvml-garbage", "not JSON"),
        ("print('[' * 999999)", "nvml-garbage", "not JSON"),
        ("print('{}')", "nvml-garbage", "$.gpus is not there"),
        ("while True: print('rubbish' * 999)", "nvml-garbage", "more than 1 MiB"),
        ("import sys; sys.exit('it went wrong\\nNo \\x1b[31mluck')", "nvml-garbage", r"'No \\x1b[31mluck'"),
        ("import os; os.kill(os.getpid(), 11)", "nvml-crashed", "SIGSEGV"),
    ],
)
def test_what_is_no_answer_is_told_as_such(folder: Path, script: str, rule: str, words: str) -> None:
    library = install(folder, Machine())
    answer = ask(str(library), child=(sys.executable, "-I", "-c", script))
    assert answer.report is None
    (finding,) = answer.findings
    assert finding.rule == rule
    assert words in finding.message
    assert finding.line().isprintable()


def test_nvml_is_not_asked_while_too_many_that_asked_it_hang_in_the_kernel(folder: Path) -> None:
    let_go = threading.Event()
    command = (sys.executable, "-I", "-c")
    # What waits for a child that SIGKILL does not end (tests/host makes real ones).
    waiting = [
        threading.Thread(target=let_go.wait, args=(60,), name=f"waits for {' '.join(command)}", daemon=True)
        for _ in range(MAX_STUCK)
    ]
    for thread in waiting:
        thread.start()
    try:
        (finding,) = ask(str(install(folder, Machine())), child=(*command, "print('asked')")).findings
    finally:
        let_go.set()
        for thread in waiting:
            thread.join()
    assert (finding.rule, finding.message) == (
        "nvml-timeout",
        "NVML is not asked: 3 processes that asked it hang in the kernel",
    )


def test_a_child_that_cannot_be_started_is_a_finding(folder: Path) -> None:
    answer = ask(str(install(folder, Machine())), child=("/nowhere/python",))
    assert [finding.rule for finding in answer.findings] == ["nvml-failed"]
    assert "No such file or directory" in answer.findings[0].message


# ---- what is not loaded ----


def test_a_library_that_others_may_write_is_not_loaded(folder: Path) -> None:
    library = install(folder / "open", Machine(faults=("load trace",)))
    (folder / "open").chmod(0o777)
    answer = ask(str(library))
    assert answer.report is None
    (finding,) = answer.findings
    assert (finding.severity, finding.rule) == ("warning", "nvml-untrusted")
    assert f"{folder / 'open'} is writable by everyone" in finding.message
    assert not (folder / "open/calls").exists()


def test_what_is_no_library_is_a_finding(folder: Path) -> None:
    module("pynvml", "nvidia-ml-py")
    text, fifo = folder / "text.so", folder / "fifo.so"
    text.write_text("no library\n")
    os.mkfifo(fifo)
    for path, words in (
        (str(folder), "is not a regular file"),
        (str(folder / "missing.so"), "No such file or directory"),
        (str(text), "file too short"),
        (str(fifo), "is not a regular file"),
        ("/nowhere/\0", "no path"),
        ("/nowhere/\x1b\udcff", "No such file or directory"),
        ("libnvidia-ml.so.1", "cannot be loaded"),
    ):
        answer = ask(path)
        (finding,) = answer.findings
        assert (answer.report, finding.severity, finding.rule) == (None, "warning", "nvml-failed"), path
        assert words in finding.message
        assert finding.line().isprintable()


def compile_library(path: Path, source: str, *options: str) -> None:
    command = [tool("gcc"), "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-x", "none", *options]
    subprocess.run(command, input=source, text=True, check=True)


def test_a_library_of_another_name_is_not_asked(folder: Path) -> None:
    module("pynvml", "nvidia-ml-py")
    other = folder / "libother.so"
    compile_library(other, "int nvmlInitWithFlags(unsigned flags) { return 0; }", "-Wl,-soname,libother.so")
    (finding,) = ask(str(other)).findings
    assert finding.rule == "nvml-failed"
    assert "its SONAME is not libnvidia-ml.so.1" in finding.message


def test_a_library_that_has_another_loaded_in_its_place_is_not_asked(folder: Path) -> None:
    inner = install(folder / "inner", Machine(gpus=(gpu(0),), faults=("* trace",)))
    outer = folder / "libouter.so"
    needed = ("-Wl,--no-as-needed", str(inner), f"-Wl,-rpath,{inner.parent}", "-Wl,-soname,libouter.so")
    compile_library(outer, "int outer;", *needed)
    (finding,) = ask(str(outer)).findings
    assert finding.rule == "nvml-untrusted"
    assert f"another libnvidia-ml.so.1 was loaded in the place of {outer}" in finding.message
    assert (folder / "inner/calls").read_text().split() == ["load"]


# ---- what surrounds the child ----


def test_the_environment_of_whoever_asks_does_not_reach_the_child(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise SystemExit('a stranger ran')\n")
    other = install(tmp_path, Machine(driver="1.2", gpus=(gpu(7),)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", str(other))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert [told.uuid for told in reported(folder, gpu(0)).gpus] == [uuid(0)]


def test_only_the_childs_own_program_imports_pynvml() -> None:
    importing = set()
    for path in (REPOSITORY / "cdigen").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            if any(name.partition(".")[0] == "pynvml" for name in names):
                importing.add(path.name)
    assert importing == {"program.py"}


def modules(script: str) -> set[str]:
    """Return what a bare Python has imported after SCRIPT."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; {script}; print(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_importing_the_parents_side_costs_next_to_nothing() -> None:
    imported = modules(f"sys.path[:0] = {sys.path!r}; import cdigen.vendors.nvidia.nvml.ask")
    heavy = {"pynvml", "ctypes", "json", "select", "subprocess", "signal", "resource", "threading"}
    assert not (imported - modules("pass")) & heavy
