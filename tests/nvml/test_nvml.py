"""NVML is asked from a child process; whatever happens there is a finding, and never more than that.

The library is the stand-in of standin.py, loaded by the real pynvml in the real child.
"""

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from standin import Gpu, Machine, gpu, install, instances, trusted_folder, uuid

from cdigen.model.findings import Finding
from cdigen.vendors.nvidia.nvml import Answer, NvmlError, NvmlGpu, NvmlMig, Report, ask

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 1.5


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with trusted_folder() as made:
        yield made


def asked(folder: Path, machine: Machine, *, deadline_s: float = 20.0) -> Answer:
    answer = ask(str(install(folder, machine)), deadline_s=deadline_s)
    assert all(finding.line().isprintable() for finding in answer.findings)
    return answer


def reported(folder: Path, *gpus: Gpu, faults: tuple[str, ...] = ()) -> Report:
    answer = asked(folder, Machine(gpus=gpus, faults=faults))
    assert answer.findings == ()
    assert answer.report is not None
    return answer.report


def refused(folder: Path, *faults: str, deadline_s: float = 20.0) -> Finding:
    """Return the one finding of a machine with two GPUs and these faults, which gives no report."""
    answer = asked(folder, Machine(gpus=(gpu(0), gpu(1)), faults=faults), deadline_s=deadline_s)
    assert answer.report is None
    (finding,) = answer.findings
    assert finding.severity == "warning"
    return finding


# ---- what is reported ----


def test_a_machine_is_reported_as_nvml_tells_it(folder: Path) -> None:
    migs = instances(5, "1g.10gb", "1c.3g.40gb")
    report = reported(folder, gpu(0), gpu(1, mig=True, minor=4, instances=migs))
    plain = NvmlGpu(
        index=0,
        address="0000:19:00.0",
        uuid=uuid(0),
        minor=0,
        name="NVIDIA H100 80GB HBM3",
        brand="NVIDIA",
        compute_capability=(9, 0),
        mig_mode=None,
        migs=(),
        error=None,
    )
    assert (report.driver_version, report.cuda_version) == ("550.163.01", 12040)
    assert report.gpus[0] == plain
    assert (report.gpus[1].minor, report.gpus[1].mig_mode) == (4, True)
    assert report.gpus[1].migs == (
        NvmlMig(
            index=0,
            uuid=uuid(5, "MIG"),
            gpu_instance=7,
            compute_instance=0,
            profile="1g.10gb",
            graphics=False,
        ),
        NvmlMig(
            index=1,
            uuid=uuid(6, "MIG"),
            gpu_instance=8,
            compute_instance=0,
            profile="1c.3g.40gb",
            graphics=False,
        ),
    )


def test_a_pci_domain_may_be_wider_than_sixteen_bits(folder: Path) -> None:
    addresses = ("00000000:65:00.0", "0000ABCD:0A:1F.0", "00012345:00:00.0")
    report = reported(folder, *(gpu(number, address=address) for number, address in enumerate(addresses)))
    assert [gpu.address for gpu in report.gpus] == ["0000:65:00.0", "abcd:0a:1f.0", "12345:00:00.0"]


def test_what_a_gpu_does_not_support_is_a_value(folder: Path) -> None:
    faults = ("nvmlDeviceGetBrand error 3", "nvmlDeviceGetCudaComputeCapability error 3")
    (only,) = reported(folder, gpu(0, minor=None, mig=None, faults=faults)).gpus
    assert (only.minor, only.mig_mode, only.brand, only.compute_capability) == (None, None, None, None)
    assert (only.name, only.error) == ("NVIDIA H100 80GB HBM3", None)


def test_a_cuda_version_that_is_not_to_be_had_costs_nothing_else(folder: Path) -> None:
    report = reported(folder, gpu(0), faults=("nvmlSystemGetCudaDriverVersion error 12",))
    assert report.cuda_version is None
    assert len(report.gpus) == 1


def test_a_machine_without_gpus_is_a_report_of_none(folder: Path) -> None:
    assert reported(folder).gpus == ()


def test_mig_devices_keep_their_numbers_where_others_are_missing(folder: Path) -> None:
    migs = instances(5, None, "1g.10gb", None, "2g.20gb")
    (only,) = reported(folder, gpu(0, mig=True, instances=migs)).gpus
    assert [(mig.index, mig.profile) for mig in only.migs] == [(1, "1g.10gb"), (3, "2g.20gb")]


