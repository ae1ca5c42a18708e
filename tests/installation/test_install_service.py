"""`cdigen install-service` of an installed wheel writes its files into a folder (with --destdir)."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.abilities import cannot_run
from support.daemon.host import unshared
from support.installation.installing import LOCAL, done, make, snapshot
from support.installation.wheels import build, installed, system_python
from support.json_output import validator
from support.processes import captured

UNITS = "usr/lib/systemd/system"


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the command of an installed wheel. Tests share it, and write only below --destdir."""
    folder = tmp_path_factory.mktemp("wheel")
    return installed(build("wheel", folder), folder / "venv")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a host whose configuration sets this test's Python as `hook_python`."""
    root = tmp_path / "root"
    (root / "etc/cdigen").mkdir(parents=True)
    (root / "etc/cdigen/config.yaml").write_text(f"hook_python: {sys.executable}\n")
    return root


def ran(command: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return captured(
        [command, "install-service", *arguments], env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    )


def report(command: Path, *arguments: str | Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done(ran(command, "--json", *arguments)))
    validator("install-service").validate(document)
    return document


def below(root: Path) -> dict[str, tuple[int, int, int, int, str]]:
    return {path: row for path, row in snapshot(root).items() if "cdigen/config.yaml" not in path}


def test_the_command_installs_the_files_of_make_install_without_code(
    command: Path, root: Path, tmp_path: Path
) -> None:
    report(command, "--destdir", root)
    done(make("install", tmp_path / "other", *LOCAL))
    by_command, by_make = (
        {path for path in snapshot(top) if not path.startswith("etc")} for top in (root, tmp_path / "other")
    )
    code = {path for path in by_make if path.startswith(("usr/lib/cdigen", "usr/bin"))}
    assert by_make - code == by_command - {"usr/libexec/cdigen/installed"}
    for path in by_command - {"usr/libexec/cdigen/installed"}:
        one, another = root / path, tmp_path / "other" / path
        assert one.stat().st_mode == another.stat().st_mode, path
        if one.is_file() and one.suffix != ".pyc":
            assert one.read_text().replace(str(command), "/usr/bin/cdigen") == another.read_text(), path


def test_units_start_the_command_of_the_wheel(command: Path, root: Path) -> None:
    report(command, "--destdir", root)
    assert f"ExecStart={command} run --standby\n" in (root / UNITS / "cdigen.service").read_text()
    assert f"ExecReload={command} config check\n" in (root / UNITS / "cdigen-nri.service").read_text()


def test_a_second_run_changes_nothing(command: Path, root: Path) -> None:
    first = report(command, "--destdir", root)
    assert (first["changed"], {row["result"] for row in first["files"]}) == (True, {"written"})
    before = below(root)
    second = report(command, "--destdir", root)
    assert (second["changed"], {row["result"] for row in second["files"]}) == (False, {"unchanged"})
    assert below(root) == before
    assert "all files are up to date" in ran(command, "--destdir", root).stderr


def test_the_output_is_one_line_and_verbose_lists_the_files(command: Path, root: Path) -> None:
    (line,) = ran(command, "--destdir", root).stdout.splitlines()
    found = re.fullmatch(rf"{root}/usr: (\d+) files written \(--verbose lists them\)", line)
    assert found
    rows = ran(command, "--destdir", root, "--remove", "--verbose").stdout.splitlines()
    assert {row.partition(" ")[0] for row in rows} == {"removed"}
    assert len(rows) == int(found[1])


def test_changed_and_missing_files_are_restored_and_reported(command: Path, root: Path) -> None:
    report(command, "--destdir", root)
    (root / UNITS / "cdigen.service").write_text("[Service]\n")
    modules = (root / "usr/libexec/cdigen/lib").readlink()
    (root / "usr/libexec/cdigen" / modules / "cdigen/hook/main.py").unlink()
    document = report(command, "--destdir", root)
    results = {row["path"]: row["result"] for row in document["files"] if row["result"] != "unchanged"}
    assert document["changed"]
    assert results == {
        "/usr/lib/systemd/system/cdigen.service": "changed",
        f"/usr/libexec/cdigen/{modules}/cdigen/hook/main.py": "written",
    }


def test_a_removal_removes_all_files_and_a_second_removal_changes_nothing(command: Path, root: Path) -> None:
    (root / UNITS).mkdir(parents=True)
    (root / UNITS / "other.service").write_text("[Service]\n")
    before = snapshot(root)
    report(command, "--destdir", root)
    first = report(command, "--destdir", root, "--remove")
    assert (first["changed"], {row["result"] for row in first["files"]}) == (True, {"removed"})
    assert snapshot(root) == before
    second = report(command, "--destdir", root, "--remove")
    assert (second["changed"], second["files"]) == (False, [])


def test_only_the_owner_can_write_installed_files(command: Path, root: Path) -> None:
    report(command, "--destdir", root)
    for path in (root / "usr").rglob("*"):
        assert path.is_symlink() or not path.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


def test_the_files_of_another_installation_are_unchanged(command: Path, root: Path) -> None:
    done(make("install-hook", root, *LOCAL))
    before = snapshot(root)
    result = ran(command, "--destdir", root)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "belongs to another installation" in line
    assert snapshot(root) == before


def test_a_package_that_was_installed_later_is_neither_changed_nor_removed(command: Path, root: Path) -> None:
    report(command, "--destdir", root)
    (root / UNITS / "cdigen.service").write_text("[Service]\nExecStart=/usr/bin/cdigen run\n")
    before = snapshot(root)
    result = ran(command, "--destdir", root)
    assert result.returncode == 2
    assert "belongs to another installation, which starts /usr/bin/cdigen: keep one" in result.stderr
    removed = ran(command, "--destdir", root, "--remove")
    assert removed.returncode == 0
    assert "another installation, which starts" in removed.stderr
    record = "usr/libexec/cdigen/installed"
    assert snapshot(root) == {path: row for path, row in before.items() if path != record}


def test_make_install_does_not_change_an_installation_of_install_service(command: Path, root: Path) -> None:
    report(command, "--destdir", root)
    before = snapshot(root)
    result = make("install", root, *LOCAL)
    assert result.returncode != 0
    assert "cdigen install-service --remove" in result.stderr
    assert snapshot(root) == before


def test_an_interrupted_run_is_completed_by_the_next_run(command: Path, root: Path) -> None:
    report(command, "--destdir", root)
    wanted = below(root)
    record = root / "usr/libexec/cdigen/installed"
    # The record contains a line for each file before the file is written.
    record.write_text(
        "".join(line for line in record.read_text().splitlines(keepends=True) if UNITS not in line)
    )
    shutil.rmtree(root / UNITS)
    assert report(command, "--destdir", root)["changed"]
    assert below(root) == wanted


def test_with_another_prefix_the_units_are_in_etc_and_the_hook_below_the_prefix(
    command: Path, root: Path
) -> None:
    document = report(command, "--destdir", root, "--prefix", "/opt/cdigen/")
    assert document["prefix"] == "/opt/cdigen"
    assert (root / "etc/systemd/system/cdigen.service").exists()
    assert os.access(root / "opt/cdigen/libexec/cdigen/cdigen-hook", os.X_OK)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prefix", "usr"), "not absolute"),
        (("--prefix", "/usr/../etc"), "contains '.', '..'"),
        (("--prefix", "/usr/a b"), "characters that sed, units or shebangs do not support"),
    ],
)
def test_an_invalid_prefix_is_refused_before_any_change(
    command: Path, root: Path, arguments: tuple[str, ...], message: str
) -> None:
    before = snapshot(root)
    result = ran(command, "--destdir", root, *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert snapshot(root) == before


def test_a_python_that_cannot_run_the_hook_is_reported(command: Path, root: Path) -> None:
    (root / "etc/cdigen/config.yaml").write_text("hook_python: /bin/false\n")
    result = ran(command, "--destdir", root)
    assert result.returncode == 2
    assert "/bin/false, which runs the hook, is not Python 3.11" in result.stderr
    assert not (root / "usr").exists()


@pytest.mark.usefixtures("own_mounts")
def test_a_read_only_usr_is_reported_in_one_line_with_the_next_step(command: Path, root: Path) -> None:
    (root / "usr").mkdir()
    shell = (
        'mount --bind "$1/usr" "$1/usr" && mount -o remount,bind,ro "$1/usr" && '
        'exec "$2" install-service --destdir "$1"'
    )
    result = captured([*unshared("--mount"), "sh", "-c", shell, "sh", root, command])
    assert result.returncode == 5
    (line,) = result.stderr.splitlines()
    assert "usr is read-only: nothing was installed; cdigen install-service --prefix /usr/local" in line


@pytest.mark.needs_root
def test_a_cdigen_that_other_users_can_change_is_refused_for_services(command: Path) -> None:
    # The folder of tests is below /tmp, where every user may create files.
    result = ran(command)
    assert result.returncode == 2
    assert "PIPX_HOME=/opt/pipx" in result.stderr
    assert not Path("/usr/libexec/cdigen/installed").exists()


@pytest.fixture
def user_command() -> Iterator[Path]:
    """Return the command of a user's installed wheel, in a folder whose name needs quotes."""
    with tempfile.TemporaryDirectory(prefix="cdigen-") as top:
        folder = Path(top) / "my programs"
        folder.mkdir()
        command = installed(build("wheel", folder), folder / "venv", base=system_python())
        for path in (Path(top), folder):
            path.chmod(0o755)
        yield command


def run_as_user(
    command: Path, *arguments: str, path: str = os.environ["PATH"]
) -> subprocess.CompletedProcess[str]:
    """Run install-service of COMMAND on this host as an unprivileged user."""
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    environment = {"PATH": path, "LANG": "C.UTF-8"}
    # Another user may have no access to this test's Python.
    trial = captured([command, "--version"], env=environment, cwd="/", **user)
    if trial.returncode != 0:
        cannot_run(f"another user cannot start {command}: {trial.stderr.strip()}")
    return captured([command, "install-service", *arguments], env=environment, cwd="/", **user)


def test_a_user_gets_the_command_that_installs_the_wheel_for_the_whole_host(user_command: Path) -> None:
    (wheel,) = user_command.parents[2].glob("*.whl")
    own = user_command.parent / "pipx"
    # sudo does not search a user's folder.
    for path, pipx in (("/usr/bin:/bin", "pipx"), (f"{own.parent}:/usr/bin:/bin", f"'{own}'")):
        own.write_text("#!/bin/sh\n")
        own.chmod(0o755)
        result = run_as_user(user_command, path=path)
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        variables = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin"
        install = f"sudo env {variables} {pipx} install '{wheel}'"
        assert line.endswith(
            f"; install cdigen for the whole host: {install} && sudo /usr/local/bin/cdigen install-service"
        )


@pytest.mark.needs_root
def test_the_command_that_is_printed_for_a_removal_by_a_user_works(
    user_command: Path, tmp_path: Path
) -> None:
    result = run_as_user(user_command, "--remove", "--prefix", "/usr/no such folder")
    assert result.returncode == 5
    remedy = result.stderr.strip().partition("needs root; ")[2]
    assert remedy == f"sudo '{user_command}' install-service --remove --prefix '/usr/no such folder'"
    # sudo requests a password; root needs none.
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)
    done(captured(["sh", "-c", remedy], env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "LANG": "C.UTF-8"}))


@pytest.mark.needs_root
def test_the_command_is_refused_if_cdigen_runs_from_its_sources() -> None:
    result = captured([sys.executable, "-m", "cdigen", "install-service"])
    assert result.returncode == 2
    assert "runs from its sources" in result.stderr
