"""Devices that a container already has (outcome "served"), and other plugins that inject devices."""

import pytest
from support.nri.host import container, content, devices, inventory, outcome
from support.nri.host import host_gpus as host_gpus_by

from cdigen.config import GpuKind
from cdigen.model.inventory import HostNode, Partition
from cdigen.nri.decision.limits.existing_devices import conflicting_plugins, injected_by_other_plugin
from cdigen.nri.decision.request.host_gpus import HostGpus
from cdigen.value import replace

GPU0 = "NVIDIA_VISIBLE_DEVICES=0"
NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
DRIVER = ("/usr/lib/x86_64-linux-gnu/libcuda.so.1",)
OWN = {"devices.cdigen.dev": "nvidia.com/gpu=0"}


@pytest.mark.parametrize(
    ("path", "annotations"),
    [
        ("/dev/nvidia0", None),
        ("/dev/nvidia0", OWN),
        ("/dev/nvidia15", None),
        ("/dev/nvhost-gpu", None),
        ("/dev/nvgpu/igpu0/channel", None),
    ],
)
def test_a_container_with_nodes_of_gpus_gets_no_gpu(path: str, annotations: dict[str, str] | None) -> None:
    decision = outcome(
        GPU0, pod_annotations=annotations, here=container(devices=("/dev/null", path), mounts=DRIVER)
    )
    assert (decision.outcome, decision.devices) == ("served", ())
    assert [path in ignored.text for ignored in decision.ignored_requests if ignored.cause == "served"] == [
        True
    ]


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("nvidia.com/gpu=0", ("/dev/nvidia1",)),
        ("nvidia.com/gpu=1:0", ("/dev/nvidia0",)),
        ("nvidia.com/gpu=1:0", ("/dev/nvidia1",)),
        ("nvidia.com/gpu=all", ("/dev/nvidia0",)),
    ],
)
def test_a_qualified_name_is_injected_beside_another_gpu(name: str, nodes: tuple[str, ...]) -> None:
    part = Partition(
        index=0,
        uuid=None,
        profile="1g.10gb",
        instance="gi1/ci0",
        graphics=False,
        nodes=tuple(capability(number) for number in (12, 13)),
        usable=True,
    )
    first, second, *_ = inventory().accelerators
    host_gpus = host_gpus_by(content(inventory(accelerators=(first, replace(second, partitions=(part,))))))
    annotated = {"devices.cdigen.dev": name}
    assert devices(pod_annotations=annotated, host_gpus=host_gpus, here=container(devices=nodes)) == (name,)
    every = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")
    assert (
        devices(pod_annotations=annotated, host_gpus=host_gpus, here=container(devices=every, mounts=DRIVER))
        == ()
    )
    # Without an inventory, a node of any GPU means that the request is served.
    unknown = HostGpus(problem="there is no inventory")
    assert (
        devices(pod_annotations=annotated, host_gpus=unknown, here=container(devices=nodes, mounts=DRIVER))
        == ()
    )


def capability(number: int) -> HostNode:
    path = f"/dev/nvidia-caps/nvidia-cap{number}"
    return HostNode(path=path, host_path=path, role="mig", major=236, minor=number, mode=0o444, uid=0, gid=0)


def test_one_gpu_node_does_not_serve_a_management_request() -> None:
    asked = {"devices.cdigen.dev": "nvidia.com/management=all"}
    here = container(devices=NODES)
    assert devices(pod_annotations=asked, management_namespaces=("ml",), here=here) == (
        "nvidia.com/management=all",
    )


def test_the_wsl_node_is_an_nvidia_gpu_if_nvidias_files_are_mounted() -> None:
    here = container(devices=("/dev/dxg",))
    assert devices(GPU0, here=here) == ("nvidia.com/gpu=0",)
    files = container(devices=("/dev/dxg",), mounts=("/usr/lib/wsl/lib/libdxcore.so",))
    assert outcome(GPU0, here=files).outcome == "served"