def test_a_gpu_in_mig_mode_may_have_no_devices(folder: Path) -> None:
    (only,) = reported(folder, gpu(0, mig=True)).gpus
    assert (only.mig_mode, only.migs) == (True, ())


def test_a_gpu_with_mig_turned_off_says_so(folder: Path) -> None:
    (only,) = reported(folder, gpu(0, mig=False)).gpus
    assert (only.mig_mode, only.migs) == (False, ())


def test_graphics_is_told_by_the_profile(folder: Path) -> None:
    migs = instances(5, "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me")
    (only,) = reported(folder, gpu(0, mig=True, instances=migs)).gpus
    assert [(mig.profile, mig.graphics) for mig in only.migs] == [
        ("1g.24gb+gfx", True),
        ("1g.24gb+me.all", False),
        ("1g.24gb-me", False),
    ]


# Total memory: as nvidia-smi shows it. Profiles: NVIDIA MIG User Guide, "Supported MIG Profiles".
@pytest.mark.parametrize(
    ("memory_mib", "profiles"),
    [
        (40960, ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb", "1c.3g.20gb")),
        (81559, ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb")),
    ],
    ids=["A100 40 GB", "H100 80 GB"],
)
def test_a_profile_that_the_name_does_not_tell_comes_from_the_sizes(
    folder: Path, memory_mib: int, profiles: tuple[str, ...]
) -> None:
    migs = instances(5, *profiles)
    (only,) = reported(
        folder, gpu(0, memory=memory_mib << 20, mig=True, instances=migs, plain_names=True)
    ).gpus
    assert tuple(mig.profile for mig in only.migs) == profiles


def test_a_profile_that_nothing_tells_is_empty(folder: Path) -> None:
    faults = ("nvmlDeviceGetAttributes_v2 error 3",)
    machine = gpu(0, mig=True, instances=instances(5, "1g.10gb"), plain_names=True, faults=faults)
    (only,) = reported(folder, machine).gpus
    assert [(mig.profile, mig.graphics) for mig in only.migs] == [("", False)]


def test_nvml_is_started_once(folder: Path) -> None:
    reported(folder, gpu(0), gpu(1), faults=("* trace",))
    calls = (folder / "calls").read_text().split()
    assert calls.count("nvmlInitWithFlags") == 1


# ---- one GPU's failure ----


def test_a_lost_gpu_costs_the_others_nothing(folder: Path) -> None:
    lost = gpu(1, faults=("* error 15",))
    answer = asked(folder, Machine(gpus=(gpu(0), lost, gpu(2))))
    assert answer.report is not None
    assert [gpu.uuid for gpu in answer.report.gpus] == [uuid(0), None, uuid(2)]
    error = NvmlError(call="nvmlDeviceGetHandleByIndex", name="NVML_ERROR_GPU_IS_LOST", code=15)
    assert answer.report.gpus[1].error == error
    (finding,) = answer.findings
    assert (finding.severity, finding.rule, finding.path) == ("warning", "nvml-gpu-failed", "GPU 1")
    assert "NVML_ERROR_GPU_IS_LOST (15): the GPU has fallen off the bus" in finding.message
    assert "reboot" in finding.hint


def test_a_gpu_that_is_lost_on_the_way_keeps_what_it_has_told(folder: Path) -> None:
    answer = asked(folder, Machine(gpus=(gpu(0, faults=("nvmlDeviceGetName error 15",)), gpu(1))))
    assert answer.report is not None
    first, second = answer.report.gpus
    assert (first.address, first.uuid, first.minor, first.name) == ("0000:19:00.0", uuid(0), 0, None)
    assert first.error is not None
    assert second.error is None
    assert [finding.path for finding in answer.findings] == ["0000:19:00.0"]


def test_a_name_that_is_no_text_is_that_gpus_error(folder: Path) -> None:
    answer = asked(folder, Machine(gpus=(gpu(0, name="H100 \udcff"), gpu(1))))
    assert answer.report is not None
    assert [gpu.error is None for gpu in answer.report.gpus] == [False, True]


def test_a_failing_mig_device_costs_no_other_gpu_its_own(folder: Path) -> None:
    broken = gpu(
        0,
        mig=True,
        instances=instances(5, "1g.10gb"),
        faults=("nvmlDeviceGetComputeInstanceId error 999",),
    )
    sound = gpu(1, mig=True, instances=instances(9, "1g.10gb"))
    answer = asked(folder, Machine(gpus=(broken, sound)))
    assert answer.report is not None
    first, second = answer.report.gpus
    assert (first.migs, first.error and first.error.call) == ((), "nvmlDeviceGetComputeInstanceId")
    assert (len(second.migs), second.error) == (1, None)


# ---- NVML's own refusal ----


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (4, "NVML_ERROR_NO_PERMISSION (4): this process may not use", "run as root"),
        (9, "NVML_ERROR_DRIVER_NOT_LOADED (9): the NVIDIA kernel module is not loaded", "modprobe nvidia"),
        (18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH (18): the library and the loaded kernel module", "reboot"),
        (999, "NVML_ERROR_UNKNOWN (999): the driver gives no reason", "dmesg"),
        (77, "NVML_ERROR_77 (77)", ""),
    ],
)
def test_a_refusal_is_told_by_name_with_its_remedy(folder: Path, code: int, message: str, hint: str) -> None:
    finding = refused(folder, f"nvmlInitWithFlags error {code}")
    assert finding.rule == "nvml-failed"
    assert f"nvmlInitWithFlags gives {message}" in finding.message
    assert hint in finding.hint


def test_a_count_that_fails_is_a_refusal_too(folder: Path) -> None:
    assert (
        "nvmlDeviceGetCount gives NVML_ERROR_UNKNOWN"
        in refused(folder, "nvmlDeviceGetCount_v2 error 999").message
    )


# ---- a library that misbehaves ----


@pytest.mark.parametrize(
    "fault",
    [
        "nvmlInitWithFlags hang",
        "nvmlDeviceGetUUID flood 1",
        "nvmlDeviceGetUUID signal 19",
        "load hang",
    ],
)
def test_a_library_that_hangs_costs_the_deadline_and_no_more(folder: Path, fault: str) -> None:
    library = install(folder, Machine(gpus=(gpu(0),), faults=("load grandchild", fault)))
    started = time.monotonic()
    answer = ask(str(library), deadline_s=DEADLINE_S)
    took = time.monotonic() - started
    assert answer.report is None
    (finding,) = answer.findings
    assert finding.rule == "nvml-timeout"
    assert "did not answer within 1.5 s" in finding.message
    assert DEADLINE_S <= took <= DEADLINE_S * 1.1


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


def test_a_process_that_a_library_leaves_behind_costs_no_time(folder: Path) -> None:
    started = time.monotonic()
    report = reported(folder, gpu(0), faults=("nvmlInitWithFlags grandchild",))
    assert time.monotonic() - started < 5
    assert len(report.gpus) == 1


@pytest.mark.parametrize(
    ("script", "rule", "words"),
    [
        ("", "nvml-garbage", "no JSON"),
        ("print('rubbish')", "nvml-garbage", "no JSON"),
        ("""print('{"format": 1, "gpus": [{"index"')""", "nvml-garbage", "no JSON"),
        ("print('[' * 999999)", "nvml-garbage", "no JSON"),
        ("print('{}')", "nvml-garbage", "$.format is not 1"),
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
    text, fifo = folder / "text.so", folder / "fifo.so"
    text.write_text("no library\n")
    os.mkfifo(fifo)
    for path, words in (
        (str(folder), "is no regular file"),
        (str(folder / "missing.so"), "No such file or directory"),
        (str(text), "file too short"),
        (str(fifo), "is no regular file"),
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
    command = ["gcc", "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-x", "none", *options]
    subprocess.run(command, input=source, text=True, check=True)


def test_a_library_of_another_name_is_not_asked(folder: Path) -> None:
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
    assert f"{inner.resolve()} was loaded in the place of {outer}" in finding.message
    assert (folder / "inner/calls").read_text().split() == ["load"]


# ---- what surrounds the child ----


def test_the_environment_of_whoever_asks_does_not_reach_the_child(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise SystemExit('a stranger ran')\n")
    other = install(tmp_path, Machine(driver="1.2"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", str(other))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert reported(folder, gpu(0)).driver_version == "550.163.01"


def test_only_the_childs_own_file_imports_pynvml() -> None:
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
    assert importing == {"nvml_child.py"}


def modules(script: str) -> set[str]:
    """Return what a bare Python has imported after SCRIPT."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; {script}; print(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_importing_the_parents_side_costs_next_to_nothing() -> None:
    imported = modules(f"sys.path[:0] = {sys.path!r}; import cdigen.vendors.nvidia.nvml")
    heavy = {"pynvml", "ctypes", "json", "select", "subprocess", "signal", "resource", "threading"}
    assert not (imported - modules("pass")) & heavy
