"""On Debian 13's containerd (1.7.24; NRI 0.6 drops CDI devices), `cdigen nri` refuses or adds raw edits."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.containerd_host import RELEASES, Containerd, running_containerd
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import (
    DEAD,
    INJECTED_ANNOTATION,
    KIND,
    LIBRARY,
    NODES,
    Plugin,
    numbers,
    running_foreign,
    running_plugin,
    write_inventory,
    write_specs,
)

from cdigen.nri.pods import Adjustment

pytestmark = pytest.mark.e2e

REQUEST = "NVIDIA_VISIBLE_DEVICES=0"


@pytest.fixture(scope="module")
def containerd(cache: Path) -> Iterator[Containerd]:
    with running_containerd(cache, RELEASES["trixie"]) as host:
        yield host


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    write_specs(containerd.specs)
    write_inventory(containerd)
    yield containerd
    containerd.remove_all()


@pytest.fixture
def raw(host: Containerd) -> Iterator[Plugin]:
    """Run the plugin with `unsupported_cdi: raw`: it injects nodes, mounts and variables, not CDI devices."""
    with running_plugin(host, unsupported_cdi="raw") as plugin:
        yield plugin


def test_this_runtime_drops_cdi_devices_silently(host: Containerd) -> None:
    with running_foreign(host, Adjustment(cdi_devices=(f"{KIND}=0",), env={"A": "1"})):
        container = host.container()
    assert container.nodes() == {}
    assert container.environment()["A"] == "1"


def test_a_container_with_a_request_is_refused_with_a_reason(host: Containerd) -> None:
    with running_plugin(host) as plugin:
        with pytest.raises(CriError, match="drops CDI devices of NRI plugins silently") as refused:
            host.container(REQUEST)
        assert "containerd injects CDI devices since 1.7.30 and 2.1.0" in str(refused.value)
        assert host.container().nodes() == {}
        assert host.container(REQUEST, namespace="default").nodes() == {}
        assert plugin.status()["runtime"]["cdi"] == "drops"


@pytest.mark.usefixtures("raw")
def test_raw_nodes_mounts_and_variables_are_those_of_the_spec(host: Containerd) -> None:
    container = host.container("NVIDIA_VISIBLE_DEVICES=all")
    assert container.nodes() == numbers(*NODES)
    assert container.sh(f"cat {LIBRARY}") == "the driver\n"
    assert container.environment()["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert container.spec()["annotations"][INJECTED_ANNOTATION] == f"{KIND}=all"


@pytest.mark.usefixtures("raw")
def test_raw_nodes_can_be_read_and_other_nodes_are_missing(host: Containerd) -> None:
    container = host.container(REQUEST)
    assert container.sh("head -c 7 /dev/nvidia0 | wc -c") == "7\n"
    assert "No such file" in container.sh("head -c 7 /dev/nvidia1")


@pytest.mark.usefixtures("raw")
def test_the_cgroup_permits_only_the_raw_nodes_of_the_container(host: Containerd) -> None:
    """The kernel first checks the cgroup, and then searches the driver. This machine lacks the driver."""
    write_specs(host.specs, {"dead": (DEAD,)})
    container = host.container("NVIDIA_VISIBLE_DEVICES=dead")
    assert container.sh(f"cat {DEAD}") == f"cat: can't open '{DEAD}': No such device or address\n"
    other = "mknod /tmp/other c 195 9 && cat /tmp/other"
    assert container.sh(other) == "cat: can't open '/tmp/other': Operation not permitted\n"


@pytest.mark.usefixtures("raw")
def test_a_raw_response_of_more_than_a_megabyte_arrives_complete(host: Containerd) -> None:
    env = [f"LONG{number}={'x' * 100_000}" for number in range(12)]
    write_specs(host.specs, env=["NVIDIA_VISIBLE_DEVICES=void", *env])
    container = host.container(REQUEST)
    assert container.nodes() == numbers("/dev/nvidia0")
    found = container.environment()
    assert [f"LONG{number}={found[f'LONG{number}']}" for number in range(12)] == env


def test_raw_mounts_are_only_those_of_the_capabilities_with_restrict_driver_files(host: Containerd) -> None:
    part = json.loads((host.specs / "nvidia.com-gpu.json").read_text())
    part["kind"] = f"{KIND}-compute"
    part["containerEdits"]["mounts"] = []
    (host.specs / "nvidia.com-gpu-compute.json").write_text(json.dumps(part))
    with running_plugin(host, unsupported_cdi="raw", restrict_driver_files=True):
        found = [host.container(REQUEST, f"NVIDIA_DRIVER_CAPABILITIES={words}") for words in ("", "all")]
    (host.specs / "nvidia.com-gpu-compute.json").unlink()
    assert [container.nodes() for container in found] == [numbers("/dev/nvidia0")] * 2
    assert [container.sh(f"ls {LIBRARY} 2>/dev/null") for container in found] == ["", f"{LIBRARY}\n"]


def test_a_container_is_refused_if_nri_lacks_an_edit_of_its_spec(host: Containerd, raw: Plugin) -> None:
    write_specs(host.specs, deviceNodes=[{"path": "/dev/pipe", "type": "p"}])
    with pytest.raises(CriError, match="cannot be injected into a runtime that drops CDI devices") as refused:
        host.container(REQUEST)
    assert "the node /dev/pipe is of type 'p', not b or c" in str(refused.value)
    assert raw.is_registered()
