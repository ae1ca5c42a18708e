"""`make install` installs cdigen into a folder (with this Python's modules); `make uninstall` removes it."""

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
    """Return a folder in which cdigen was installed. Tests share this folder and do not change it."""
    root = tmp_path_factory.mktemp("installed")
    done(make("install", root, *LOCAL))
    return root


def test_the_command_imports_only_its_own_modules_and_ignores_the_environment(
    installed: Path, tmp_path: Path
) -> None:
    # The installed starter contains the final path of the code. The test's copy contains the present path.
    starter = tmp_path / "cdigen"
    text = (installed / "usr/bin/cdigen").read_text()
    starter.write_text(text.replace('"/usr/lib', f'"{installed}/usr/lib'))
    (tmp_path / "cdigen.py").write_text("raise SystemExit('the wrong one')")
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere"}
    command = [sys.executable, "-BI", str(starter), "--version"]
    message = subprocess.run(
        command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert message.stdout.startswith("cdigen ")
    first = (installed / "usr/bin/cdigen").read_text().splitlines()[0]
    assert first == f"#!{sys.executable} -BI"


def test_the_kubectl_plugin_imports_the_modules_of_the_command(installed: Path, tmp_path: Path) -> None:
    starter = tmp_path / "kubectl-inspect-gpushare"
    text = (installed / "usr/bin/kubectl-inspect-gpushare").read_text()
    starter.write_text(text.replace('"/usr/lib', f'"{installed}/usr/lib'))
    command = [sys.executable, "-BI", str(starter), "--version"]
    message = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert message.stdout.startswith("kubectl-inspect-gpushare ")
    assert (installed / "usr/bin/kubectl-inspect-gpushare").stat().st_mode & 0o777 == 0o755


def test_only_the_owner_can_write_installed_files(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL, umask=0o000))
    for path in tmp_path.rglob("*"):
        status = path.lstat()
        assert status.st_uid == os.geteuid(), path
        assert path.is_symlink() or not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


def test_all_users_can_read_installed_files_with_a_strict_umask(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL, umask=0o077))
    for path in tmp_path.rglob("*"):
        mode = path.stat().st_mode
        assert mode & stat.S_IROTH, path
        assert mode & stat.S_IXOTH or not path.is_dir(), path


def test_byte_code_is_checked_by_hash_and_not_by_time(installed: Path) -> None:
    compiled = list((installed / "usr/lib/cdigen").rglob("*.pyc"))
    sources = list((installed / "usr/lib/cdigen").rglob("*.py"))
    assert len(compiled) == len(sources)
    # Flags of PEP 552: byte code is checked by a hash of its source.
    assert {path.read_bytes()[4] & 1 for path in compiled} == {1}


def test_the_hook_is_at_the_default_path_of_the_installed_code(tmp_path: Path) -> None:
    done(make("install", tmp_path, "PREFIX=/usr/local", *LOCAL))
    code = "from cdigen.config import Settings; print(Settings().hook)"
    tree = tmp_path / "usr/local/lib/cdigen"
    message = succeeded(
        [sys.executable, "-BIc", f"import sys; sys.path.insert(0, {str(tree)!r}); {code}"], cwd=tmp_path
    ).strip()
    assert message == "/usr/local/libexec/cdigen/cdigen-hook"
    assert os.access(f"{tmp_path}{message}", os.X_OK)


def test_units_start_the_installed_programs(tmp_path: Path) -> None:
    done(make("install", tmp_path, "PREFIX=/usr/local", "INIT=systemd openrc", *LOCAL))
    units = tmp_path / "usr/local/lib/systemd/system"
    assert "ExecStart=/usr/local/bin/cdigen run --standby\n" in (units / "cdigen.service").read_text()
    assert "ExecStart=/usr/local/bin/cdigen generate " in (units / "cdigen-once.service").read_text()
    reader = (units / "cdigen-kernel-log@.service").read_text()
    assert "ExecStart=/usr/local/libexec/cdigen/cdigen-kernel-log\n" in reader
    assert (units / "cdigen-kernel-log.socket").exists()
    assert "ExecStart=/usr/local/bin/cdigen create-nodes\n" in (units / "cdigen-nodes.service").read_text()
    assert (units.parents[1] / "udev/rules.d/60-cdigen-nodes.rules").exists()
    assert "command=/usr/local/bin/cdigen\n" in (tmp_path / "etc/init.d/cdigen").read_text()


def test_the_reader_of_the_kernel_log_starts_from_the_folder_of_the_hook(installed: Path) -> None:
    program = installed / "usr/libexec/cdigen/cdigen-kernel-log"
    assert program.read_text().startswith(f"#!{sys.executable} -ISB\n")
    # Standard input is an empty log.
    command = [str(program), "--stdin"]
    done = subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, cwd="/")
    assert (done.stdout, done.stderr) == (b"", b"")


def test_the_configuration_of_the_host_is_unchanged(tmp_path: Path) -> None:
    config = tmp_path / "etc/cdigen/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("mode: auto\n")
    done(make("install", tmp_path, *LOCAL))
    assert config.read_text() == "mode: auto\n"
    done(make("uninstall", tmp_path, *LOCAL))
    assert config.read_text() == "mode: auto\n"


