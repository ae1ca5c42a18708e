"""The spec directory of a user: the runtimes of the user read it, and root's specs are not needed."""

import os

import pytest
from support.doctor.broken_host import ALICE, NAME, BrokenHost

FILES = {
    "podman": (
        "home/alice/.config/containers/containers.conf",
        '[engine]\ncdi_spec_dirs = ["/home/alice/cdi"]\n',
    ),
    "docker": ("home/alice/.config/docker/daemon.json", '{"cdi-spec-dirs": ["/home/alice/cdi"]}'),
}


@pytest.mark.parametrize("runtime", FILES)
def test_the_spec_of_a_user_is_sufficient(tmp_path_host: BrokenHost, runtime: str) -> None:
    host = tmp_path_host
    host.put("etc/passwd", ALICE)
    host.put("home/alice/cdi/" + NAME, host.spec.read_text())
    host.spec.unlink()
    host.put(*FILES[runtime])
    for folder, _, names in os.walk(host.path("home/alice")):
        for name in (".", *names):
            os.chown(os.path.join(folder, name), 1000, 1000)
    rows = host.results("--user", "alice", f"--for {runtime}")
    assert not [row for row in rows if not row["ok"] and row["topic"] != "user"]
