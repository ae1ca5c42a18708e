"""A library that hangs, crashes, prints text or can be changed by other users causes only a finding."""

import ast
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.abilities import module, tool
from support.nvml.report import failed_query, queried, reported
from support.nvml.standin import Machine, gpu, install, uuid
from support.waiting import limited

from cdigen.vendors.nvidia.nvml.query import MAX_STUCK, query

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 1.5


# ---- a library that misbehaves ----


@pytest.mark.parametrize(
    "fault",
    ["nvmlInitWithFlags hang", "nvmlDeviceGetUUID flood 1", "nvmlDeviceGetUUID signal 19", "load hang"],
)
# The limit has extra time for a busy machine. A second wait for the library would exceed the limit.
@limited(DEADLINE_S * 2)
def test_a_library_that_hangs_delays_the_query_only_until_the_deadline(
    folder: Path, fault: str, within_s: float
) -> None:
    library = install(folder, Machine(gpus=(gpu(0),), faults=("load grandchild", fault)))
    started = time.monotonic()
    answer = query(str(library), deadline_s=DEADLINE_S)
    took = time.monotonic() - started
    assert answer.report is None
    (finding,) = answer.findings
    assert finding.rule == "nvml-timeout"
    assert "did not answer within 1.5 s" in finding.message
    assert DEADLINE_S <= took < within_s


def test_the_query_waits_for_a_slow_library(folder: Path) -> None:
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
def test_a_crash_is_reported_with_its_signal(folder: Path, fault: str, name: str) -> None:
    finding = failed_query(folder, fault)
    assert finding.rule == "nvml-crashed"
    assert f"its child process was ended by {name}" in finding.message


@pytest.mark.parametrize("status", [0, 3])
def test_a_library_that_ends_the_process_is_a_finding(folder: Path, status: int) -> None:
    finding = failed_query(folder, f"nvmlDeviceGetUUID exit {status}")
    assert finding.rule == "nvml-invalid-output"
    assert "no valid document" in finding.message


def test_text_that_the_library_prints_does_not_damage_the_document_and_is_a_finding(folder: Path) -> None:
    answer = queried(folder, Machine(gpus=(gpu(0),), faults=("nvmlInitWithFlags rubbish",)))
    assert answer.report is not None
    assert len(answer.report.gpus) == 1
    (finding,) = answer.findings
    assert (finding.severity, finding.rule) == ("info", "nvml-invalid-output")
    assert """'NVML: {"rubbish": [1, 2'""" in finding.message


@pytest.mark.wall_clock
def test_a_process_that_the_library_starts_and_that_keeps_running_causes_no_delay(folder: Path) -> None:
    started = time.monotonic()
    report = reported(folder, gpu(0), faults=("nvmlInitWithFlags grandchild",))
    assert time.monotonic() - started < 10
    assert len(report.gpus) == 1


@pytest.mark.parametrize(
    ("script", "rule", "words"),
    [
        ("", "nvml-invalid-output", "not JSON"),
        ("print('rubbish')", "nvml-invalid-output", "not JSON"),
        ("""print('{"gpus": [{"index"')""", "nvml-invalid-output", "not JSON"),
        ("print('[' * 999999)", "nvml-invalid-output", "not JSON"),
        ("print('{}')", "nvml-invalid-output", "$.gpus is not present"),
        ("while True: print('rubbish' * 999)", "nvml-invalid-output", "more than 1 MiB"),
        (
            "import sys; sys.exit('it went wrong\\nNo \\x1b[31mluck')",
            "nvml-invalid-output",
            r"'No \\x1b[31mluck'",
        ),
        ("import os; os.kill(os.getpid(), 11)", "nvml-crashed", "SIGSEGV"),
    ],
)
def test_an_invalid_document_is_reported(folder: Path, script: str, rule: str, words: str) -> None:
    library = install(folder, Machine())
    answer = query(str(library), child=(sys.executable, "-I", "-c", script))
    assert answer.report is None
    (finding,) = answer.findings
    assert finding.rule == rule
    assert words in finding.message
    assert finding.line().isprintable()


