"""The imports of the hook, its isolation from the environment, and its installation."""

from __future__ import annotations

import marshal
import shutil
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from hook.conftest import REPOSITORY, install
from support.hook.container_root import LDCACHE, LINKS, PROFILE, VIEW, Case, lines_only

if TYPE_CHECKING:
    from pathlib import Path

# The modules that each start may import, in addition to those of a bare 'python3 -I -S'.
ALWAYS = {
    "__future__", "_json", "_stat", "cdigen", "cdigen.hook", "cdigen.hook.arguments",
    "cdigen.hook.container", "cdigen.hook.main", "cdigen.hook.state", "cdigen.value",
}  # fmt: skip
LOADER = {
    "_struct", "cdigen.binfmt", "cdigen.binfmt.ldcache", "cdigen.binfmt.ldcache_merge",
    "cdigen.hook.loader", "struct",
}  # fmt: skip
MERGED = ("libcuda.so.1", f"{VIEW}/libcuda.so.1")


def imported(case: Case, *steps: str) -> set[str]:
    """Return the modules that a start of the hook with STEPS imports."""
    code = """
import sys
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
from cdigen.hook.main import main
code = main(sys.argv[2:], 0)
print(*set(sys.modules) - before)
sys.exit(code)
"""
    command = [sys.executable, "-I", "-S", "-B", "-c", code, str(case.program.parent / "lib"), *steps]
    done = subprocess.run(command, input=case.state(), check=True, capture_output=True)
    assert done.stderr == b""
    return set(done.stdout.decode().split())


@pytest.mark.parametrize(
    ("steps", "modules"),
    [
        ((), set()),
        (LDCACHE, LOADER),
        (LINKS, set()),
        (PROFILE, {"cdigen.hook.application_profile", "cdigen.hook.image_paths"}),
        (("--disable-device-node-modification",), {"cdigen.hook.device_params", "cdigen.hook.image_paths"}),
        (
            ("--enable-cuda-compat", "550.1"),
            {
                *LOADER,
                "cdigen.binfmt.cuda_compat",
                "cdigen.binfmt.elf",
                "cdigen.hook.compat",
                "cdigen.hook.image_paths",
            },
        ),
    ],
    ids=["nothing", "ldcache", "links", "profile", "params", "compat"],
)
def test_a_step_imports_only_the_modules_that_it_needs(
    case: Case, steps: tuple[str, ...], modules: set[str]
) -> None:
    assert imported(case, *steps) <= ALWAYS | modules


@pytest.fixture
def evil(case: Case) -> Path:
    """Return a folder of the image whose modules create the host's file ``trace`` if they are imported."""
    folder = case.root / "evil"
    trace = f"open({str(case.host / 'trace')!r}, 'w').close()\n"
    for name in (
        "os",
        "posixpath",
        "struct",
        "sitecustomize",
        "usercustomize",
        "cdigen",
        "encodings/__init__",
    ):
        for parent in (case.root, folder):
            path = parent / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(trace)
    return folder