@pytest.mark.parametrize(
    "path",
    [
        "/dev/null",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-caps-imex-channels/channel0",
        "/dev/nvidia-fs0",
    ],
)
def test_nodes_of_other_devices_do_not_serve_a_gpu_request(path: str) -> None:
    assert devices(GPU0, here=container(devices=(path,))) == ("nvidia.com/gpu=0",)


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=GPU-x",
        "k8s.gpu.nvidia.com/claim=u-gpu-0",
        "runtime.nvidia.com/gpu=0",
        "k8s.device-plugin.nvidia.com/gpu=GPU-x",
        "management.nvidia.com/gpu=all",
        "nvidia.com/gpu-compute=0",
        "nvidia.com/mig-1g.10gb=0",
        "nvidia.com/management=all",
    ],
)
def test_a_cdi_device_of_the_kubelet_serves_the_gpu_request_in_the_environment(name: str) -> None:
    assert outcome(GPU0, here=container(cdi=(name,))).outcome == "served"


@pytest.mark.parametrize(
    "name",
    [
        "k8s.compute-domain.nvidia.com/claim=u-channel-0",
        "k8s.compute-domain.nvidia.com/device=channel-0",
        "nvidia.com/pgpu=0",
        "nvidia.com/imex-channel=0",
        "nvidia.com/gds=all",
        "nvidia.com/mig=mig-config",
        "example.com/gpu=0",
        "notnvidia.com/gpu=0",
    ],
)
def test_a_device_that_is_no_application_gpu_does_not_serve_a_gpu_request(name: str) -> None:
    assert devices(GPU0, here=container(cdi=(name,))) == ("nvidia.com/gpu=0",)


def test_configured_gpu_kinds_serve_gpu_requests() -> None:
    kinds = (GpuKind(kind="nvidia.com/compute"), GpuKind(kind="nvidia.com/gpu"))
    here = container(cdi=("nvidia.com/compute=0",))
    assert outcome(GPU0, here=here, gpu_kinds=kinds).outcome == "served"
    assert devices(GPU0, here=here) == ("nvidia.com/gpu=0",)


def test_a_gds_device_of_the_device_plugin_serves_the_request() -> None:
    here = container(cdi=("k8s.device-plugin.nvidia.com/gpu=GPU-x", "k8s.device-plugin.nvidia.com/gds=all"))
    assert outcome(GPU0, "NVIDIA_GDS=enabled", here=here).outcome == "served"


def test_untrusted_text_in_ignored_requests_is_quoted() -> None:
    (ignored,) = outcome(
        "NVIDIA_VISIBLE_DEVICES=\x1b[31m", here=container(cdi=("nvidia.com/gpu=0",))
    ).ignored_requests
    assert ignored.text.startswith("'\\x1b[31m'")


def test_an_annotation_adds_devices_to_the_devices_of_the_kubelet() -> None:
    asked = {"devices.cdigen.dev": "nvidia.com/gpu=0,nvidia.com/gds=all"}
    assert devices(pod_annotations=asked, here=container(cdi=("nvidia.com/gpu=0",))) == (
        "nvidia.com/gds=all",
    )


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("nvidia.com/imex-channel=7", "/dev/nvidia-caps-imex-channels/channel7"),
        ("nvidia.com/gds=all", "/dev/nvidia-fs0"),
        ("nvidia.com/gdrcopy=all", "/dev/gdrdrv"),
        ("nvidia.com/mofed=all", "/dev/infiniband/uverbs0"),
        ("nvidia.com/nvswitch=all", "/dev/nvidia-nvswitchctl"),
    ],
)
def test_other_nvidia_devices_are_recognized_by_their_nodes(name: str, path: str) -> None:
    asked = {"devices.cdigen.dev": name}
    settings = {"pod_annotations": asked, "management_namespaces": ("ml",)}
    assert devices(here=container(devices=(path,)), **settings) == ()
    assert devices(here=container(devices=NODES), **settings) == (name,)


def test_gpu_nodes_of_a_privileged_container_do_not_serve_its_request() -> None:
    here = container(devices=(*NODES, "/dev/mem", "/dev/kmsg"))
    assert devices(GPU0, here=replace(here, may_use_all_devices=True)) == ("nvidia.com/gpu=0",)


