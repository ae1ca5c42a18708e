"""`cdigen install-service` of an installed wheel, into a folder that stands for the host."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.daemon.host import unshared
from support.installation.installing import LOCAL, done, make, snapshot
from support.installation.wheels import build, installed
from support.json_output import validator
from support.processes import captured

UNITS = "usr/lib/systemd/system"


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the command of an installed wheel. Shared: only files below --destdir are written."""
    folder = tmp_path_factory.mktemp("wheel")
    return installed(build("wheel", folder), folder / "venv")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host whose hook this machine's Python runs."""
    root = tmp_path / "root"
    (root / "etc/cdigen").mkdir(parents=True)
    (root / "etc/cdigen/config.yaml").write_text(f"hook_python: {sys.executable}\n")
    return root


def ran(command: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return captured(
        [command, "install-service", *arguments], env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    )


def told(command: Path, *arguments: str | Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done(ran(command, "--json", *arguments)))
    validator("install-service").validate(document)
    return document


def below(root: Path) -> dict[str, tuple[int, int, int, int, str]]:
    return {path: row for path, row in snapshot(root).items() if "cdigen/config.yaml" not in path}


def test_it_puts_there_what_make_install_does_but_for_the_code(
    command: Path, root: Path, tmp_path: Path
) -> None:
    told(command, "--destdir", root)
    done(make("install", tmp_path / "other", *LOCAL))
    ours, theirs = (
        {path for path in snapshot(top) if not path.startswith("etc")} for top in (root, tmp_path / "other")
    )
    code = {path for path in theirs if path.startswith(("usr/lib/cdigen", "usr/bin"))}
    assert theirs - code == ours - {"usr/libexec/cdigen/installed"}
    for path in ours - {"usr/libexec/cdigen/installed"}:
        one, another = root / path, tmp_path / "other" / path
        assert one.stat().st_mode == another.stat().st_mode, path
        if one.is_file() and one.suffix != ".pyc":
            assert one.read_text().replace(str(command), "/usr/bin/cdigen") == another.read_text(), path


def test_units_start_the_command_of_the_wheel(command: Path, root: Path) -> None:
    told(command, "--destdir", root)
    assert f"ExecStart={command} run --standby\n" in (root / UNITS / "cdigen.service").read_text()
    assert f"ExecReload={command} config check\n" in (root / UNITS / "cdigen-nri.service").read_text()


def test_the_second_time_nothing_is_changed(command: Path, root: Path) -> None:
    first = told(command, "--destdir", root)
    assert (first["changed"], {row["result"] for row in first["files"]}) == (True, {"written"})
    before = below(root)
    second = told(command, "--destdir", root)
    assert (second["changed"], {row["result"] for row in second["files"]}) == (False, {"unchanged"})
    assert below(root) == before
    assert "everything is as it should be" in ran(command, "--destdir", root).stderr


def test_what_was_changed_or_is_missing_is_mended_and_named(command: Path, root: Path) -> None:
    told(command, "--destdir", root)
    (root / UNITS / "cdigen.service").write_text("[Service]\n")
    modules = (root / "usr/libexec/cdigen/lib").readlink()
    (root / "usr/libexec/cdigen" / modules / "cdigen/hook/main.py").unlink()
    document = told(command, "--destdir", root)
    results = {row["path"]: row["result"] for row in document["files"] if row["result"] != "unchanged"}
    assert document["changed"]
    assert results == {
        "/usr/lib/systemd/system/cdigen.service": "changed",
        f"/usr/libexec/cdigen/{modules}/cdigen/hook/main.py": "written",
    }


def test_removing_leaves_nothing_and_the_second_time_has_nothing_to_do(command: Path, root: Path) -> None:
    (root / UNITS).mkdir(parents=True)
    (root / UNITS / "other.service").write_text("[Service]\n")
    before = snapshot(root)
    told(command, "--destdir", root)
    first = told(command, "--destdir", root, "--remove")
    assert (first["changed"], {row["result"] for row in first["files"]}) == (True, {"removed"})
    assert snapshot(root) == before
    second = told(command, "--destdir", root, "--remove")
    assert (second["changed"], second["files"]) == (False, [])


def test_nobody_but_the_owner_can_change_what_was_put_there(command: Path, root: Path) -> None:
    told(command, "--destdir", root)
    for path in (root / "usr").rglob("*"):
        assert path.is_symlink() or not path.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


def test_another_installation_is_left_alone(command: Path, root: Path) -> None:
    done(make("install-hook", root, *LOCAL))
    before = snapshot(root)
    result = ran(command, "--destdir", root)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "of another installation" in line
    assert snapshot(root) == before


def test_a_package_that_was_installed_over_it_is_neither_changed_nor_removed(
    command: Path, root: Path
) -> None:
    told(command, "--destdir", root)
    (root / UNITS / "cdigen.service").write_text("[Service]\nExecStart=/usr/bin/cdigen run\n")
    before = snapshot(root)
    result = ran(command, "--destdir", root)
    assert result.returncode == 2
    assert "is of another installation, which starts /usr/bin/cdigen: keep one" in result.stderr
    removed = ran(command, "--destdir", root, "--remove")
    assert removed.returncode == 0
    assert "are another installation's by now" in removed.stderr
    record = "usr/libexec/cdigen/installed"
    assert snapshot(root) == {path: row for path, row in before.items() if path != record}


def test_make_install_leaves_this_one_alone(command: Path, root: Path) -> None:
    told(command, "--destdir", root)
    before = snapshot(root)
    result = make("install", root, *LOCAL)
    assert result.returncode != 0
    assert "cdigen install-service --remove" in result.stderr
    assert snapshot(root) == before


def test_a_run_that_was_interrupted_is_finished_by_the_next_one(command: Path, root: Path) -> None:
    told(command, "--destdir", root)
    wanted = below(root)
    record = root / "usr/libexec/cdigen/installed"
    record.write_text(
        "".join(line for line in record.read_text().splitlines(keepends=True) if not line.startswith("f "))
    )
    (root / UNITS / "cdigen.service").unlink()
    assert told(command, "--destdir", root)["changed"]
    assert below(root) == wanted


def test_below_another_prefix_systemd_and_hook_are_still_found(command: Path, root: Path) -> None:
    document = told(command, "--destdir", root, "--prefix", "/opt/cdigen/")
    assert document["prefix"] == "/opt/cdigen"
    assert (root / "etc/systemd/system/cdigen.service").exists()
    assert os.access(root / "opt/cdigen/libexec/cdigen/cdigen-hook", os.X_OK)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--prefix", "usr"), "not absolute"),
        (("--prefix", "/usr/../etc"), "holds '.', '..'"),
        (("--prefix", "/usr/a b"), "what sed, units or shebangs take amiss"),
    ],
)
def test_a_prefix_that_cannot_be_is_refused_before_anything_is_done(
    command: Path, root: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    before = snapshot(root)
    result = ran(command, "--destdir", root, *arguments)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert snapshot(root) == before


def test_a_python_that_cannot_run_the_hook_is_named(command: Path, root: Path) -> None:
    (root / "etc/cdigen/config.yaml").write_text("hook_python: /bin/false\n")
    result = ran(command, "--destdir", root)
    assert result.returncode == 2
    assert "/bin/false, which would run the start-up hook, is no Python 3.11" in result.stderr
    assert not (root / "usr").exists()


@pytest.mark.usefixtures("own_mounts")
def test_a_read_only_usr_is_one_line_with_the_next_step(command: Path, root: Path) -> None:
    (root / "usr").mkdir()
    shell = (
        'mount --bind "$1/usr" "$1/usr" && mount -o remount,bind,ro "$1/usr" && '
        'exec "$2" install-service --destdir "$1"'
    )
    result = captured([*unshared("--mount"), "sh", "-c", shell, "sh", root, command])
    assert result.returncode == 5
    (line,) = result.stderr.splitlines()
    assert "usr is read-only, so nothing was installed; 'cdigen install-service --prefix /usr/local'" in line


@pytest.mark.needs_root
def test_a_cdigen_that_others_may_change_or_services_do_not_see_is_none_of_theirs(command: Path) -> None:
    # The folder of tests is below /tmp, where everybody may add.
    result = ran(command)
    assert result.returncode == 2
    assert "PIPX_HOME=/opt/pipx" in result.stderr
    assert not Path("/usr/libexec/cdigen/installed").exists()


@pytest.mark.needs_root
def test_the_sources_are_installed_by_make() -> None:
    result = captured([sys.executable, "-m", "cdigen", "install-service"])
    assert result.returncode == 2
    assert "runs from its sources" in result.stderr
