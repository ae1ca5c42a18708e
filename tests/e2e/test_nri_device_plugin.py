"""`cdigen nri` beside what NVIDIA's device plugin answers in each of its strategies, on real containerds.

A kubelet hands on to the runtime what the plugin's Allocate answers (internal/plugin/server.go). One
containerd injects CDI devices of plugins; the other (1.7, its version is printed) does not, so that it gets
nodes and mounts.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.containers.containerd_host import Container, Containerd
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import (
    LIBRARY,
    MARK,
    containerd_with_specs,
    numbers,
    running_plugin,
)
from support.nri.host import LISTS, UUID

pytestmark = pytest.mark.e2e

OWN_KIND = "k8s.device-plugin.nvidia.com/gpu"
LISTED = f"NVIDIA_VISIBLE_DEVICES={LISTS}"
ALL = "NVIDIA_VISIBLE_DEVICES=all"
GPU0, GPU1 = numbers("/dev/nvidia0"), numbers("/dev/nvidia1")
# In "shared" as NVIDIA's runtime where it takes device lists by volume mounts, and the environment of
# privileged containers alone.
ALLOW = (
    {"namespaces": ["ml"]},
    {"namespaces": ["shared"], "sources": ["mounts"]},
    {"namespaces": ["shared"], "sources": ["environment"], "privileged": True},
)


@pytest.fixture(scope="module", params=["forky", "trixie"])
def containerd(cache: Path, request: pytest.FixtureRequest) -> Iterator[Containerd]:
    with containerd_with_specs(cache, request.param) as host:
        own = json.loads((host.specs / "nvidia.com-gpu.json").read_text())
        (host.specs / "k8s.json").write_text(json.dumps({**own, "kind": OWN_KIND}))
        with running_plugin(host, allow=ALLOW, unsupported_cdi="raw"):
            yield host


def listed(*names: str) -> list[dict[str, str]]:
    """Return the mounts by which the plugin lists the devices NAMES."""
    return [{"host_path": "/dev/null", "container_path": f"{LISTS}/{name}"} for name in names]


def injected(container: Container) -> str:
    """Return what the plugin has given CONTAINER."""
    return str(container.spec()["annotations"].get(MARK, ""))


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    yield containerd
    containerd.remove_all()


@pytest.mark.parametrize(
    ("env", "answer", "by_us"),
    [
        (f"NVIDIA_VISIBLE_DEVICES={UUID}", {}, True),
        (LISTED, {"mounts": listed(UUID)}, True),
        (ALL, {"annotations": {"cdi.k8s.io/nvidia-device-plugin_3c7f": f"{OWN_KIND}={UUID}"}}, False),
        (ALL, {"cdi_devices": [{"name": f"{OWN_KIND}={UUID}"}]}, False),
    ],
    ids=["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"],
)
def test_a_container_gets_what_the_device_plugin_has_allocated_and_gets_it_once(
    host: Containerd, env: str, answer: Mapping[str, object], *, by_us: bool
) -> None:
    container = host.pod().container(env, **answer)
    assert container.nodes() == GPU0
    assert container.sh(f"cat {LIBRARY}") == "the driver\n"
    assert bool(injected(container)) is by_us


def test_a_device_list_counts_where_the_environment_does_not_and_stays(host: Containerd) -> None:
    pod = host.pod(namespace="shared")
    container = pod.container(LISTED, mounts=listed("1"))
    assert container.nodes() == GPU1
    assert container.sh(f"ls {LISTS}") == "1\n"
    assert pod.container(ALL, name="image", mounts=listed("cdi/nvidia.com/gpu/1")).nodes() == GPU1
    assert pod.container(ALL, name="bare").nodes() == {}
    other = [{"host_path": "/dev/zero", "container_path": f"{LISTS}/1"}]
    assert pod.container(ALL, name="zero", mounts=other).nodes() == {}


def test_the_environment_counts_for_privileged_containers_alone(host: Containerd) -> None:
    container = host.pod(namespace="shared", privileged=True).container("NVIDIA_VISIBLE_DEVICES=1")
    assert injected(container) == "nvidia.com/gpu=1"


@pytest.mark.parametrize("name", ["9", "cdi/nvidia.com", "\N{BLACK STAR}", "a b"])
def test_a_device_list_that_cannot_be_served_is_refused(host: Containerd, name: str) -> None:
    with pytest.raises(CriError, match=f"mount in {LISTS}"):
        host.container(LISTED, mounts=listed(name))