def test_no_code_from_the_environment_or_the_current_folder_is_run(case: Case, evil: Path) -> None:
    """The current folder is the image's root. Some runtimes pass the environment of the image to the hook."""
    names = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONPLATLIBDIR", "HOME", "PWD")
    env = {"PATH": str(evil), **dict.fromkeys(names, str(evil)), "PYTHONINSPECT": "1", "PYTHONVERBOSE": "1"}
    done = case.start(*LDCACHE, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert MERGED in case.entries()
    assert not (case.host / "trace").exists()


def test_no_byte_code_is_written_to_the_folder_of_the_hook(case: Case, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(case.program.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    case.program = copy / "cdigen-hook"
    assert case.start(*LDCACHE).stderr == ""
    assert MERGED in case.entries()
    assert not list(copy.rglob("__pycache__"))


@pytest.mark.parametrize("part", ["value.py", "hook/loader.py"])
def test_a_missing_module_is_reported_in_one_line_and_is_fatal_only_for_a_required_step(
    case: Case, tmp_path: Path, part: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(case.program.parent, copy)
    (copy / "lib/cdigen" / part).unlink()
    case.program = copy / "cdigen-hook"
    for steps, code in ((LDCACHE, 0), ((*LDCACHE, "--require", "update-ldcache"), 1)):
        done = case.start(*steps)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert "install cdigen's hook again" in done.stderr


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """Return a source tree whose hook has other modules than the current hook."""
    sources = tmp_path / "next"
    for name in ("etc", "cdigen/binfmt", "cdigen/hook", "cdigen/kernellog"):
        shutil.copytree(REPOSITORY / name, sources / name)
    for name in ("Makefile", "cdigen/__init__.py", "cdigen/value.py"):
        shutil.copy(REPOSITORY / name, sources / name)
    hook = sources / "cdigen/hook"
    (hook / "loader.py").rename(hook / "next_loader.py")
    main = hook / "main.py"
    main.write_text(main.read_text().replace("cdigen.hook.loader", "cdigen.hook.next_loader"))
    return sources


def test_a_hook_that_starts_during_an_upgrade_or_downgrade_does_not_fail(
    case: Case, tmp_path: Path, next_version: Path
) -> None:
    case.program = install(tmp_path / "to")
    done: list[subprocess.CompletedProcess[str]] = []
    ended = threading.Event()

    def start() -> None:
        while not ended.is_set():
            done.append(case.start(*LDCACHE, "--require", "update-ldcache"))

    starting = threading.Thread(target=start)
    starting.start()
    for _ in range(3):
        install(tmp_path / "to", sources=next_version)
        install(tmp_path / "to")
    ended.set()
    starting.join()
    assert len(done) > 10
    assert [(one.returncode, one.stderr) for one in done if one.returncode or one.stderr] == []
    # The previous version remains for running hooks. Older versions are removed.
    names = sorted(path.name for path in case.program.parent.iterdir())
    assert (names[:2], len(names)) == (["cdigen-hook", "lib"], 4)


def test_a_running_hook_keeps_its_modules_during_an_upgrade(tmp_path: Path, next_version: Path) -> None:
    folder = install(tmp_path / "to").parent
    began = (folder / "lib").resolve()
    install(tmp_path / "to", sources=next_version)
    assert (began / "cdigen/hook/loader.py").exists()
    assert (folder / "lib/cdigen/hook/next_loader.py").exists()
    install(tmp_path / "to", sources=next_version)
    left = {"cdigen-hook", "lib", (folder / "lib").readlink().name}
    assert {path.name for path in folder.iterdir()} == left


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o177])
def test_all_users_can_read_installed_files_and_only_root_can_write_them(tmp_path: Path, umask: int) -> None:
    program = install(tmp_path / "to", umask=umask)
    for path in (program.parent, *program.parent.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o755 if path.is_dir() or path == program else 0o644), path


def test_the_byte_code_is_checked_by_the_hash_of_its_source(program: Path) -> None:
    compiled = list((program.parent / "lib").rglob("*.pyc"))
    assert len(compiled) == len(list((program.parent / "lib").rglob("*.py")))
    for path in compiled:
        data = path.read_bytes()
        assert data[4:8] == (3).to_bytes(4, "little"), "PEP 552: hash-based, checked"
        assert marshal.loads(data[16:]).co_filename.startswith("/usr/libexec/cdigen/lib.")


def test_old_byte_code_is_not_used_for_changed_source(case: Case, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(case.program.parent, copy)
    main = copy / "lib/cdigen/hook/main.py"
    main.write_text(
        main.read_text().replace("def run()", "def run() -> None:\n    sys.exit(7)\n\n\ndef old()")
    )
    case.program = copy / "cdigen-hook"
    assert case.start(*LDCACHE).returncode == 7


def test_a_second_installation_removes_files_of_the_first_installation(tmp_path: Path) -> None:
    program = install(tmp_path)
    stale = program.parent / "lib/cdigen/hook/__pycache__/main.cpython-310.pyc"
    stale.write_bytes(b"old")
    install(tmp_path)
    assert not stale.exists()


def test_an_interpreter_without_installed_byte_code_compiles_the_source(case: Case, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(case.program.parent, copy)
    for path in copy.rglob("*.pyc"):
        path.rename(path.with_name(path.name.replace(sys.implementation.cache_tag or "", "cpython-399")))
    case.program = copy / "cdigen-hook"
    assert case.start(*LDCACHE).stderr == ""
    assert MERGED in case.entries()


def replace_links(case: Case, copy: Path, statement: str) -> None:
    """Copy the hook to the folder COPY for CASE; instead of creating a link, the copy executes STATEMENT."""
    shutil.copytree(case.program.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "lib/cdigen/hook/container.py").open("a") as module:
        module.write(f"\n\ndef make_link(*_):\n    {statement}\n")
    case.program = copy / "cdigen-hook"


def test_one_line_reports_a_defect_of_the_hook_and_the_other_steps_run(case: Case, tmp_path: Path) -> None:
    replace_links(case, tmp_path / "copy", "raise KeyError('first\\nsecond')")
    done = lines_only(case.start(*LINKS, *LDCACHE))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "this is an error of cdigen-hook, please report it" in done.stderr
    assert MERGED in case.entries()


def test_only_the_step_that_needs_a_missing_python_module_fails(case: Case, tmp_path: Path) -> None:
    """For example, disable-device-node-modification needs ctypes, which python3-minimal of Debian lacks."""
    replace_links(case, tmp_path / "copy", "import no_such_module")
    for required, code in (((), 0), (("--require", "create-symlinks"), 1)):
        done = lines_only(case.start(*LINKS, *LDCACHE, *required))
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert "No module named 'no_such_module'; this link is not created" in done.stderr
        assert MERGED in case.entries()
