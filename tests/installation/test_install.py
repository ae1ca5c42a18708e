"""`make install` and `make uninstall` into a folder, with the modules that this Python has."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.installation.installing import LOCAL, done, make, snapshot
from support.paths import REPOSITORY
from support.processes import captured, succeeded


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which cdigen was installed. Shared: not to be changed."""
    root = tmp_path_factory.mktemp("installed")
    done(make("install", root, *LOCAL))
    return root


def test_the_command_starts_from_its_own_folder_and_heeds_no_environment(
    installed: Path, tmp_path: Path
) -> None:
    # The starter names the place where it will be: here a copy of it names the folder where that is now.
    starter = tmp_path / "cdigen"
    text = (installed / "usr/bin/cdigen").read_text()
    starter.write_text(text.replace('"/usr/lib', f'"{installed}/usr/lib'))
    (tmp_path / "cdigen.py").write_text("raise SystemExit('the wrong one')")
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere"}
    command = [sys.executable, "-BI", str(starter), "--version"]
    said = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert said.stdout.startswith("cdigen ")
    first = (installed / "usr/bin/cdigen").read_text().splitlines()[0]
    assert first == f"#!{sys.executable} -BI"


def test_kubectls_plugin_starts_from_the_same_folder(installed: Path, tmp_path: Path) -> None:
    starter = tmp_path / "kubectl-inspect-gpushare"
    text = (installed / "usr/bin/kubectl-inspect-gpushare").read_text()
    starter.write_text(text.replace('"/usr/lib', f'"{installed}/usr/lib'))
    command = [sys.executable, "-BI", str(starter), "--version"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert said.stdout.startswith("kubectl-inspect-gpushare ")
    assert (installed / "usr/bin/kubectl-inspect-gpushare").stat().st_mode & 0o777 == 0o755


def test_nobody_but_the_owner_can_change_what_was_installed(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL, umask=0o000))
    for path in tmp_path.rglob("*"):
        status = path.lstat()
        assert status.st_uid == os.geteuid(), path
        assert path.is_symlink() or not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


def test_everybody_can_read_what_was_installed_whatever_the_umask(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL, umask=0o077))
    for path in tmp_path.rglob("*"):
        mode = path.stat().st_mode
        assert mode & stat.S_IROTH, path
        assert mode & stat.S_IXOTH or not path.is_dir(), path


def test_no_time_stamp_decides_about_the_byte_code(installed: Path) -> None:
    compiled = list((installed / "usr/lib/cdigen").rglob("*.pyc"))
    sources = list((installed / "usr/lib/cdigen").rglob("*.py"))
    assert len(compiled) == len(sources)
    # Flags of PEP 552: by hash.
    assert {path.read_bytes()[4] & 1 for path in compiled} == {1}


def test_the_hook_is_where_the_installed_default_looks_for_it(tmp_path: Path) -> None:
    done(make("install", tmp_path, "PREFIX=/usr/local", *LOCAL))
    code = "from cdigen.config import Settings; print(Settings().hook)"
    tree = tmp_path / "usr/local/lib/cdigen"
    said = succeeded(
        [sys.executable, "-BIc", f"import sys; sys.path.insert(0, {str(tree)!r}); {code}"], cwd=tmp_path
    ).strip()
    assert said == "/usr/local/libexec/cdigen/cdigen-hook"
    assert os.access(f"{tmp_path}{said}", os.X_OK)


def test_units_start_what_was_installed(tmp_path: Path) -> None:
    done(make("install", tmp_path, "PREFIX=/usr/local", "INIT=systemd openrc", *LOCAL))
    units = tmp_path / "usr/local/lib/systemd/system"
    assert "ExecStart=/usr/local/bin/cdigen run --standby\n" in (units / "cdigen.service").read_text()
    assert "ExecStart=/usr/local/bin/cdigen generate " in (units / "cdigen-once.service").read_text()
    reader = (units / "cdigen-kernel-log@.service").read_text()
    assert "ExecStart=/usr/local/libexec/cdigen/cdigen-kernel-log\n" in reader
    assert (units / "cdigen-kernel-log.socket").exists()
    assert "command=/usr/local/bin/cdigen\n" in (tmp_path / "etc/init.d/cdigen").read_text()


def test_the_reader_of_the_kernels_log_starts_from_beside_the_hook(installed: Path) -> None:
    program = installed / "usr/libexec/cdigen/cdigen-kernel-log"
    assert program.read_text().startswith(f"#!{sys.executable} -ISB\n")
    # A log that has ended already.
    command = [str(program), "--given"]
    done = subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, cwd="/")
    assert (done.stdout, done.stderr) == (b"", b"")


def test_the_configuration_of_the_host_is_not_touched(tmp_path: Path) -> None:
    config = tmp_path / "etc/cdigen/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("mode: auto\n")
    done(make("install", tmp_path, *LOCAL))
    assert config.read_text() == "mode: auto\n"
    done(make("uninstall", tmp_path, *LOCAL))
    assert config.read_text() == "mode: auto\n"


