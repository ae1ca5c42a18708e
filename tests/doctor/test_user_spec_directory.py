"""The spec directory of a user: the runtimes of the user read it, and root's specs are not needed."""

import os
from pathlib import Path

import pytest
from support.doctor.broken_host import ALICE, NAME, BrokenHost
from support.doctor.live_host import live_host

# Releases whose dockerd-rootless.sh hides or mounts /etc/cdi and /var/run/cdi.
HIDING, MOUNTING = "27.3.1", "27.4.0"
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


@pytest.mark.usefixtures("real_nodes")
def test_a_directory_that_a_rootless_docker_does_not_see_is_reported(tmp_path: Path) -> None:
    with live_host(tmp_path / "live") as live:
        live.run("cdigen generate --write --quiet")
        home = live.run("getent passwd nobody | cut -d: -f6").strip()
        live.run(f"mkdir -p {home}/.config/docker && chmod -R a+rX {home}")
        live.run(f"""echo '{{"features": {{"cdi": true}}}}' >{home}/.config/docker/daemon.json""")
        live.install("dockerd", HIDING)
        row = live.wrong("--for", "docker", "--user", "nobody")["docker-directories"]
        assert "reads no directory (its default), not /var/run/cdi" in row["detail"]
        assert "install Docker 27.4 or newer" in row["detail"]
        assert row["remedy"] == ""
        live.install("dockerd", MOUNTING)
        assert "docker-directories" not in live.wrong("--for", "docker", "--user", "nobody")
