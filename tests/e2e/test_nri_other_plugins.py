"""`cdigen nri` runs on a real containerd together with other NRI plugins or with a second instance."""

from collections.abc import Iterator

import pytest
from support.containers.containerd_host import Containerd
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import (
    INJECTED_ANNOTATION,
    KIND,
    LIBRARY,
    numbers,
    running_foreign,
    running_plugin,
)

from cdigen.nri.pods import Adjustment

pytestmark = pytest.mark.e2e

GPU0, GPU1 = numbers("/dev/nvidia0"), numbers("/dev/nvidia1")
INJECTED = 'cdigen_nri_containers_total{outcome="inject"}'
FIRST, LAST = "10", "30"  # indexes before and after cdigen's 20


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    yield containerd
    containerd.remove_all()


def test_only_the_first_of_two_instances_injects_the_requested_device(host: Containerd) -> None:
    """Two injections would run the hooks twice. Both instances ignore containers without a request."""
    with running_plugin(host) as first, running_plugin(host, name="another", index=LAST) as later:
        container = host.container("NVIDIA_VISIBLE_DEVICES=0")
        assert container.nodes() == GPU0
        assert [mount["destination"] for mount in container.spec()["mounts"]].count(LIBRARY) == 1
        assert host.container().nodes() == {}
        assert [plugin.metric(INJECTED) for plugin in (first, later)] == [1, 0]


def test_two_instances_can_serve_different_namespaces(host: Containerd) -> None:
    other = [{"namespaces": ["batch"]}]
    with running_plugin(host), running_plugin(host, name="another", index=LAST, allow=other):
        assert host.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0
        assert host.container("NVIDIA_VISIBLE_DEVICES=1", namespace="batch").nodes() == GPU1


def test_a_variable_that_an_earlier_plugin_sets_selects_the_gpu(host: Containerd) -> None:
    """The earlier plugin chooses the GPU, as a device plugin does."""
    chosen = Adjustment(env={"NVIDIA_VISIBLE_DEVICES": "1"})
    with running_plugin(host), running_foreign(host, chosen, index=FIRST):
        assert host.container("NVIDIA_VISIBLE_DEVICES=all").nodes() == GPU1


def test_changes_of_a_later_plugin_are_kept(host: Containerd) -> None:
    with running_plugin(host), running_foreign(host, Adjustment(env={"A": "1"}), index=LAST) as foreign:
        container = host.container("NVIDIA_VISIBLE_DEVICES=0")
    assert container.nodes() == GPU0
    assert container.environment()["A"] == "1"
    assert foreign.requests[-1].container.annotations[INJECTED_ANNOTATION] == f"{KIND}=0"


@pytest.mark.parametrize("index", [FIRST, LAST])
def test_a_container_fails_if_two_plugins_inject_the_same_device(host: Containerd, index: str) -> None:
    """The runtime permits only one plugin to set a device."""
    with (
        running_plugin(host),
        running_foreign(host, Adjustment(cdi_devices=(f"{KIND}=0",)), index=index),
        pytest.raises(CriError, match=f"both tried to set CDI device {KIND}=0") as refused,
    ):
        host.container("NVIDIA_VISIBLE_DEVICES=0")
    assert f'"{index}-foreign"' in str(refused.value)
    assert '"20-cdigen"' in str(refused.value)


def test_the_annotations_of_another_plugin_can_be_ignored(host: Containerd) -> None:
    annotations = {"cdi-devices.noderesource.dev": f"[{KIND}=0]"}
    with (
        running_plugin(host, annotations=["cdigen"]) as plugin,
        running_foreign(host, Adjustment(cdi_devices=(f"{KIND}=0",))),
    ):
        container = host.container(annotations=annotations)
        assert plugin.is_registered()
    assert container.nodes() == GPU0


def test_a_slow_plugin_does_not_affect_the_injection(host: Containerd) -> None:
    """The runtime waits 2 s for the slow plugin, and continues without it."""
    with running_plugin(host), running_foreign(host, Adjustment(), index=FIRST) as foreign:
        foreign.is_slow = True
        assert host.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0


def test_each_rule_applies_to_its_namespaces(host: Containerd) -> None:
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


def test_a_rule_can_apply_only_to_pods_with_a_runtime_class(host: Containerd) -> None:
    with running_plugin(host, allow=[{"namespaces": ["*"], "runtime_handlers": ["gpus"]}]):
        assert host.pod(handler="gpus").container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0
        assert host.pod(handler="runc").container("NVIDIA_VISIBLE_DEVICES=0").nodes() == {}
        assert host.pod().container("NVIDIA_VISIBLE_DEVICES=0").nodes() == {}


def test_a_rule_can_apply_to_pods_without_a_runtime_class(host: Containerd) -> None:
    with running_plugin(host, allow=[{"namespaces": ["*"], "runtime_handlers": [""]}]):
        assert host.pod().container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0
        assert host.pod(handler="gpus").container("NVIDIA_VISIBLE_DEVICES=0").nodes() == {}
