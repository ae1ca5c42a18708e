"""`cdigen install-service` neither overwrites nor removes files of other users, programs and packages.

The files, the script and the command are real. systemctl is a program of the test (service_machine.py).
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.installation.installing import LOCAL, done, make, snapshot
from support.installation.service_machine import ServiceMachine
from support.installation.wheels import build, installed, system_python
from support.processes import captured

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("real_nodes")]

OTHER_UID = 65534


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel; each ServiceMachine copies it."""
    folder = tmp_path_factory.mktemp("wheel")
    return installed(build("wheel", folder), folder / "venv", base=system_python()).parents[1]


@pytest.fixture
def machine(tmp_path: Path, venv: Path) -> Iterator[ServiceMachine]:
    found = ServiceMachine(tmp_path, venv)
    yield found
    shutil.rmtree(tmp_path / "host")


def units(machine: ServiceMachine) -> Path:
    return machine.folders["/etc"] / "systemd/system"


def files(machine: ServiceMachine) -> dict[str, tuple[int, int, int, int, str]]:
    """Return the files of MACHINE without the files of Python and mount(8)."""
    found = snapshot(machine.top / "host").items()
    return {path: row for path, row in found if not path.startswith(("opt/venv/", "run/mount"))}


def assert_refused(machine: ServiceMachine, *options: str, error: str) -> None:
    before, calls = files(machine), machine.calls
    result = machine.install_service(*options)
    assert result.returncode == 2, result.stderr
    assert error in result.stderr
    assert files(machine) == before
    assert machine.calls == calls