def test_uninstalling_leaves_nothing_and_takes_nothing_else(tmp_path: Path) -> None:
    for folder in ("usr/lib/systemd/system", "usr/share/fish/vendor_completions.d", "usr/libexec"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/lib/systemd/system/other.service").write_text("[Service]\n")
    before = snapshot(tmp_path)
    done(make("install", tmp_path, *LOCAL))
    assert snapshot(tmp_path) != before
    done(make("uninstall", tmp_path, *LOCAL))
    assert snapshot(tmp_path) == before


def test_uninstalling_names_the_specs_whose_hook_is_gone(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    spec = tmp_path / "run/cdi/nvidia.com-gpu.json"
    spec.parent.mkdir(parents=True)
    spec.write_text('{"args": ["/usr/libexec/cdigen/cdigen-hook"]}')
    assert str(spec) in done(make("uninstall", tmp_path, *LOCAL))
    assert spec.exists()


def test_installing_twice_is_installing_once(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    once = snapshot(tmp_path)
    done(make("install", tmp_path, *LOCAL))
    assert snapshot(tmp_path) == once


def test_an_upgrade_removes_what_only_the_old_version_had(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    wanted = snapshot(tmp_path)
    record = tmp_path / "usr/lib/cdigen/installed"
    (tmp_path / "usr/lib/cdigen/cdigen/old.py").write_text("")
    (tmp_path / "usr/bin/cdigen-old").write_text("")
    record.write_text(record.read_text() + "f /usr/bin/cdigen-old\n")
    done(make("install", tmp_path, *LOCAL))
    assert snapshot(tmp_path) == wanted


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("PREFIX=usr", "no absolute path"),
        ("PREFIX=/usr/a b", "'/usr/a b/lib'"),
        ("PREFIX=/usr/../etc", "'/usr/../etc/lib'"),
        ("INSTALL_DEPS=maybe", "not yes or no"),
        ("INIT=upstart", "known are systemd and openrc"),
        ("HOST_PYTHON=/bin/false", "no Python 3.11"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_done(
    tmp_path: Path, setting: str, complaint: str
) -> None:
    result = make("install", tmp_path, *LOCAL, setting)
    assert result.returncode != 0
    assert complaint in result.stderr
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.needs_root
@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_without_root_it_is_for_a_package_or_refused_at_once(target: str) -> None:
    with tempfile.TemporaryDirectory(prefix="cdigen-") as folder:
        # The sources may lie where only root may look.
        tree = Path(folder)
        tree.chmod(0o755)
        shutil.copytree(REPOSITORY / "etc", tree / "etc")
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(REPOSITORY / name, tree / name)
        result = captured(
            ["make", "-s", target, "DESTDIR=", f"PREFIX={folder}/usr"],
            cwd=tree,
            user=65534,
            env={"PATH": os.environ["PATH"]},
        )
        assert result.returncode != 0
        assert (
            result.stderr.splitlines()[0] == "etc/install: this needs root, or DESTDIR=<folder> for a package"
        )
        assert not (tree / "usr").exists()


def test_uninstalling_what_was_not_installed_says_so(tmp_path: Path) -> None:
    result = make("uninstall", tmp_path)
    assert result.returncode != 0
    assert "nothing was installed with this PREFIX" in result.stderr


def test_every_file_of_the_package_is_installed(installed: Path) -> None:
    left_out = {".pyc", ".proto"}
    tree = installed / "usr/lib/cdigen"
    listed, there = (
        {
            path.relative_to(top)
            for path in (top / "cdigen").rglob("*")
            if path.is_file() and path.suffix not in left_out and "schemas" not in path.parts
        }
        for top in (REPOSITORY, tree)
    )
    assert there == listed
    ours, theirs = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*.json")}
        for top in (REPOSITORY / "schemas", tree / "cdigen/schemas")
    )
    assert theirs == ours
    assert Path("output/list.schema.json") in theirs


def test_a_package_gets_what_make_install_puts_but_code(installed: Path, tmp_path: Path) -> None:
    done(make("install-files", tmp_path, *LOCAL, "CODEDIR=/usr/lib/python3/dist-packages"))

    def files(root: Path) -> set[str]:
        return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}

    code = ("usr/lib/cdigen/", "usr/libexec/cdigen/lib.")
    assert files(tmp_path) == {path for path in files(installed) if not path.startswith(code)}
    starter = (tmp_path / "usr/bin/cdigen").read_text()
    assert starter.startswith(f"#!{sys.executable} -BIS\n")
    assert 'sys.path.insert(0, "/usr/lib/python3/dist-packages")' in starter
    # What the package runs on the host where it is installed.
    done(make("install-hook", tmp_path, *LOCAL))
    assert snapshot(tmp_path / "usr/libexec") == snapshot(installed / "usr/libexec")


def test_a_hook_whose_exchange_was_interrupted_is_installed_anew(tmp_path: Path) -> None:
    done(make("install-hook", tmp_path, *LOCAL))
    before = snapshot(tmp_path)
    # The folder that the link was exchanged with, and that was about to go.
    (tmp_path / "usr/libexec/cdigen/lib.link/cdigen").mkdir(parents=True)
    done(make("install-hook", tmp_path, *LOCAL))
    assert snapshot(tmp_path) == before


def test_a_failed_install_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    before = snapshot(tmp_path)
    assert shutil.which("false") is not None
    result = make("install", tmp_path, *LOCAL[1:], "PIP=false")
    assert result.returncode != 0
    assert "INSTALL_DEPS=no leaves that to the distribution" in result.stderr
    assert snapshot(tmp_path) == before
