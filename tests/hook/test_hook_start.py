"""What the hook imports, what it ignores of its surroundings, and how it is installed."""

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

# Allowed besides what a bare 'python3 -I -S' has.
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
        (LINKS, {"cdigen.hook.symlinks"}),
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
def test_a_step_imports_what_it_needs_and_nothing_else(
    case: Case, steps: tuple[str, ...], modules: set[str]
) -> None:
    assert imported(case, *steps) <= ALWAYS | modules


@pytest.fixture
def evil(case: Case) -> Path:
    """Modules and a library in the image that would leave a trace in the host's folder."""
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


def test_nothing_of_the_environment_or_of_the_current_folder_is_run(case: Case, evil: Path) -> None:
    """The current folder is the image's root; a runtime that gives no environment gives the image's."""
    names = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONPLATLIBDIR", "HOME", "PWD")
    env = {"PATH": str(evil), **dict.fromkeys(names, str(evil)), "PYTHONINSPECT": "1", "PYTHONVERBOSE": "1"}
    done = case.start(*LDCACHE, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert MERGED in case.entries()
    assert not (case.host / "trace").exists()


def test_no_byte_code_is_written_where_the_hook_is_installed(case: Case, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(case.program.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    case.program = copy / "cdigen-hook"
    assert case.start(*LDCACHE).stderr == ""
    assert MERGED in case.entries()
    assert not list(copy.rglob("__pycache__"))


@pytest.mark.parametrize("part", ["value.py", "hook/loader.py"])
def test_a_hook_that_lacks_a_part_is_one_line_and_fails_only_where_a_step_is_required(
    case: Case, tmp_path: Path, part: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(case.program.parent, copy)
    (copy / "lib/cdigen" / part).unlink()
    case.program = copy / "cdigen-hook"
    for steps, code in ((LDCACHE, 0), ((*LDCACHE, "--require", "update-ldcache"), 1)):
        done = case.start(*steps)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert "install cdigen's hook anew" in done.stderr


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """Return sources whose hook has other modules than this one."""
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


def test_what_starts_while_the_hook_is_upgraded_to_and_fro_never_fails(
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
    # The one before stays for those that began with it; nothing older does.
    names = sorted(path.name for path in case.program.parent.iterdir())
    assert (names[:2], len(names)) == (["cdigen-hook", "lib"], 4)


def test_what_runs_while_the_hook_is_upgraded_goes_on_with_what_it_began_with(
    tmp_path: Path, next_version: Path
) -> None:
    folder = install(tmp_path / "to").parent
    began = (folder / "lib").resolve()
    install(tmp_path / "to", sources=next_version)
    assert (began / "cdigen/hook/loader.py").exists()
    assert (folder / "lib/cdigen/hook/next_loader.py").exists()
    install(tmp_path / "to", sources=next_version)
    left = {"cdigen-hook", "lib", (folder / "lib").readlink().name}
    assert {path.name for path in folder.iterdir()} == left


def test_a_folder_of_an_earlier_version_gives_way_to_the_link(tmp_path: Path) -> None:
    folder = install(tmp_path / "to").parent
    (folder / "lib").unlink()
    (folder / "lib/cdigen").mkdir(parents=True)
    install(tmp_path / "to")
    assert (folder / "lib").is_symlink()
    assert (folder / "lib/cdigen/hook/main.py").exists()


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o177])
def test_what_is_installed_can_be_read_by_all_and_changed_by_root_alone(tmp_path: Path, umask: int) -> None:
    program = install(tmp_path / "to", umask=umask)
    for path in (program.parent, *program.parent.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o755 if path.is_dir() or path == program else 0o644), path


def test_the_byte_code_counts_whatever_time_its_source_has(program: Path) -> None:
    compiled = list((program.parent / "lib").rglob("*.pyc"))
    assert len(compiled) == len(list((program.parent / "lib").rglob("*.py")))
    for path in compiled:
        data = path.read_bytes()
        assert data[4:8] == (3).to_bytes(4, "little"), "PEP 552: hash-based, checked"
        assert marshal.loads(data[16:]).co_filename.startswith("/usr/libexec/cdigen/lib.")


def test_old_byte_code_does_not_outlive_its_source(case: Case, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(case.program.parent, copy)
    main = copy / "lib/cdigen/hook/main.py"
    main.write_text(
        main.read_text().replace("def run()", "def run() -> None:\n    sys.exit(7)\n\n\ndef old()")
    )
    case.program = copy / "cdigen-hook"
    assert case.start(*LDCACHE).returncode == 7


def test_installing_again_leaves_nothing_of_before(tmp_path: Path) -> None:
    program = install(tmp_path)
    stale = program.parent / "lib/cdigen/hook/__pycache__/main.cpython-310.pyc"
    stale.write_bytes(b"old")
    install(tmp_path)
    assert not stale.exists()


def test_an_interpreter_without_byte_code_of_its_own_compiles_the_source(case: Case, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(case.program.parent, copy)
    for path in copy.rglob("*.pyc"):
        path.rename(path.with_name(path.name.replace(sys.implementation.cache_tag or "", "cpython-399")))
    case.program = copy / "cdigen-hook"
    assert case.start(*LDCACHE).stderr == ""
    assert MERGED in case.entries()


def replace_links(case: Case, copy: Path, statement: str) -> None:
    """Let CASE run a COPY of the hook that executes STATEMENT where it would make a link."""
    shutil.copytree(case.program.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "lib/cdigen/hook/symlinks.py").write_text(f"def make_link(*_):\n    {statement}\n")
    case.program = copy / "cdigen-hook"


def test_an_error_of_the_hooks_own_is_one_line_and_the_other_steps_run(case: Case, tmp_path: Path) -> None:
    replace_links(case, tmp_path / "copy", "raise KeyError('first\\nsecond')")
    done = lines_only(case.start(*LINKS, *LDCACHE))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "this is an error of cdigen-hook, please report it" in done.stderr
    assert MERGED in case.entries()


def test_a_step_that_needs_a_module_that_this_python_lacks_fails_alone(case: Case, tmp_path: Path) -> None:
    """As disable-device-node-modification without ctypes (Debian's python3-minimal)."""
    replace_links(case, tmp_path / "copy", "import no_such_module")
    for required, code in (((), 0), (("--require", "create-symlinks"), 1)):
        done = lines_only(case.start(*LINKS, *LDCACHE, *required))
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert "No module named 'no_such_module'; this link is not made" in done.stderr
        assert MERGED in case.entries()
