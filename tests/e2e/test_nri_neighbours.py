"""`cdigen nri` on a real containerd that has other NRI plugins as well."""

from collections.abc import Iterator

import pytest
from support.containers.containerd_host import Containerd
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import (
    KIND,
    LIBRARY,
    MARK,
    numbers,
    running_foreign,
    running_plugin,
)

from cdigen.nri.pods import Adjustment

pytestmark = pytest.mark.e2e

GPU0, GPU1 = numbers("/dev/nvidia0"), numbers("/dev/nvidia1")
INJECTED = 'cdigen_nri_containers_total{outcome="inject"}'
FIRST, LAST = "10", "30"  # before and after cdigen's 20


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    yield containerd
    containerd.remove_all()


def test_of_two_cdigens_only_the_first_gives_a_container_its_devices(host: Containerd) -> None:
    """Never both: its hooks would run twice. Plain containers are nobody's matter."""
    with running_plugin(host) as first, running_plugin(host, name="another", index=LAST) as later:
        container = host.container("NVIDIA_VISIBLE_DEVICES=0")
        assert container.nodes() == GPU0
        assert [mount["destination"] for mount in container.spec()["mounts"]].count(LIBRARY) == 1
        assert host.container().nodes() == {}
        assert [plugin.metric(INJECTED) for plugin in (first, later)] == [1, 0]


def test_two_cdigens_with_a_namespace_each_are_no_trouble(host: Containerd) -> None:
    other = [{"namespaces": ["batch"]}]
    with running_plugin(host), running_plugin(host, name="another", index=LAST, allow=other):
        assert host.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0
        assert host.container("NVIDIA_VISIBLE_DEVICES=1", namespace="batch").nodes() == GPU1


def test_what_another_plugin_sets_in_the_environment_counts(host: Containerd) -> None:
    """A device plugin's stand-in, say, chooses the GPU."""
    chosen = Adjustment(env={"NVIDIA_VISIBLE_DEVICES": "1"})
    with running_plugin(host), running_foreign(host, chosen, index=FIRST):
        assert host.container("NVIDIA_VISIBLE_DEVICES=all").nodes() == GPU1


def test_what_a_later_plugin_sets_is_there_too(host: Containerd) -> None:
    with running_plugin(host), running_foreign(host, Adjustment(env={"A": "1"}), index=LAST) as foreign:
        container = host.container("NVIDIA_VISIBLE_DEVICES=0")
    assert container.nodes() == GPU0
    assert container.environment()["A"] == "1"
    assert foreign.seen[-1].container.annotations[MARK] == f"{KIND}=0"


@pytest.mark.parametrize("index", [FIRST, LAST])
def test_a_container_is_refused_that_another_plugin_gives_the_same_device(
    host: Containerd, index: str
) -> None:
    """The runtime's own rule: a device has one owner."""
    with (
        running_plugin(host),
        running_foreign(host, Adjustment(cdi_devices=(f"{KIND}=0",)), index=index),
        pytest.raises(CriError, match=f"both tried to set CDI device {KIND}=0") as refused,
    ):
        host.container("NVIDIA_VISIBLE_DEVICES=0")
    assert f'"{index}-foreign"' in str(refused.value)
    assert '"20-cdigen"' in str(refused.value)


def test_what_another_plugin_serves_is_left_to_it(host: Containerd) -> None:
    annotations = {"cdi-devices.noderesource.dev": f"[{KIND}=0]"}
    with (
        running_plugin(host, annotations=["cdigen"]) as plugin,
        running_foreign(host, Adjustment(cdi_devices=(f"{KIND}=0",))),
    ):
        container = host.container(annotations=annotations)
        assert plugin.is_registered()
    assert container.nodes() == GPU0


def test_a_plugin_that_is_slow_costs_nobody_a_gpu(host: Containerd) -> None:
    """The runtime waits 2 s for it and goes on without it."""
    with running_plugin(host), running_foreign(host, Adjustment(), index=FIRST) as foreign:
        foreign.is_slow = True
        assert host.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0


def test_namespaces_of_several_rows_have_each_their_own(host: Containerd) -> None:
    rows = [
        {"namespaces": ["ml"], "sources": ["annotation"]},
        {"namespaces": ["batch-*"], "labels": {"gpus": "*"}},
    ]
    with running_plugin(host, allow=rows):
        assert host.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == {}
        assert host.container(annotations={"devices.cdigen.dev": f"{KIND}=0"}).nodes() == GPU0
        assert host.container("NVIDIA_VISIBLE_DEVICES=0", namespace="batch-7").nodes() == {}
        pod = host.pod(namespace="batch-7", labels={"gpus": "yes"})
        assert pod.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0


def test_a_row_may_be_for_a_runtime_class_alone(host: Containerd) -> None:
    with running_plugin(host, allow=[{"namespaces": ["*"], "runtime_handlers": ["gpus"]}]):
        assert host.pod(handler="gpus").container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0
        assert host.pod(handler="runc").container("NVIDIA_VISIBLE_DEVICES=0").nodes() == {}
        assert host.pod().container("NVIDIA_VISIBLE_DEVICES=0").nodes() == {}


def test_a_row_may_be_for_pods_without_a_runtime_class(host: Containerd) -> None:
    with running_plugin(host, allow=[{"namespaces": ["*"], "runtime_handlers": [""]}]):
        assert host.pod().container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0
        assert host.pod(handler="gpus").container("NVIDIA_VISIBLE_DEVICES=0").nodes() == {}