def test_a_device_plugins_node_does_not_make_a_container_privileged() -> None:
    here = container(devices=(*NODES, "/dev/kmsg"), mounts=DRIVER)
    assert outcome(GPU0, here=here).outcome == "served"


def test_void_requests_nothing_and_a_container_with_void_and_gpu_nodes_is_served() -> None:
    void = "NVIDIA_VISIBLE_DEVICES=void"
    assert outcome(void).outcome == "nothing"
    assert outcome(void, here=container(devices=NODES)).outcome == "served"
    assert outcome(void, pod_annotations=OWN, here=container(devices=NODES)).outcome == "served"


def test_void_does_not_cancel_an_annotation() -> None:
    assert devices("NVIDIA_VISIBLE_DEVICES=void", pod_annotations=OWN) == ("nvidia.com/gpu=0",)


@pytest.mark.parametrize(
    ("more", "lacks"),
    [
        ({}, True),
        ({"mounts": ("/usr/lib/x86_64-linux-gnu/libcuda.so.1",)}, False),
        ({"mounts": ("/usr/local/nvidia",)}, False),
        ({"mounts": ("/usr/local/cdigen/nvidia.com/gpu-compute",)}, False),
        ({"mounts": ("/usr/local/cdigen/nvidia.com/gpu-compute/lib64",)}, False),
        ({"mounts": ("/usr/local/cdigen/amd.com/gpu",)}, True),
        ({"mounts": ("/data",)}, True),
        ({"cdi": ("nvidia.com/gpu=0",)}, False),
    ],
)
def test_nodes_without_the_drivers_files_are_reported(
    more: dict[str, tuple[str, ...]], *, lacks: bool
) -> None:
    here = container(devices=NODES, **more)
    decision = outcome(GPU0, here=here, nodes_without_driver="warn")
    assert decision.outcome == "served"
    assert any(ignored.cause == "nodes_without_driver" for ignored in decision.ignored_requests) is lacks
    refused = outcome(GPU0, here=here, nodes_without_driver="refuse")
    assert (refused.outcome, refused.cause) == (
        ("refuse", "nodes_without_driver") if lacks else ("served", "")
    )


def test_a_container_with_its_gpus_is_not_refused_for_unknown_names() -> None:
    asked = "NVIDIA_VISIBLE_DEVICES=GPU-of-another-spec"
    assert outcome(asked).outcome == "refuse"
    here = container(devices=NODES, mounts=DRIVER)
    assert outcome(asked, "NVIDIA_REQUIRE_CUDA=cuda>=99", here=here).outcome == "served"


def test_conflicting_plugins_are_recognized_by_name() -> None:
    names = ["10-device-injector", "20-cdigen", "05-acme_device-injector.v2", "ulimit", "device-injector"]
    found = conflicting_plugins(names, ("cdigen", "nvidia", "noderesource"))
    assert found == (("05-acme_device-injector.v2", "noderesource"), ("10-device-injector", "noderesource"))
    assert conflicting_plugins(names, ("cdigen", "nvidia")) == ()
    registered = [
        "00-default-validator",
        "10-nvidia-ctk-installer",
        "20-cdigen",
        "10-nvidia-toolkit",
        "30-x-nvidia",
    ]
    assert conflicting_plugins(registered, ("cdigen", "noderesource")) == ()
    assert conflicting_plugins(registered, ("nvidia",)) == (
        ("10-nvidia-ctk-installer", "nvidia"),
        ("10-nvidia-toolkit", "nvidia"),
    )


ASKED = (("devices.cdigen.dev", "cdigen"), ("nvidia.cdi.k8s.io/pod", "nvidia"))
MARK = "cdigen.dev/injected"


def test_gpu_nodes_without_a_marker_are_from_another_plugin() -> None:
    here = container(devices=NODES)
    assert injected_by_other_plugin(here, ASKED) == ("nvidia.cdi.k8s.io/pod",)
    assert injected_by_other_plugin(container(), ASKED) == ()
    assert injected_by_other_plugin(container(devices=NODES, cdi=("a.b/c=d",)), ASKED) == ()