@pytest.mark.parametrize("name", [".", "usr", "usr/libexec/cdigen", "usr/share", "etc/cdigen/config.yaml"])
@pytest.mark.parametrize("options", [(), ("--remove",)])
def test_root_refuses_a_tree_that_another_user_can_change(
    venv: Path, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    tree = tmp_path / "tree"
    for folder in ("usr/libexec/cdigen", "usr/share", "etc/cdigen"):
        (tree / folder).mkdir(parents=True)
    (tree / "etc/cdigen/config.yaml").write_text("")
    os.chown(tree / name, OTHER_UID, OTHER_UID)
    before = snapshot(tree)
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    result = captured([venv / "bin/cdigen", "install-service", "--destdir", tree, *options], env=environment)
    assert result.returncode == 2
    assert f"belongs to uid {OTHER_UID}, not to root" in result.stderr
    assert snapshot(tree) == before


@pytest.mark.parametrize(
    "line",
    [
        "f /../victim/file",
        "t /../victim",
        "f /etc/passwd",
        "f /usr/share/link/file",
        "t /usr",
        "t /usr/share/link",
        "x /usr/share/file",
        "d /../victim/empty",
    ],
)
@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_a_record_with_a_path_that_cdigen_never_installs_is_rejected(
    tmp_path: Path, line: str, target: str
) -> None:
    tree = tmp_path / "tree"
    for folder in ("etc", "usr/share", "usr/lib/cdigen", "../victim/empty"):
        (tree / folder).mkdir(parents=True)
    (tree / "etc/passwd").touch()
    (tmp_path / "victim/file").touch()
    (tree / "usr/share/link").symlink_to(tmp_path / "victim")
    (tree / "usr/lib/cdigen/installed").write_text(f"t /usr/libexec/cdigen\n{line}\n")
    before = snapshot(tmp_path)
    result = make(target, tree, *LOCAL)
    assert result.returncode != 0
    assert "nothing was changed" in result.stderr
    assert snapshot(tmp_path) == before


def test_a_link_that_leads_out_of_destdir_is_refused(tmp_path: Path) -> None:
    for name in ("tree/usr", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tree/usr/share").symlink_to(tmp_path / "outside")
    result = make("install", tmp_path / "tree", *LOCAL)
    assert result.returncode != 0
    assert "by a symlink on its path" in result.stderr
    assert list((tmp_path / "outside").iterdir()) == []
    # Links within the tree are permitted.
    (tmp_path / "tree/usr/share").unlink()
    (tmp_path / "tree/data").mkdir()
    (tmp_path / "tree/usr/share").symlink_to("../data")
    done(make("install", tmp_path / "tree", *LOCAL))
    assert (tmp_path / "tree/data/man/man8").exists()


def test_a_prefix_that_another_user_can_change_is_refused(machine: ServiceMachine) -> None:
    folder = machine.folders["/opt"] / "theirs"
    folder.mkdir()
    os.chown(folder, OTHER_UID, OTHER_UID)
    assert_refused(machine, "--prefix", "/opt/theirs/cdigen", error=f"/opt/theirs belongs to uid {OTHER_UID}")


def test_folders_beside_the_prefix_are_not_removed(machine: ServiceMachine) -> None:
    precious = [Path(f"{machine.installed}.{name}/precious") for name in ("new", "cdigen-new")]
    for file in precious:
        file.parent.mkdir()
        file.write_text("data")
    assert_refused(machine, error="/opt/cdigen.cdigen-new does not belong to cdigen")
    shutil.rmtree(precious[1].parent)
    done(machine.install_service())
    done(machine.install_service("--remove"))
    assert precious[0].read_text() == "data"


@pytest.mark.parametrize("name", ["cdigen.service", "cdigen-nodes.service"])
def test_a_unit_of_the_administrator_is_not_overwritten(machine: ServiceMachine, name: str) -> None:
    (units(machine) / name).write_text("[Service]\nExecStart=/usr/bin/true\n")
    assert_refused(machine, error=f"/etc/systemd/system/{name} does not belong to this installation")


def test_masked_units_stay_masked_after_installation_and_removal(machine: ServiceMachine) -> None:
    mask = units(machine) / "cdigen-nodes.service"
    mask.symlink_to("/dev/null")
    result = machine.install_service()
    done(result)
    assert "/etc/systemd/system/cdigen-nodes.service stays: it is a link to /dev/null" in result.stderr
    # The administrator masks another unit.
    other = units(machine) / "cdigen-once.service"
    other.unlink()
    other.symlink_to("/dev/null")
    done(machine.install_service())
    done(machine.install_service("--remove"))
    assert [str(link.readlink()) for link in (mask, other)] == ["/dev/null"] * 2


def test_a_second_installation_with_another_prefix_is_refused(machine: ServiceMachine) -> None:
    done(machine.install_service())
    assert_refused(
        machine, "--prefix", "/opt/second", error="/opt/cdigen/libexec/cdigen belongs to another installation"
    )


def test_a_removal_does_not_stop_the_services_of_another_installation(machine: ServiceMachine) -> None:
    done(machine.install_service())
    # This unit belongs to a package of the distribution that was installed later.
    package = machine.folders["/etc"] / "systemd/system/cdigen-kernel-log@.service"
    text = package.read_text()
    package.unlink()
    other = machine.folders["/run"] / "systemd/system/cdigen-kernel-log@.service"
    other.write_text(text.replace("/opt/cdigen/", "/usr/"))
    machine.forget_calls()
    result = machine.install_service("--remove")
    done(result)
    assert "the installation of /usr/libexec/cdigen uses them" in result.stderr
    assert machine.calls == [
        "daemon-reload",
        "try-restart cdigen.service cdigen-nri.service cdigen-kubelet.service",
        "daemon-reload",
    ]
    assert machine.is_enabled_and_active
    assert not machine.installed.exists()


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make_entry", [dangling, os.mkfifo])
def test_an_installed_file_that_is_now_a_link_or_a_fifo_is_installed_again(
    machine: ServiceMachine, make_entry: Callable[[Path], None]
) -> None:
    done(machine.install_service())
    page = machine.installed / "share/man/man8/cdigen.8"
    page.unlink()
    make_entry(page)
    done(machine.install_service())
    assert page.is_file()
    page.unlink()
    make_entry(page)
    done(machine.install_service("--remove"))
    assert not machine.installed.exists()


def test_a_folder_in_place_of_an_installed_file_stays(machine: ServiceMachine) -> None:
    done(machine.install_service())
    page = machine.installed / "share/man/man8/cdigen.8"
    page.unlink()
    page.mkdir()
    (page / "own").write_text("mine")
    assert_refused(machine, error="/opt/cdigen/share/man/man8/cdigen.8 is a directory")
    result = machine.install_service("--remove")
    done(result)
    assert "/opt/cdigen/share/man/man8/cdigen.8 stays: it is a directory" in result.stderr
    assert (page / "own").read_text() == "mine"
    assert not (machine.installed / "libexec").exists()


@pytest.mark.parametrize("options", [(), ("--remove",)])
def test_a_folder_of_the_hook_that_is_a_symbolic_link_is_refused(
    machine: ServiceMachine, options: tuple[str, ...]
) -> None:
    done(machine.install_service())
    hooks = machine.installed / "libexec/cdigen"
    hooks.rename(machine.folders["/opt"] / "hooks")
    hooks.symlink_to("/opt/hooks")
    assert_refused(machine, *options, error="/opt/cdigen/libexec/cdigen is a symlink to /opt/hooks")


def test_a_mount_in_the_folder_of_the_hook_is_not_emptied(machine: ServiceMachine) -> None:
    done(machine.install_service())
    (machine.folders["/opt"] / "precious").mkdir()
    (machine.folders["/opt"] / "precious/file").touch()
    (machine.installed / "libexec/cdigen/m").mkdir()
    mount = f"mount --bind /opt/precious {machine.prefix}/libexec/cdigen/m"
    remove = f"/opt/venv/bin/python -m cdigen install-service --prefix {machine.prefix} --remove"
    result = machine.run("sh", "-c", f"{mount} && {remove}")
    assert result.returncode == 2
    assert f"{machine.prefix}/libexec/cdigen/m is a mount point" in result.stderr
    assert (machine.folders["/opt"] / "precious/file").exists()
