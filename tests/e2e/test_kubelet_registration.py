"""The link to a real kubelet, 1.20.2: it has the devices again after each of its restarts."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.cluster.node import Node, running_node
from support.containers.containerd_host import RELEASES, eventually
from support.kubelet.offered import offer
from support.kubelet.resources import GPU

from cdigen.kubelet.link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def node(cache: Path, kubernetes_tree: Path) -> Iterator[Node]:
    assert kubernetes_tree.is_dir()
    with running_node(cache, RELEASES["forky"]) as node:
        yield node
        node.remove_pods()


@pytest.fixture
def link(node: Node) -> Iterator[Link]:
    folder = node.folder / "kubelet"
    pods = str(folder / "pod-resources/kubelet.sock")
    link = Link(
        str(folder / "device-plugins"),
        pods,
        notify=lambda: None,
        log=lambda *line: print(*line, file=sys.stderr),
    )
    link.start()
    yield link
    link.stop()


def has(node: Node, link: Link, count: int) -> None:
    """Wait until NODE has COUNT allocatable devices."""

    def allocatable() -> bool | None:
        link.look()
        return node.allocatable(GPU) == count or None

    eventually(allocatable, f"{count} devices", told=lambda: f"{link.statuses()} {node.kubelet.log}")


def test_a_node_has_the_devices_again_after_each_restart_of_the_kubelet(node: Node, link: Link) -> None:
    link.offer((offer("a", "b"),))
    has(node, link, 2)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        before = link.statuses()[0].registrations
        node.kubelet.stop(number)
        node.kubelet.start()

        def registered(before: int = before) -> bool | None:
            link.look()
            return link.statuses()[0].registrations > before or None

        eventually(registered, "another registration", told=lambda: node.kubelet.log)
        link.offer((offer("a", "b", "c"),))
        has(node, link, 3)
        link.offer((offer("a", "b"),))
        has(node, link, 2)
        assert link.statuses()[0].state == "registered"
        assert link.statuses()[0].registrations == before + 1


def test_its_socket_removed_or_unhealthy_devices_reach_the_node(node: Node, link: Link) -> None:
    link.offer((offer("a", "b"),))
    has(node, link, 2)
    link.offer((offer("a", "b", health="unhealthy"),))
    has(node, link, 0)
    link.offer((offer("a", "b"),))
    has(node, link, 2)
    Path(link.statuses()[0].socket).unlink()
    link.look()
    eventually(lambda: link.statuses()[0].registrations == 2 or None, "another registration")
    has(node, link, 2)
