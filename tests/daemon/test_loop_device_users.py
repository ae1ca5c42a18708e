"""The users of the devices, as the real daemon reports them at its socket and at its port."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon.engine_double import LISTED, EngineDouble, answers, cdi, container
from support.daemon.host import Host, daemon
from support.daemon.http_client import answer, connected, free_port
from support.daemon.page import visible_text
from support.daemon.services import served
from support.daemon.stats import got
from support.hosts.nvidia_kernel import example_gpus
from support.nvml.standin import Machine, gpu, install, trusted_folder
from support.waiting import PATIENCE_S, limited, until

if TYPE_CHECKING:
    from support.daemon.host import Daemon

pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.mark.parametrize("is_named", [False, True])
def test_the_port_shows_names_of_users_only_if_the_configuration_permits_it(
    host: Host,
    is_named: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    port = free_port()
    host.configure(f"page: {{http_port_shows_names: {str(is_named).lower()}}}\n", http_port=port)
    served(host.root / "run/cdigen-kubelet")
    with daemon(host) as running:
        assert until(lambda: answer(port, "/healthz")[0] == 200)
        for target in ("/", "/page.json"):
            assert "pod ml/train, container main" in got(running, target)[1]
            assert ("ml/train" in answer(port, target)[1]) == is_named
        first = json.loads(answer(port, "/page.json")[1])["devices"][0]
        assert len(first["users"]) == 1
        for target in ("/status.json", "/inventory.json", "/metrics", "/gpu/info", "/gpu/status/json"):
            assert "ml/train" not in answer(port, target)[1]


def source_states(running: Daemon) -> dict[str, str]:
    """Return the state of each source in /page.json."""
    return {row["name"]: row["state"] for row in json.loads(got(running, "/page.json")[1])["sources"]}


def test_docker_containers_are_listed_until_they_end(host: Host) -> None:
    host.configure("page: {sockets: [/run/docker.sock]}\n")
    docker = EngineDouble(host.root / "run/docker.sock", answers(container("web", **cdi("nvidia.com/gpu=1"))))
    with daemon(host) as running:
        assert docker.targets == []
        text = got(running, "/")[1]
        assert "container web (Docker)" in visible_text(text)
        assert "hunter2" not in text + got(running, "/page.json")[1]
        assert docker.targets == [LISTED, f"/containers/{'a' * 64}/json"]
        docker.answers[LISTED] = []
        assert until(lambda: "container web" not in got(running, "/")[1], 3 * PATIENCE_S)
    docker.close()


def test_links_in_the_path_of_a_socket_are_resolved_within_the_hosts_root(host: Host) -> None:
    host.configure("page: {sockets: [/linked/docker.sock]}\n")
    (host.root / "inside").mkdir()
    (host.root / "linked").symlink_to("/inside")
    path = host.root / "inside/docker.sock"
    docker = EngineDouble(path, answers(container("web", **cdi("nvidia.com/gpu=1"))))
    with daemon(host) as running:
        assert "container web (Docker)" in visible_text(got(running, "/")[1])
    docker.close()


# The limit is a second; a busy machine is slow.
@limited(3)
def test_the_page_is_served_if_the_sockets_of_engines_misbehave(host: Host, within_s: float) -> None:
    modes = ("hangs", "drips", "floods", "garbage", "refuses")
    host.configure(f"page: {{sockets: [{', '.join(f'/run/{mode}.sock' for mode in (*modes, 'none'))}]}}\n")
    with ExitStack() as open_engines:
        for mode in modes:
            engine = EngineDouble(host.root / f"run/{mode}.sock", mode=mode)
            open_engines.callback(engine.close)
        with daemon(host) as running:
            for _ in range(5):
                begun = time.monotonic()
                assert got(running, "/")[0] == 200
                assert time.monotonic() - begun < within_s
            assert {source_states(running)[f"/run/{mode}.sock"] for mode in (*modes, "none")} == {
                "no-response"
            }
            begun = time.monotonic()
            assert got(running, "/metrics")[0] == 200
            assert time.monotonic() - begun < within_s
            assert running.resident_kb() < 60_000


def test_missing_sockets_are_reported(host: Host) -> None:
    with daemon(host) as running:
        # The tree of the host has no processes. Without CAP_SYS_PTRACE, open files cannot be read.
        assert until(lambda: "open device files" in source_states(running))
        found = source_states(running)
        assert found.pop("open device files") in {"no-response", "off"}
        assert found == {
            "kubelet": "absent",
            "NRI plugin": "absent",
            "podman, Docker": "off",
            "driver": "no-response",
        }


def test_the_page_shows_the_devices_that_installed_runtimes_find(host: Host) -> None:
    host.put("usr/bin/podman", "#!/bin/sh\n")
    with daemon(host) as running:
        assert until(lambda: json.loads(got(running, "/page.json")[1])["runtimes"])
        (podman,) = json.loads(got(running, "/page.json")[1])["runtimes"]
        assert (podman["name"], podman["found"], podman["offered"]) == ("podman", 2, 2)
        assert "2 of 2 devices" in visible_text(got(running, "/")[1])


@limited(3)
def test_200_slow_clients_do_not_block_other_clients(host: Host, within_s: float) -> None:
    port = free_port()
    host.configure(http_port=port)
    with ExitStack() as crowd, daemon(host) as running:
        assert until(lambda: answer(port, "/healthz")[0] == 200)
        open_files = Path(f"/proc/{running.process.pid}/fd")
        without_crowd = len(list(open_files.iterdir()))
        for number in range(200):
            client = crowd.enter_context(connected(host.http if number % 2 else port))
            # Half of the clients request the page and do not read the response. The other clients never
            # complete their request.
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + (b"\r\n" if number % 4 < 2 else b"X: "))
            if number % 50 == 0:
                begun = time.monotonic()
                assert "cdigen_build_info" in got(running, "/metrics")[1]
                assert "cdigen_build_info" in answer(port, "/metrics")[1]
                assert time.monotonic() - begun < within_s
        before = running.cycles
        running.process.send_signal(signal.SIGHUP)
        assert until(lambda: running.cycles > before)
        begun = time.monotonic()
        assert got(running, "/")[0] == 200
        assert answer(port, "/")[1]
        assert time.monotonic() - begun < within_s
        assert len(list(open_files.iterdir())) < without_crowd + 60


def test_processes_that_the_driver_reports_are_users_of_the_device(host: Host) -> None:
    port = free_port()
    host.configure(http_port=port)
    host.put(f"proc/{os.getpid()}/comm", "python\n")
    gpus = tuple(
        gpu(each.minor, address=f"0000{each.bdf.upper()}", uuid=each.uuid, processes=((os.getpid(), 1),))
        for each in example_gpus(2)
    )
    with trusted_folder() as folder:
        library = install(folder, Machine(gpus=gpus))
        with daemon(host, "--nvml", str(library)) as running:
            user = f"process {os.getpid()} (python) (driver)"
            assert until(lambda: user in visible_text(got(running, "/")[1]))
            host.put(f"proc/{os.getpid()}/cgroup", f"0::/system.slice/docker-{'f' * 64}.scope\n")
            assert "container ffffffffffff (driver)" in visible_text(got(running, "/")[1])
            assert source_states(running)["driver"] == "responded"
            named = json.loads(got(running, "/gpu/status/json")[1])["Devices"][0]["Processes"][0]
            first = json.loads(answer(port, "/v1.0/gpu/status/json")[1])["Devices"][0]["Processes"][0]
            assert (first["PID"], first["Name"], named["Name"]) == (named["PID"], "", "python")
            stats = json.loads(answer(port, "/page.json")[1])["devices"][0]["stats"]
            assert stats["processes"] == [{"pid": os.getpid(), "name": "", "memory": 1}]