def test_uninstalling_removes_all_installed_files_and_no_others(tmp_path: Path) -> None:
    for folder in ("usr/lib/systemd/system", "usr/share/fish/vendor_completions.d", "usr/libexec"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/lib/systemd/system/other.service").write_text("[Service]\n")
    before = snapshot(tmp_path)
    done(make("install", tmp_path, *LOCAL))
    assert snapshot(tmp_path) != before
    done(make("uninstall", tmp_path, *LOCAL))
    assert snapshot(tmp_path) == before


def test_uninstalling_prints_the_specs_whose_hook_is_removed(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    spec = tmp_path / "run/cdi/nvidia.com-gpu.json"
    spec.parent.mkdir(parents=True)
    spec.write_text('{"args": ["/usr/libexec/cdigen/cdigen-hook"]}')
    assert str(spec) in done(make("uninstall", tmp_path, *LOCAL))
    assert spec.exists()


def test_a_second_installation_changes_nothing(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    once = snapshot(tmp_path)
    done(make("install", tmp_path, *LOCAL))
    assert snapshot(tmp_path) == once


@pytest.mark.parametrize(
    "path", ["usr/bin/cdigen", "usr/lib/systemd/system/cdigen.service", "usr/lib/cdigen"]
)
def test_a_file_of_another_program_is_not_replaced(tmp_path: Path, path: str) -> None:
    file = tmp_path / path if path != "usr/lib/cdigen" else tmp_path / path / "other"
    file.parent.mkdir(parents=True)
    file.write_text("#!/bin/sh\n# a wrapper of the administrator\n")
    before = snapshot(tmp_path)
    result = make("install", tmp_path, *LOCAL)
    assert result.returncode == 2
    refusal = f"/{path} does not belong to this installation, nothing was changed; move it away"
    assert result.stderr.splitlines()[0] == f"etc/install: {refusal}"
    assert snapshot(tmp_path) == before


def test_an_interrupted_installation_can_be_repeated(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    wanted = snapshot(tmp_path)
    for interrupted in ("usr/lib/cdigen/installed", "usr/share/man/man8/cdigen.8"):
        (tmp_path / interrupted).unlink()
    done(make("install", tmp_path, *LOCAL))
    assert {path for path in wanted if not path.endswith("installed")} <= set(snapshot(tmp_path))


def test_an_upgrade_removes_files_that_only_the_old_version_had(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    wanted = snapshot(tmp_path)
    record = tmp_path / "usr/lib/cdigen/installed"
    (tmp_path / "usr/lib/cdigen/cdigen/old.py").write_text("")
    (tmp_path / "usr/bin/cdigen-old").write_text("")
    record.write_text(record.read_text() + "f /usr/bin/cdigen-old\n")
    done(make("install", tmp_path, *LOCAL))
    assert snapshot(tmp_path) == wanted


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("PREFIX=usr", "not an absolute path"),
        ("PREFIX=/usr/a b", "'/usr/a b/lib'"),
        ("PREFIX=/usr/../etc", "'/usr/../etc/lib'"),
        ("INSTALL_DEPS=maybe", "not yes or no"),
        ("INIT=upstart", "supported: systemd, openrc"),
        ("HOST_PYTHON=/bin/false", "not Python 3.11"),
    ],
)
def test_an_invalid_setting_is_refused_before_any_change(tmp_path: Path, setting: str, message: str) -> None:
    result = make("install", tmp_path, *LOCAL, setting)
    assert result.returncode != 0
    assert message in result.stderr
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.needs_root
@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_make_without_destdir_is_refused_for_an_unprivileged_user_before_any_change(target: str) -> None:
    with tempfile.TemporaryDirectory(prefix="cdigen-") as folder:
        # The sources are copied, because they may be in a folder that only root can read.
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


def test_uninstalling_without_an_installation_is_an_error(tmp_path: Path) -> None:
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
    source_schemas, installed_schemas = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*.json")}
        for top in (REPOSITORY / "schemas", tree / "cdigen/schemas")
    )
    assert installed_schemas == source_schemas
    assert Path("output/list.schema.json") in installed_schemas


def test_install_files_installs_the_files_of_make_install_without_code(
    installed: Path, tmp_path: Path
) -> None:
    done(make("install-files", tmp_path, *LOCAL, "CODEDIR=/usr/lib/python3/dist-packages"))

    def files(root: Path) -> set[str]:
        return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}

    code = ("usr/lib/cdigen/", "usr/libexec/cdigen/lib.")
    assert files(tmp_path) == {path for path in files(installed) if not path.startswith(code)}
    starter = (tmp_path / "usr/bin/cdigen").read_text()
    assert starter.startswith(f"#!{sys.executable} -BIS\n")
    assert 'sys.path.insert(0, "/usr/lib/python3/dist-packages")' in starter
    # The package runs this command on the host.
    done(make("install-hook", tmp_path, *LOCAL))
    assert snapshot(tmp_path / "usr/libexec") == snapshot(installed / "usr/libexec")


def test_after_an_interruption_a_second_run_installs_the_hook(tmp_path: Path) -> None:
    done(make("install-hook", tmp_path, *LOCAL))
    before = snapshot(tmp_path)
    (tmp_path / "usr/libexec/cdigen/lib.link").symlink_to("lib.0")
    done(make("install-hook", tmp_path, *LOCAL))
    assert snapshot(tmp_path) == before


def test_a_failed_installation_leaves_the_old_installation_unchanged(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    before = snapshot(tmp_path)
    assert shutil.which("false") is not None
    result = make("install", tmp_path, *LOCAL[1:], "PIP=false")
    assert result.returncode != 0
    assert "INSTALL_DEPS=no leaves that to the distribution" in result.stderr
    assert snapshot(tmp_path) == before
