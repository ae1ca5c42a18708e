"""Causes that exist only on a running machine: a container, a stopped daemon, a service manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.doctor.live_host import LiveHost, live_host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENABLE = """
mkdir -p /etc/systemd/system/multi-user.target.wants /usr/lib/systemd/system
cd /etc/systemd/system
echo '[Service]' >/usr/lib/systemd/system/cdigen.service
ln -s /usr/lib/systemd/system/cdigen.service multi-user.target.wants/
"""


@pytest.fixture
def live(tmp_path: Path, real_nodes: None) -> Iterator[LiveHost]:  # noqa: ARG001 - nodes must be real
    with live_host(tmp_path / "live") as host:
        yield host


@pytest.mark.parametrize(
    ("sign", "hint"),
    [("/.dockerenv", "--volume /:/host:ro,rslave"), ("/run/systemd/container", "lxc.mount.entry")],
)
def test_a_container_without_the_nodes_of_its_host_gets_no_commands_for_the_host(
    live: LiveHost, sign: str, hint: str
) -> None:
    live.run(f"rm -f /dev/nvidia* && mkdir -p /run/systemd && touch {sign}")
    wrong = live.wrong()
    assert next(iter(reversed(wrong))) == "in-container"
    assert hint in wrong["in-container"]["detail"]
    assert "in-container" in wrong["node-missing"]["because"]
    assert [row["remedy"] for row in wrong.values()] == [""] * len(wrong)
    assert "create-nodes" not in wrong["node-missing"]["detail"]
    for command in ("generate", "inspect", "docker-args"):
        stderr = live.attempt(f"cdigen {command}").stderr
        assert "this is a container, and the host is not mounted: the driver is loaded" in stderr
        assert hint in stderr
        assert "create-nodes" not in stderr


def test_a_container_with_devices_has_no_failure(live: LiveHost) -> None:
    live.run("touch /.dockerenv && cdigen generate --write --quiet")
    assert live.wrong() == {}


def test_a_too_new_spec_of_cdigen_is_kept_while_cdigen_cannot_generate_specs(live: LiveHost) -> None:
    live.run("cdigen generate --write --quiet && rm /dev/nvidia-uvm")
    live.install("podman", "4.2.0")
    row = live.wrong("--for", "podman")["spec-version"]
    assert row["remedy"] == ""
    assert "node-missing" in row["because"]


def test_a_stopped_daemon_is_only_a_warning_for_podman(live: LiveHost) -> None:
    live.run(f"cdigen generate --write --quiet {ENABLE}")
    live.install("podman", "5.4.0")
    assert live.wrong()["daemon-running"]["severity"] == "error"
    assert live.wrong("--for", "podman")["daemon-running"]["severity"] == "warning"


def test_a_runtime_without_a_service_gets_no_command_of_a_service_manager(live: LiveHost) -> None:
    live.run(
        "rm -rf /run/systemd/system /usr/lib/systemd/system/docker.service /etc/systemd/system/docker.service"
    )
    live.run("rm -f /sbin/rc-service /usr/sbin/rc-service /usr/bin/rc-service")
    live.install("dockerd", "27.1.1")
    assert live.wrong("--for", "docker")["docker-running"]["remedy"] == ""
    live.run("mkdir -p /run/systemd/system /etc/systemd/system && touch /etc/systemd/system/docker.service")
    assert live.wrong("--for", "docker")["docker-running"]["remedy"] == "systemctl start docker"
