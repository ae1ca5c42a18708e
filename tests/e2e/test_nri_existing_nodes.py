"""`cdigen nri` injects no node twice into containers that have nodes of a device plugin or of the host."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.containers.containerd_host import RELEASES, Container, Containerd
from support.nri.containerd_plugins import (
    INJECTED_ANNOTATION,
    KIND,
    LIBRARY,
    NODES,
    Plugin,
    containerd_with_specs,
    numbers,
    running_plugin,
)
from support.nri.host import UUID

pytestmark = pytest.mark.e2e

# A node of the machine (a privileged container already has it), and the driver's node for all GPUs.
CONTROL = {"/dev/full": "1:7", "/dev/nvidiactl": "1:8"}
EDITS: dict[str, Any] = {
    "env": ["NVIDIA_VISIBLE_DEVICES=void"],
    "deviceNodes": [{"path": "/dev/full"}, {"path": "/dev/nvidiactl", "hostPath": "/dev/random"}],
}
FILES_ONLY = f"{KIND}=none"


def passed(*nodes: tuple[str, str]) -> list[dict[str, str]]:
    """Return NODES (pairs of container path and host path) as the kubelet passes them to the runtime."""
    return [{"container_path": path, "host_path": host, "permissions": "rw"} for path, host in nodes]


# The nodes of a device plugin with PASS_DEVICE_SPECS; such a plugin adds no driver files.
PASSED = passed(("/dev/nvidiactl", "/dev/random"), ("/dev/nvidia0", "/dev/zero"))


@pytest.fixture(scope="module", params=RELEASES)
def containerd(cache: Path, request: pytest.FixtureRequest) -> Iterator[Containerd]:
    with containerd_with_specs(cache, request.param, **EDITS) as running:
        yield running


@pytest.fixture(scope="module")
def plugin(containerd: Containerd) -> Iterator[Plugin]:
    with running_plugin(containerd, unsupported_cdi="raw") as running:
        yield running


def repeated(container: Container) -> list[str]:
    """Return the nodes that the low-level runtime got more than once."""
    nodes = Counter(node["path"] for node in container.spec()["linux"]["devices"])
    return [path for path, count in nodes.items() if count > 1]


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    yield containerd
    containerd.remove_all()


@pytest.mark.usefixtures("plugin")
def test_a_container_with_nodes_of_a_device_plugin_gets_the_drivers_files(host: Containerd) -> None:
    container = host.container(f"NVIDIA_VISIBLE_DEVICES={UUID}", devices=PASSED)
    assert container.sh(f"cat {LIBRARY}") == "the driver\n"
    assert container.nodes() == {**numbers("/dev/nvidia0"), "/dev/nvidiactl": CONTROL["/dev/nvidiactl"]}
    assert container.sh("head -c 7 /dev/nvidia0 | wc -c") == "7\n"
    assert repeated(container) == []
    assert container.spec()["annotations"][INJECTED_ANNOTATION] == FILES_ONLY


@pytest.mark.usefixtures("plugin")
def test_cdigen_nri_does_not_treat_a_container_with_the_node_dev_kmsg_as_privileged(host: Containerd) -> None:
    devices = [*PASSED, *passed(("/dev/kmsg", "/dev/kmsg"))]
    container = host.container("NVIDIA_VISIBLE_DEVICES=all", devices=devices)
    assert container.nodes().keys() == {"/dev/nvidia0", "/dev/nvidiactl"}
    assert container.spec()["annotations"][INJECTED_ANNOTATION] == FILES_ONLY


@pytest.mark.usefixtures("plugin")
def test_a_privileged_container_gets_its_devices_once(host: Containerd) -> None:
    container = host.pod(privileged=True).container("NVIDIA_VISIBLE_DEVICES=all")
    assert container.sh(f"cat {LIBRARY}") == "the driver\n"
    assert container.nodes().items() >= numbers(*NODES).items()
    assert container.sh("stat -c %t:%T /dev/full") == "1:7\n"
    assert repeated(container) == []
    assert container.spec()["annotations"][INJECTED_ANNOTATION] == f"{KIND}=all"


@pytest.mark.usefixtures("plugin")
def test_the_value_none_injects_the_driver_without_a_gpu(host: Containerd) -> None:
    container = host.container("NVIDIA_VISIBLE_DEVICES=none")
    assert container.sh(f"cat {LIBRARY}") == "the driver\n"
    assert container.nodes() == {"/dev/nvidiactl": CONTROL["/dev/nvidiactl"]}
    assert container.environment()["NVIDIA_VISIBLE_DEVICES"] == "void"
