"""KubeletLink registers its devices again after each restart of a real kubelet (1.20.2)."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.cluster.node import Node, running_node
from support.containers.containerd_host import RELEASES, eventually
from support.kubelet.advertised import listing
from support.kubelet.resources import GPU

from cdigen.kubelet.registration.link import KubeletLink

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
def link(node: Node) -> Iterator[KubeletLink]:
    folder = node.folder / "kubelet"
    pods = str(folder / "pod-resources/kubelet.sock")
    link = KubeletLink(
        str(folder / "device-plugins"),
        pods,
        notify=lambda: None,
        log=lambda *line: print(*line, file=sys.stderr),
    )
    link.start()
    yield link
    link.stop()


def has(node: Node, link: KubeletLink, count: int) -> None:
    """Wait until NODE has COUNT allocatable devices."""

    def allocatable() -> bool | None:
        link.check_folder()
        return node.allocatable(GPU) == count or None

    eventually(allocatable, f"{count} devices", details=lambda: f"{link.statuses()} {node.kubelet.log}")


def test_a_node_has_the_devices_again_after_each_restart_of_the_kubelet(
    node: Node, link: KubeletLink
) -> None:
    link.advertise((listing("a", "b"),))
    has(node, link, 2)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        before = link.statuses()[0].registrations
        node.kubelet.stop(number)
        node.kubelet.start()

        def registered(before: int = before) -> bool | None:
            link.check_folder()
            return link.statuses()[0].registrations > before or None

        eventually(registered, "another registration", details=lambda: node.kubelet.log)
        link.advertise((listing("a", "b", "c"),))
        has(node, link, 3)
        link.advertise((listing("a", "b"),))
        has(node, link, 2)
        assert link.statuses()[0].state == "registered"
        assert link.statuses()[0].registrations == before + 1


def test_kubelet_link_reports_unhealthy_devices_and_replaces_a_removed_socket(
    node: Node, link: KubeletLink
) -> None:
    link.advertise((listing("a", "b"),))
    has(node, link, 2)
    link.advertise((listing("a", "b", health="unhealthy"),))
    has(node, link, 0)
    link.advertise((listing("a", "b"),))
    has(node, link, 2)
    Path(link.statuses()[0].socket).unlink()
    link.check_folder()
    eventually(lambda: link.statuses()[0].registrations == 2 or None, "another registration")
    has(node, link, 2)
