"""What becomes of GPUs when `cdigen nri` or its containerd stop, hang, are killed and come again.

This runtime (NRI before 0.10) starts containers without a plugin that is not there or does not answer, which
nothing on the plugin's side can change: so the containers that went without are named as soon as it is back.
"""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.containers.containerd_host import Container, Containerd, eventually
from support.nri.containerd_plugins import MARK, Plugin, numbers, running_plugin

pytestmark = pytest.mark.e2e

GPU0 = numbers("/dev/nvidia0")
WISH = "NVIDIA_VISIBLE_DEVICES=0"


def missed(plugin: Plugin, *containers: Container) -> None:
    """Wait until the plugin's status names these containers as those that got nothing, and no others."""
    names = {(container.pod.name, container.name) for container in containers}

    def named() -> bool | None:
        status = plugin.status()
        found = {(row["pod"], row["container"]) for row in status["missed"]}
        return (found == names and status["missed_count"] == len(names)) or None

    eventually(named, "the audit names them", told=lambda: (names, plugin.status(), plugin.log[-10:]))


def connected_again(plugin: Plugin, times: int) -> None:
    """Wait until the plugin has been registered so many times."""
    eventually(
        lambda: (plugin.is_registered() and plugin.status()["connections"] == times) or None,
        f"the plugin is registered for the {times}. time",
        told=lambda: (plugin.status(), plugin.log[-10:]),
    )


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    yield containerd
    containerd.remove_all()


def test_the_plugin_comes_back_to_a_runtime_that_restarts(host: Containerd) -> None:
    with running_plugin(host) as plugin:
        before = host.container(WISH)
        host.stop()
        eventually(lambda: not plugin.is_registered() or None, "the plugin knows that the runtime is gone")
        assert plugin.ask("/readyz")[0] == 503
        assert plugin.ask("/healthz")[0] == 200
        host.start()
        connected_again(plugin, 2)
        assert plugin.ask("/readyz")[0] == 200
        assert host.container(WISH).nodes() == GPU0
        assert before.nodes() == GPU0
        missed(plugin)


def test_the_plugin_comes_back_to_a_runtime_that_was_killed(host: Containerd) -> None:
    with running_plugin(host) as plugin:
        before = host.container(WISH)
        host.stop(signal.SIGKILL)
        time.sleep(1)  # its sockets are still there, and nobody listens
        assert not plugin.is_registered()
        host.start()
        connected_again(plugin, 2)
        assert host.container(WISH).nodes() == GPU0
        assert before.nodes() == GPU0
        missed(plugin)


def test_the_plugin_waits_for_a_runtime_that_is_not_there_yet(host: Containerd) -> None:
    host.stop()
    with running_plugin(host, wait=False) as plugin:
        eventually(lambda: (plugin.run_dir / "status.json").exists() or None, "the plugin runs")
        host.start()
        plugin.registered()
        assert host.container(WISH).nodes() == GPU0


def test_a_restarted_plugin_names_the_containers_that_started_without_it(host: Containerd) -> None:
    with running_plugin(host) as plugin:
        served = host.container(WISH)
        assert plugin.end() == 0
    without = host.container(WISH)
    elsewhere = host.container(WISH, namespace="default")
    assert (without.nodes(), elsewhere.nodes()) == ({}, {})
    with running_plugin(host) as plugin:
        missed(plugin, without)
        assert host.container(WISH).nodes() == GPU0
        missed(plugin, without)
    assert served.nodes() == GPU0


def test_a_plugin_that_was_killed_names_them_too(host: Containerd) -> None:
    with running_plugin(host) as plugin:
        served = host.container(WISH)
        assert plugin.end(signal.SIGKILL) == -signal.SIGKILL
    without = host.container(WISH)
    assert without.nodes() == {}
    with running_plugin(host) as plugin:
        missed(plugin, without)
        assert host.container(WISH).nodes() == GPU0
    assert MARK in served.spec()["annotations"]


def test_a_plugin_that_hangs_names_them_when_it_goes_on(host: Containerd) -> None:
    pods = [host.pod() for _ in range(3)]
    with running_plugin(host) as plugin:
        plugin.send(signal.SIGSTOP)
        started = time.monotonic()
        first = pods[0].container(WISH)
        assert time.monotonic() - started >= 2  # plugin_request_timeout; then the runtime drops the plugin
        started = time.monotonic()
        second = pods[1].container(WISH)
        assert time.monotonic() - started < 2
        assert (first.nodes(), second.nodes()) == ({}, {})
        plugin.send(signal.SIGCONT)
        connected_again(plugin, 2)
        missed(plugin, first, second)
        assert pods[2].container(WISH).nodes() == GPU0


def test_a_hang_shorter_than_the_runtimes_patience_costs_nothing(host: Containerd) -> None:
    pod = host.pod()
    with running_plugin(host) as plugin:
        with ThreadPoolExecutor(1) as threads:
            plugin.send(signal.SIGSTOP)
            made = threads.submit(pod.container, WISH)
            time.sleep(0.7)
            assert not made.done()
            plugin.send(signal.SIGCONT)
            assert made.result().nodes() == GPU0
        assert plugin.status()["connections"] == 1


def test_thirty_containers_are_audited_and_only_the_right_ones_named(host: Containerd) -> None:
    with running_plugin(host):
        served = [host.container(WISH) for _ in range(10)]
    without = [host.container(WISH) for _ in range(10)]
    others = [host.container(), *(host.container(WISH, namespace="default") for _ in range(9))]
    with running_plugin(host) as plugin:
        missed(plugin, *without)
    assert [container.nodes() for container in served] == [GPU0] * 10
    assert [container.nodes() for container in others] == [{}] * 10


def test_a_container_that_has_ended_is_missed_no_more(host: Containerd) -> None:
    without = host.container(WISH)
    with running_plugin(host) as plugin:
        missed(plugin, without)
        host.remove_all()
        plugin.end()
    with running_plugin(host) as plugin:
        missed(plugin)
