"""`make uninstall` on the host itself stops the service before it removes files, and lists remaining specs.

The service managers are programs of the test, first in PATH. /etc, /run and /var/lib are folders of the test
in a mount namespace, so this machine is not changed.
"""

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.abilities import tool
from support.daemon.host import unshared
from support.installation.installing import LOCAL, done, make, publish_script, snapshot
from support.paths import REPOSITORY
from support.processes import captured

UNITS = (
    "cdigen-kubelet.service cdigen-nri.service cdigen.service cdigen-once.service cdigen-nodes.service "
    "cdigen-kernel-log.socket"
)
MANAGERS = ("rc-service", "rc-update", "systemctl")


class Machine:
    """A host in a folder, with its own /etc, /run and /var/lib. Its service managers record their calls."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.etc, self.run, self.lib, self.programs, self.log = (
            top / name for name in ("etc", "run", "lib", "programs", "message")
        )
        self.settings = (*LOCAL, "DESTDIR=", f"PREFIX={top}/usr", f"SYSCONFDIR={top}/sysconf")
        self.hook = f"{top}/usr/libexec/cdigen/cdigen-hook"

    def prepare(self) -> None:
        shutil.copytree("/etc", self.etc, symlinks=True)
        for folder in (self.etc / "cdigen", self.etc / "cdi", self.run / "cdi", self.lib, self.programs):
            folder.mkdir(parents=True, exist_ok=True)
        for name in MANAGERS:
            self.manager(name, "exit 0")

    def manager(self, name: str, code: str) -> None:
        """Add a service manager, which records its arguments and whether cdigen still exists."""
        there = f"$([ -e {self.top}/usr/bin/cdigen ] && echo there || echo gone)"
        program = self.programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*: cdigen is {there}" >>{self.log}\n{code}\n')
        program.chmod(0o755)

    def make(self, target: str, *settings: str) -> subprocess.CompletedProcess[str]:
        return self.execute("make", "-s", target, f"PYTHON={sys.executable}", *self.settings, *settings)

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run COMMAND on the host."""
        binds = {self.etc: "/etc", self.run: "/run", self.lib: "/var/lib"}
        mounts = "".join(f"mount --bind {source} {target} && " for source, target in binds.items())
        return captured(
            [*unshared("--mount"), "sh", "-c", mounts + shlex.join(command)],
            cwd=REPOSITORY,
            env={
                "PATH": f"{self.programs}:{os.environ['PATH']}",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )

    def publish(self, directory: str, kind: str, program: str) -> None:
        """Write a spec of KIND whose hook is PROGRAM, as cdigen does."""
        done(self.execute(sys.executable, "-c", publish_script(directory, kind, program)))

    def install_deb(self, *files: str) -> None:
        """Install a Debian package with FILES below `usr`, by dpkg."""
        for folder in ("info", "updates"):
            (self.lib / "dpkg" / folder).mkdir(parents=True, exist_ok=True)
        (self.lib / "dpkg/status").touch()
        tree = self._package_tree(files)
        control = tree / "DEBIAN/control"
        control.parent.mkdir()
        control.write_text(
            "Package: a-package\nVersion: 1\nArchitecture: all\n"
            "Maintainer: a <a@example.com>\nDescription: a\n"
        )
        done(captured([tool("dpkg-deb"), "--build", tree, self.top / "a.deb"]))
        done(self.execute("dpkg", "--install", f"{self.top}/a.deb"))

    def install_rpm(self, *files: str) -> None:
        """Install an RPM with FILES below `usr`, by rpm."""
        tree = self._package_tree(files)
        spec = self.top / "a.spec"
        listed = "\n".join(f"{self.top}/usr/{file}" for file in files)
        spec.write_text(
            "Name: a-package\nVersion: 1\nRelease: 1\nSummary: a\nLicense: MIT\nBuildArch: noarch\n"
            f"%description\na\n%install\ncp -a {tree}/. %{{buildroot}}\n%files\n{listed}\n"
        )
        done(captured([tool("rpmbuild", "rpm"), "-bb", "--define", f"_topdir {self.top}/rpm", str(spec)]))
        (built,) = (self.top / "rpm/RPMS").rglob("*.rpm")
        (self.lib / "rpm").mkdir()
        done(self.execute("rpm", "--install", "--nodeps", "--force-debian", str(built)))

    def _package_tree(self, files: tuple[str, ...]) -> Path:
        tree = self.top / "tree"
        for file in files:
            path = tree / f"{self.top}/usr/{file}".lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("the package's\n")
        return tree

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    tool("make")
    unshared("--mount")
    found = Machine(tmp_path)
    found.prepare()
    yield found
    shutil.rmtree(found.etc)


@pytest.mark.usefixtures("real_nodes")
def test_openrc_stops_and_deletes_the_service_before_its_files_are_removed(machine: Machine) -> None:
    done(machine.make("install", "INIT=openrc"))
    done(machine.make("uninstall"))
    assert machine.calls() == [
        "rc-service cdigen stop: cdigen is there",
        "rc-update --all delete cdigen: cdigen is there",
    ]
    assert not (machine.top / "sysconf/init.d/cdigen").exists()


@pytest.mark.usefixtures("real_nodes")
def test_a_service_that_does_not_stop_is_reported_and_the_removal_continues(machine: Machine) -> None:
    machine.manager("rc-service", "exit 1")
    done(machine.make("install", "INIT=openrc"))
    result = machine.make("uninstall")
    assert done(result)
    assert "'rc-service cdigen stop' failed" in result.stderr
    assert not (machine.top / "usr/bin/cdigen").exists()


@pytest.mark.usefixtures("real_nodes")
def test_systemd_stops_and_disables_the_service_before_its_files_are_removed(machine: Machine) -> None:
    (machine.run / "systemd/system").mkdir(parents=True)
    done(machine.make("install"))
    done(machine.make("uninstall"))
    assert machine.calls() == [
        f"systemctl disable --now --quiet {UNITS}: cdigen is there",
        "systemctl daemon-reload: cdigen is gone",
    ]


@pytest.mark.usefixtures("real_nodes")
def test_specs_that_name_the_hook_are_withdrawn_and_others_stay(machine: Machine) -> None:
    (machine.run / "systemd/system").mkdir(parents=True)
    done(machine.make("install"))
    machine.publish("/run/cdi", "nvidia.com/gpu", machine.hook)
    machine.publish(f"{machine.top}/more", "nvidia.com/compute", machine.hook)
    machine.publish("/run/cdi", "nvidia.com/bare", "/bin/true")
    machine.publish("/etc/cdi", "nvidia.com/edited", machine.hook)
    edited = machine.etc / "cdi/nvidia.com-edited.json"
    edited.write_text(f"{edited.read_text()} ")
    (machine.etc / "cdi/nvidia.yaml").write_text(f"path: {machine.hook}\n")
    # An invalid configuration does not prevent the withdrawal.
    (machine.etc / "cdigen/config.yaml").write_text("colour: blue\n")
    result = machine.make("uninstall")
    message = done(result).splitlines()
    assert os.listdir(machine.run / "cdi") == ["nvidia.com-bare.json"]
    assert not (machine.top / "more/nvidia.com-compute.json").exists()
    assert message[-2:] == ["/etc/cdi/nvidia.com-edited.json", "/etc/cdi/nvidia.yaml"]
    assert "was changed since cdigen wrote it and stays" in result.stderr
    # The service ended before the files were removed.
    assert not (machine.top / "usr/bin/cdigen").exists()
    assert machine.calls()[0].endswith("cdigen is there")


@pytest.mark.usefixtures("real_nodes")
def test_the_specs_of_a_daemon_that_keeps_running_stay_and_a_message_is_printed(machine: Machine) -> None:
    machine.manager("rc-service", "exit 1")
    done(machine.make("install", "INIT=openrc"))
    machine.publish("/run/cdi", "nvidia.com/gpu", machine.hook)
    (machine.run / "cdigen").mkdir()
    lock = machine.run / "cdigen/lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = machine.make("uninstall")
    assert "the cdigen daemon runs" in result.stderr
    assert "'cdigen withdraw' ended with 5" in result.stderr
    assert done(result).splitlines()[-1] == "/run/cdi/nvidia.com-gpu.json"


@pytest.mark.usefixtures("real_nodes")
def test_a_package_build_calls_no_service_manager(machine: Machine, tmp_path: Path) -> None:
    (machine.run / "systemd/system").mkdir(parents=True)
    destination = f"DESTDIR={tmp_path / 'package'}"
    done(machine.make("install", "INIT=systemd openrc", destination))
    done(machine.make("uninstall", destination))
    assert machine.calls() == []


@pytest.mark.usefixtures("real_nodes")
@pytest.mark.parametrize("target", ["install", "install-hook"])
def test_files_of_a_debian_package_are_not_overwritten_until_it_is_removed(
    machine: Machine, target: str
) -> None:
    machine.install_deb("libexec/cdigen/cdigen-hook")
    before = snapshot(machine.top / "usr")
    result = machine.make(target)
    assert result.returncode == 2
    begin, _, remedy = result.stderr.splitlines()[0].partition("; remove the package first: ")
    assert (
        begin == f"etc/install: {machine.hook}: owned by the installed package a-package, nothing was changed"
    )
    assert remedy == "apt-get remove a-package"
    assert snapshot(machine.top / "usr") == before
    done(machine.execute(*remedy.split(), "--yes"))
    assert not Path(machine.hook).exists()
    done(machine.make(target))
    assert Path(machine.hook).exists()


@pytest.mark.usefixtures("real_nodes")
def test_files_of_an_rpm_are_not_overwritten_until_it_is_removed(machine: Machine) -> None:
    machine.install_rpm("bin/cdigen")
    file = machine.top / "usr/bin/cdigen"
    result = machine.make("install")
    assert result.returncode == 2
    begin, _, remedy = result.stderr.splitlines()[0].partition("; remove the package first: ")
    assert begin == f"etc/install: {file}: owned by the installed package a-package, nothing was changed"
    assert file.read_text() == "the package's\n"
    done(machine.execute(*remedy.split()))
    assert not file.exists()
    done(machine.make("install"))


@pytest.mark.usefixtures("real_nodes")
def test_a_package_that_was_installed_later_keeps_its_files_and_its_service(machine: Machine) -> None:
    (machine.run / "systemd/system").mkdir(parents=True)
    done(machine.make("install"))
    files = ("bin/cdigen", "libexec/cdigen/cdigen-hook", "lib/systemd/system/cdigen.service")
    machine.install_deb(*files)
    result = machine.make("uninstall")
    assert done(result)
    line = "etc/install: files of the installed package a-package stay, and its service keeps running"
    assert line in result.stderr.splitlines()
    assert [(machine.top / "usr" / file).read_text() for file in files] == ["the package's\n"] * 3
    assert not (machine.top / "usr/lib/cdigen").exists()
    assert not (machine.top / "usr/share").exists()
    assert machine.calls() == ["systemctl daemon-reload: cdigen is there"]


@pytest.mark.usefixtures("real_nodes")
def test_a_package_build_ignores_the_packages_of_its_machine(machine: Machine, tmp_path: Path) -> None:
    machine.install_deb("bin/cdigen")
    done(machine.make("install", f"DESTDIR={tmp_path / 'package'}"))


@pytest.mark.usefixtures("real_nodes")
def test_specs_that_name_the_hook_are_found_in_configured_directories(machine: Machine) -> None:
    # The configuration is always in /etc; SYSCONFDIR is only for the init script.
    specs = machine.top / "more specs"
    specs.mkdir()
    (machine.etc / "cdigen/config.yaml").write_text(f"spec_dirs: [/etc/cdi, '{specs}']\n")
    texts = {
        machine.etc / "cdi/a.yaml": f"path: {machine.hook}\n",
        machine.run / "cdi/b.json": f'{{"path": "{machine.hook}"}}\n',
        specs / "c.json": f'{{"path": "{machine.hook}"}}\n',
        specs / "d.json": '{"path": "/usr/bin/other"}\n',
        specs / "e.json.old": machine.hook,
    }
    for path, text in texts.items():
        path.write_text(text)
    os.mkfifo(specs / "f.json")
    done(machine.make("install"))
    message = done(machine.make("uninstall")).splitlines()
    assert message[-3:] == ["/etc/cdi/a.yaml", "/run/cdi/b.json", str(specs / "c.json")]


@pytest.mark.usefixtures("real_nodes")
def test_without_a_valid_configuration_the_default_directories_are_searched(machine: Machine) -> None:
    done(machine.make("install"))
    assert done(machine.make("uninstall")).splitlines()[-1] == "/var/lib/cdigen, and specs without the hook."
    (machine.etc / "cdigen/config.yaml").write_text("spec_dirs: {\n")
    (machine.etc / "cdi/a.yaml").write_text(f"path: {machine.hook}\n")
    done(machine.make("install"))
    assert done(machine.make("uninstall")).splitlines()[-1] == "/etc/cdi/a.yaml"


def test_with_destdir_no_installed_code_is_run(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    proof = tmp_path / "proof"
    (tmp_path / "usr/lib/cdigen/cdigen/__init__.py").write_text(f"open({str(proof)!r}, 'w')\n")
    done(make("uninstall", tmp_path, *LOCAL))
    assert not proof.exists()
