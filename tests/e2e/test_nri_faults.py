"""Containers that request GPUs start even if `cdigen nri` or containerd stops, hangs, is killed or restarts.

This runtime (NRI before 0.10) starts containers even if the plugin is missing or does not respond. The plugin
cannot prevent this. It reports the containers that lack their devices as soon as it registers again.
"""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.containers.containerd_host import Container, Containerd, eventually
from support.nri.containerd_plugins import INJECTED_ANNOTATION, Plugin, numbers, running_plugin

pytestmark = pytest.mark.e2e

GPU0 = numbers("/dev/nvidia0")
REQUEST = "NVIDIA_VISIBLE_DEVICES=0"


def reported(plugin: Plugin, *containers: Container) -> None:
    """Wait until the plugin's status lists CONTAINERS, and no other containers, as uninjected."""
    names = {(container.pod.name, container.name) for container in containers}

    def named() -> bool | None:
        status = plugin.status()
        found = {(row["pod"], row["container"]) for row in status["uninjected_containers"]}
        return (found == names and status["uninjected_count"] == len(names)) or None

    eventually(
        named, "the audit reports the containers", details=lambda: (names, plugin.status(), plugin.log[-10:])
    )


def connected_again(plugin: Plugin, times: int) -> None:
    """Wait until the plugin has registered TIMES times."""
    eventually(
        lambda: (plugin.is_registered() and plugin.status()["connections"] == times) or None,
        f"the plugin is registered for the {times}. time",
        details=lambda: (plugin.status(), plugin.log[-10:]),
    )


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    yield containerd
    containerd.remove_all()


def test_the_plugin_reconnects_to_a_restarted_runtime(host: Containerd) -> None:
    with running_plugin(host) as plugin:
        before = host.container(REQUEST)
        host.stop()
        eventually(lambda: not plugin.is_registered() or None, "the plugin detects the end of the runtime")
        assert plugin.http_get("/readyz")[0] == 503
        assert plugin.http_get("/healthz")[0] == 200
        host.start()
        connected_again(plugin, 2)
        assert plugin.http_get("/readyz")[0] == 200
        assert host.container(REQUEST).nodes() == GPU0
        assert before.nodes() == GPU0
        reported(plugin)


def test_the_plugin_reconnects_to_a_killed_runtime(host: Containerd) -> None:
    with running_plugin(host) as plugin:
        before = host.container(REQUEST)
        host.stop(signal.SIGKILL)
        time.sleep(1)  # the runtime's sockets still exist, without a listener
        assert not plugin.is_registered()
        host.start()
        connected_again(plugin, 2)
        assert host.container(REQUEST).nodes() == GPU0
        assert before.nodes() == GPU0
        reported(plugin)


def test_the_plugin_waits_for_a_runtime_that_starts_later(host: Containerd) -> None:
    host.stop()
    with running_plugin(host, wait=False) as plugin:
        eventually(lambda: (plugin.run_dir / "status.json").exists() or None, "the plugin runs")
        host.start()
        plugin.registered()
        assert host.container(REQUEST).nodes() == GPU0


def test_a_restarted_plugin_reports_the_containers_that_started_without_it(host: Containerd) -> None:
    with running_plugin(host) as plugin:
        served = host.container(REQUEST)
        assert plugin.end() == 0
    without = host.container(REQUEST)
    elsewhere = host.container(REQUEST, namespace="default")
    assert (without.nodes(), elsewhere.nodes()) == ({}, {})
    with running_plugin(host) as plugin:
        reported(plugin, without)
        assert host.container(REQUEST).nodes() == GPU0
        reported(plugin, without)
    assert served.nodes() == GPU0


def test_a_plugin_that_restarts_after_a_kill_reports_uninjected_containers(host: Containerd) -> None:
    with running_plugin(host) as plugin:
        served = host.container(REQUEST)
        assert plugin.end(signal.SIGKILL) == -signal.SIGKILL
    without = host.container(REQUEST)
    assert without.nodes() == {}
    with running_plugin(host) as plugin:
        reported(plugin, without)
        assert host.container(REQUEST).nodes() == GPU0
    assert INJECTED_ANNOTATION in served.spec()["annotations"]


def test_a_plugin_that_continues_after_a_hang_reports_uninjected_containers(host: Containerd) -> None:
    pods = [host.pod() for _ in range(3)]
    with running_plugin(host) as plugin:
        plugin.send(signal.SIGSTOP)
        started = time.monotonic()
        first = pods[0].container(REQUEST)
        assert time.monotonic() - started >= 2  # plugin_request_timeout; then the runtime drops the plugin
        started = time.monotonic()
        second = pods[1].container(REQUEST)
        assert time.monotonic() - started < 2
        assert (first.nodes(), second.nodes()) == ({}, {})
        plugin.send(signal.SIGCONT)
        connected_again(plugin, 2)
        reported(plugin, first, second)
        assert pods[2].container(REQUEST).nodes() == GPU0


def test_a_hang_shorter_than_the_runtimes_timeout_has_no_effect(host: Containerd) -> None:
    pod = host.pod()
    with running_plugin(host) as plugin:
        with ThreadPoolExecutor(1) as threads:
            plugin.send(signal.SIGSTOP)
            made = threads.submit(pod.container, REQUEST)
            time.sleep(0.7)
            assert not made.done()
            plugin.send(signal.SIGCONT)
            assert made.result().nodes() == GPU0
        assert plugin.status()["connections"] == 1


def test_the_plugin_reports_only_the_ten_uninjected_containers_of_thirty(host: Containerd) -> None:
    with running_plugin(host):
        served = [host.container(REQUEST) for _ in range(10)]
    without = [host.container(REQUEST) for _ in range(10)]
    others = [host.container(), *(host.container(REQUEST, namespace="default") for _ in range(9))]
    with running_plugin(host) as plugin:
        reported(plugin, *without)
    assert [container.nodes() for container in served] == [GPU0] * 10
    assert [container.nodes() for container in others] == [{}] * 10


def test_a_removed_container_is_not_reported_any_more(host: Containerd) -> None:
    without = host.container(REQUEST)
    with running_plugin(host) as plugin:
        reported(plugin, without)
        host.remove_all()
        plugin.end()
    with running_plugin(host) as plugin:
        reported(plugin)
