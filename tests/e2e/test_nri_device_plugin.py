"""With `cdigen nri`, real containerds inject the GPU with each strategy of NVIDIA's device plugin.

The kubelet passes the Allocate response of the device plugin to the runtime (internal/plugin/server.go). One
containerd injects CDI devices of NRI plugins. The other containerd (1.7; its version is printed) does not, so
`cdigen nri` adds nodes and mounts.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.containers.containerd_host import Container, Containerd
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import (
    INJECTED_ANNOTATION,
    LIBRARY,
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
# In the namespace shared, device lists as volume mounts select devices, and the environment selects devices
# only in privileged containers. NVIDIA's runtime has these options.
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
    """Return the mounts with which NVIDIA's plugin lists the devices NAMES."""
    return [{"host_path": "/dev/null", "container_path": f"{LISTS}/{name}"} for name in names]


def injected(container: Container) -> str:
    """Return the devices that `cdigen nri` injected into CONTAINER."""
    return str(container.spec()["annotations"].get(INJECTED_ANNOTATION, ""))


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    yield containerd
    containerd.remove_all()


@pytest.mark.parametrize(
    ("env", "response", "by_cdigen"),
    [
        (f"NVIDIA_VISIBLE_DEVICES={UUID}", {}, True),
        (LISTED, {"mounts": listed(UUID)}, True),
        (ALL, {"annotations": {"cdi.k8s.io/nvidia-device-plugin_3c7f": f"{OWN_KIND}={UUID}"}}, False),
        (ALL, {"cdi_devices": [{"name": f"{OWN_KIND}={UUID}"}]}, False),
    ],
    ids=["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"],
)
def test_a_container_gets_the_allocated_device_once(
    host: Containerd, env: str, response: Mapping[str, object], *, by_cdigen: bool
) -> None:
    container = host.pod().container(env, **response)
    assert container.nodes() == GPU0
    assert container.sh(f"cat {LIBRARY}") == "the driver\n"
    assert bool(injected(container)) is by_cdigen


def test_a_device_list_selects_devices_and_stays_mounted_if_only_mounts_are_permitted(
    host: Containerd,
) -> None:
    pod = host.pod(namespace="shared")
    container = pod.container(LISTED, mounts=listed("1"))
    assert container.nodes() == GPU1
    assert container.sh(f"ls {LISTS}") == "1\n"
    assert pod.container(ALL, name="image", mounts=listed("cdi/nvidia.com/gpu/1")).nodes() == GPU1
    assert pod.container(ALL, name="bare").nodes() == {}
    other = [{"host_path": "/dev/zero", "container_path": f"{LISTS}/1"}]
    assert pod.container(ALL, name="zero", mounts=other).nodes() == {}


def test_a_policy_can_permit_requests_by_environment_only_for_privileged_containers(host: Containerd) -> None:
    container = host.pod(namespace="shared", privileged=True).container("NVIDIA_VISIBLE_DEVICES=1")
    assert injected(container) == "nvidia.com/gpu=1"


@pytest.mark.parametrize("name", ["9", "cdi/nvidia.com", "\N{BLACK STAR}", "a b"])
def test_an_invalid_device_list_is_refused(host: Containerd, name: str) -> None:
    with pytest.raises(CriError, match=f"mount in {LISTS}"):
        host.container(LISTED, mounts=listed(name))
