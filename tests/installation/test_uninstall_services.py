"""What `make uninstall` does on the host itself: the service ends before its files do, and specs are named.

The service managers are programs of the test, first in PATH; /etc and /run are the test's own in a mount
namespace, so that nothing of this machine is touched.
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
from support.installation.installing import LOCAL, done, make, publish_script
from support.paths import REPOSITORY
from support.processes import captured

UNITS = (
    "cdigen-kubelet.service cdigen-nri.service cdigen.service cdigen-once.service cdigen-kernel-log.socket"
)
MANAGERS = ("rc-service", "rc-update", "systemctl")


class Machine:
    """A host in a folder: /etc, /run and /var/lib of its own, cdigen below `usr`; managers tell all."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.etc, self.run, self.lib, self.programs, self.said = (
            top / name for name in ("etc", "run", "lib", "programs", "said")
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
        """Give it a service manager, which tells what it was asked and whether cdigen still lay there."""
        there = f"$([ -e {self.top}/usr/bin/cdigen ] && echo there || echo gone)"
        program = self.programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*: cdigen is {there}" >>{self.said}\n{code}\n')
        program.chmod(0o755)

    def make(self, target: str, *settings: str) -> subprocess.CompletedProcess[str]:
        return self.does("make", "-s", target, f"PYTHON={sys.executable}", *self.settings, *settings)

    def does(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run COMMAND on it."""
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
        """Write a spec of KIND that runs PROGRAM, as cdigen does it."""
        done(self.does(sys.executable, "-c", publish_script(directory, kind, program)))

    def asked(self) -> list[str]:
        return self.said.read_text().splitlines() if self.said.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    tool("make")
    unshared("--mount")
    found = Machine(tmp_path)
    found.prepare()
    yield found
    shutil.rmtree(found.etc)


@pytest.mark.usefixtures("real_nodes")
def test_openrc_stops_the_service_and_forgets_it_before_its_files_go(machine: Machine) -> None:
    done(machine.make("install", "INIT=openrc"))
    done(machine.make("uninstall"))
    assert machine.asked() == [
        "rc-service cdigen stop: cdigen is there",
        "rc-update --all delete cdigen: cdigen is there",
    ]
    assert not (machine.top / "sysconf/init.d/cdigen").exists()


@pytest.mark.usefixtures("real_nodes")
def test_a_service_that_does_not_stop_is_said_and_the_rest_is_done(machine: Machine) -> None:
    machine.manager("rc-service", "exit 1")
    done(machine.make("install", "INIT=openrc"))
    result = machine.make("uninstall")
    assert done(result)
    assert "'rc-service cdigen stop' failed" in result.stderr
    assert not (machine.top / "usr/bin/cdigen").exists()


@pytest.mark.usefixtures("real_nodes")
def test_systemd_stops_the_service_and_forgets_it_before_its_files_go(machine: Machine) -> None:
    (machine.run / "systemd/system").mkdir(parents=True)
    done(machine.make("install"))
    done(machine.make("uninstall"))
    assert machine.asked() == [
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
    # Whatever is wrong with the configuration.
    (machine.etc / "cdigen/config.yaml").write_text("colour: blue\n")
    result = machine.make("uninstall")
    said = done(result).splitlines()
    assert os.listdir(machine.run / "cdi") == ["nvidia.com-bare.json"]
    assert not (machine.top / "more/nvidia.com-compute.json").exists()
    assert said[-2:] == ["/etc/cdi/nvidia.com-edited.json", "/etc/cdi/nvidia.yaml"]
    assert "is not as cdigen wrote it, so it stays" in result.stderr
    # By code that is still there, after the service has ended.
    assert not (machine.top / "usr/bin/cdigen").exists()
    assert machine.asked()[0].endswith("cdigen is there")


@pytest.mark.usefixtures("real_nodes")
def test_a_daemon_that_goes_on_keeps_its_specs_and_that_is_said(machine: Machine) -> None:
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
def test_a_package_build_asks_no_service_manager(machine: Machine, tmp_path: Path) -> None:
    (machine.run / "systemd/system").mkdir(parents=True)
    destination = f"DESTDIR={tmp_path / 'package'}"
    done(machine.make("install", "INIT=systemd openrc", destination))
    done(machine.make("uninstall", destination))
    assert machine.asked() == []


@pytest.mark.usefixtures("real_nodes")
def test_specs_that_name_the_hook_are_found_wherever_the_configuration_says(machine: Machine) -> None:
    # As for every host, the configuration is in /etc, whatever SYSCONFDIR says for the init script.
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
    said = done(machine.make("uninstall")).splitlines()
    assert said[-3:] == ["/etc/cdi/a.yaml", "/run/cdi/b.json", str(specs / "c.json")]


@pytest.mark.usefixtures("real_nodes")
def test_without_a_configuration_the_usual_places_are_looked_at(machine: Machine) -> None:
    done(machine.make("install"))
    assert done(machine.make("uninstall")).splitlines()[-1] == "(no spec names it)"
    (machine.etc / "cdigen/config.yaml").write_text("spec_dirs: {\n")
    (machine.etc / "cdi/a.yaml").write_text(f"path: {machine.hook}\n")
    done(machine.make("install"))
    assert done(machine.make("uninstall")).splitlines()[-1] == "/etc/cdi/a.yaml"


def test_below_destdir_nothing_is_run(tmp_path: Path) -> None:
    done(make("install", tmp_path, *LOCAL))
    proof = tmp_path / "proof"
    (tmp_path / "usr/lib/cdigen/cdigen/__init__.py").write_text(f"open({str(proof)!r}, 'w')\n")
    done(make("uninstall", tmp_path, *LOCAL))
    assert not proof.exists()
