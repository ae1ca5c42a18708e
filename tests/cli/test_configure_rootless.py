"""``cdigen configure docker --rootless`` changes the configuration of the user who runs the command."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.doctor.broken_host import BrokenHost

UID = 65534
PASSWD = f"root:x:0:0::/root:/bin/sh\nalice:x:{UID}:{UID}::/home/alice:/bin/sh\n"
DAEMON_JSON = '{\n    "features": {\n        "cdi": false\n    }\n}\n'
FILE = "home/alice/.config/docker/daemon.json"
# A program that runs cdigen as another user. It first imports all modules, because this user may not read the
# modules.
AS_USER = f"""
import importlib, os, pkgutil, sys, cdigen
for module in pkgutil.walk_packages(cdigen.__path__, "cdigen."):
    if "child" not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import difflib, encodings.idna, encodings.utf_8_sig, pwd
from cdigen.cli.main import main
os.setgroups([]); os.setgid({UID}); os.setuid({UID})
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def alices(real_nodes: None, other_users: None) -> Iterator[BrokenHost]:  # noqa: ARG001 - need root
    """Yield a host where alice has disabled CDI in her rootless Docker."""
    # Other users may not read pytest's folders.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        host = BrokenHost(Path(folder, "host")).make("docker")
        host.put("etc/passwd", PASSWD)
        host.put(FILE, DAEMON_JSON)
        home = host.path("home/alice")
        for path in (home, *home.rglob("*")):
            os.chown(path, UID, UID)
        yield host


def as_alice(host: BrokenHost, *words: str) -> subprocess.CompletedProcess[str]:
    state = {"XDG_STATE_HOME": str(host.path("home/alice/.local/state"))}
    command = [sys.executable, "-c", AS_USER, *words, "--root", str(host.root)]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | state)


def test_the_remedy_of_the_doctor_configures_the_docker_of_the_user(alices: BrokenHost) -> None:
    row = alices.result("docker-cdi", "--user", "alice")
    assert (row["ok"], row["severity"]) == (False, "error")
    own, service = alices.remedy_on_host(row).split(" && ")
    assert service == "systemctl --user --machine=alice@ restart docker"
    words = own.removeprefix("runuser -u alice -- cdigen ").split()
    assert words == ["configure", "docker", "--rootless"]
    done = as_alice(alices, *words)
    assert done.returncode == 0, done.stderr
    assert "to apply the change: systemctl --user restart docker" in done.stderr
    assert json.loads(alices.path(FILE).read_text())["features"] == {"cdi": True}
    assert alices.path(FILE).stat().st_uid == UID
    assert not alices.path("etc/docker").exists()
    assert alices.result("docker-cdi", "--user", "alice")["ok"]
    assert as_alice(alices, *words, "--undo").returncode == 0
    assert alices.path(FILE).read_text() == DAEMON_JSON


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("docker", "--rootless"), "root runs this command"),
        (("podman", "--rootless"), "--rootless is for docker"),
        (("docker", "--rootless", "--restart"), "systemctl --user restart docker"),
    ],
)
@pytest.mark.usefixtures("other_users")
def test_rootless_is_for_the_docker_of_an_ordinary_user(
    cdigen: Run, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    root = () if "--restart" in words else ("--root", tmp_path)
    assert cdigen("configure", *words, *root).failed(2, text)