def test_nvml_is_not_queried_while_too_many_queries_hang_in_the_kernel(folder: Path) -> None:
    let_go = threading.Event()
    command = (sys.executable, "-I", "-c")
    # cdigen starts such a thread for each child that SIGKILL does not end (tests/host has a real case).
    waiting = [
        threading.Thread(target=let_go.wait, args=(60,), name=f"waits for {' '.join(command)}", daemon=True)
        for _ in range(MAX_STUCK)
    ]
    for thread in waiting:
        thread.start()
    try:
        (finding,) = query(str(install(folder, Machine())), child=(*command, "print('started')")).findings
    finally:
        let_go.set()
        for thread in waiting:
            thread.join()
    assert (finding.rule, finding.message) == (
        "nvml-timeout",
        "NVML is not queried: 3 processes of earlier queries hang in the kernel",
    )


def test_a_child_that_cannot_be_started_is_a_finding(folder: Path) -> None:
    answer = query(str(install(folder, Machine())), child=("/nowhere/python",))
    assert [finding.rule for finding in answer.findings] == ["nvml-failed"]
    assert "No such file or directory" in answer.findings[0].message


# ---- libraries that are not loaded ----


def test_a_library_in_a_world_writable_folder_is_not_loaded(folder: Path) -> None:
    library = install(folder / "open", Machine(faults=("load trace",)))
    (folder / "open").chmod(0o777)
    answer = query(str(library))
    assert answer.report is None
    (finding,) = answer.findings
    assert (finding.severity, finding.rule) == ("warning", "nvml-untrusted")
    assert f"{folder / 'open'} is writable by everyone" in finding.message
    assert not (folder / "open/calls").exists()


def test_a_file_that_is_no_library_is_a_finding(folder: Path) -> None:
    module("pynvml", "nvidia-ml-py")
    text, fifo = folder / "text.so", folder / "fifo.so"
    text.write_text("no library\n")
    os.mkfifo(fifo)
    for path, words in (
        (str(folder), "is not a regular file"),
        (str(folder / "missing.so"), "No such file or directory"),
        (str(text), "file too short"),
        (str(fifo), "is not a regular file"),
        ("/nowhere/\0", "not a valid path"),
        ("/nowhere/\x1b\udcff", "No such file or directory"),
        ("libnvidia-ml.so.1", "cannot be loaded"),
    ):
        answer = query(path)
        (finding,) = answer.findings
        assert (answer.report, finding.severity, finding.rule) == (None, "warning", "nvml-failed"), path
        assert words in finding.message
        assert finding.line().isprintable()


def compile_library(path: Path, source: str, *options: str) -> None:
    command = [tool("gcc"), "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-x", "none", *options]
    subprocess.run(command, input=source, text=True, check=True)


def test_a_library_with_another_soname_is_not_queried(folder: Path) -> None:
    module("pynvml", "nvidia-ml-py")
    other = folder / "libother.so"
    compile_library(other, "int nvmlInitWithFlags(unsigned flags) { return 0; }", "-Wl,-soname,libother.so")
    (finding,) = query(str(other)).findings
    assert finding.rule == "nvml-failed"
    assert "its SONAME is not libnvidia-ml.so.1" in finding.message


def test_a_library_that_loads_another_libnvidia_ml_is_not_queried(folder: Path) -> None:
    inner = install(folder / "inner", Machine(gpus=(gpu(0),), faults=("* trace",)))
    outer = folder / "libouter.so"
    needed = ("-Wl,--no-as-needed", str(inner), f"-Wl,-rpath,{inner.parent}", "-Wl,-soname,libouter.so")
    compile_library(outer, "int outer;", *needed)
    (finding,) = query(str(outer)).findings
    assert finding.rule == "nvml-untrusted"
    assert f"another libnvidia-ml.so.1 was loaded in the place of {outer}" in finding.message
    assert (folder / "inner/calls").read_text().split() == ["load"]


# ---- the environment of the child ----


def test_the_environment_of_the_parent_does_not_reach_the_child(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise SystemExit('the wrong pynvml was imported')\n")
    other = install(tmp_path, Machine(driver="1.2", gpus=(gpu(7),)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", str(other))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert [each.uuid for each in reported(folder, gpu(0)).gpus] == [uuid(0)]


def test_only_the_childs_program_imports_pynvml() -> None:
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
    """Return the names of the modules that a Python without site-packages has imported after SCRIPT."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; {script}; print(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_the_query_module_imports_no_large_module() -> None:
    imported = modules(f"sys.path[:0] = {sys.path!r}; import cdigen.vendors.nvidia.nvml.query")
    heavy = {"pynvml", "ctypes", "json", "select", "subprocess", "signal", "resource", "threading"}
    assert not (imported - modules("pass")) & heavy
