"""What somebody else has given a container already, and who else may."""

import pytest
from support.nri.host import container, content, devices, inventory, outcome
from support.nri.host import machine as machine_by

from cdigen.config import GpuKind
from cdigen.model.inventory import HostNode, Partition
from cdigen.nri.decision.existing_devices import injected_by_another, other_injectors
from cdigen.nri.decision.machine import Machine
from cdigen.value import replace

GPU0 = "NVIDIA_VISIBLE_DEVICES=0"
NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
DRIVER = ("/usr/lib/x86_64-linux-gnu/libcuda.so.1",)
OWN = {"devices.cdigen.dev": "nvidia.com/gpu=0"}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/dev/nvidia0", None),
        ("/dev/nvidia0", OWN),
        ("/dev/nvidia15", None),
        ("/dev/nvhost-gpu", None),
        ("/dev/nvgpu/igpu0/channel", None),
    ],
)
def test_a_container_with_nodes_of_gpus_gets_no_gpu_again(path: str, asked: dict[str, str] | None) -> None:
    decision = outcome(GPU0, asked=asked, here=container(devices=("/dev/null", path), mounts=DRIVER))
    assert (decision.outcome, decision.devices) == ("served", ())
    assert [path in note.text for note in decision.notes if note.cause == "served"] == [True]


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        ("nvidia.com/gpu=0", ("/dev/nvidia1",)),
        ("nvidia.com/gpu=1:0", ("/dev/nvidia0",)),
        ("nvidia.com/gpu=1:0", ("/dev/nvidia1",)),
        ("nvidia.com/gpu=all", ("/dev/nvidia0",)),
    ],
)
def test_what_was_named_in_full_is_not_taken_for_another_gpu(asked: str, nodes: tuple[str, ...]) -> None:
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
    machine = machine_by(content(inventory(accelerators=(first, replace(second, partitions=(part,))))))
    annotated = {"devices.cdigen.dev": asked}
    assert devices(asked=annotated, machine=machine, here=container(devices=nodes)) == (asked,)
    every = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")
    assert devices(asked=annotated, machine=machine, here=container(devices=every, mounts=DRIVER)) == ()
    # Who cannot tell which node is whose takes any for it.
    unknown = Machine(problem="there is no inventory")
    assert devices(asked=annotated, machine=unknown, here=container(devices=nodes, mounts=DRIVER)) == ()


def capability(number: int) -> HostNode:
    path = f"/dev/nvidia-caps/nvidia-cap{number}"
    return HostNode(path=path, host_path=path, role="mig", major=236, minor=number, mode=0o444, uid=0, gid=0)


def test_all_for_those_who_administer_gpus_is_not_served_by_the_node_of_one() -> None:
    asked = {"devices.cdigen.dev": "nvidia.com/management=all"}
    here = container(devices=NODES)
    assert devices(asked=asked, management_namespaces=("ml",), here=here) == ("nvidia.com/management=all",)


def test_the_one_node_of_wsl_is_nvidias_where_its_files_are() -> None:
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
def test_other_nodes_are_no_gpus(path: str) -> None:
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
def test_what_kubelet_asked_for_is_not_asked_for_again_by_the_environment(name: str) -> None:
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
def test_what_is_no_gpu_for_programs_does_not_stand_for_one(name: str) -> None:
    assert devices(GPU0, here=container(cdi=(name,))) == ("nvidia.com/gpu=0",)


def test_kinds_of_the_configuration_are_gpus_by_whatever_name() -> None:
    kinds = (GpuKind(kind="nvidia.com/compute"), GpuKind(kind="nvidia.com/gpu"))
    here = container(cdi=("nvidia.com/compute=0",))
    assert outcome(GPU0, here=here, gpu_kinds=kinds).outcome == "served"
    assert devices(GPU0, here=here) == ("nvidia.com/gpu=0",)


def test_a_family_that_the_device_plugin_gave_under_its_own_name_is_there() -> None:
    given = container(cdi=("k8s.device-plugin.nvidia.com/gpu=GPU-x", "k8s.device-plugin.nvidia.com/gds=all"))
    assert outcome(GPU0, "NVIDIA_GDS=enabled", here=given).outcome == "served"


def test_notes_quote_what_anybody_may_have_written() -> None:
    (note,) = outcome("NVIDIA_VISIBLE_DEVICES=\x1b[31m", here=container(cdi=("nvidia.com/gpu=0",))).notes
    assert note.text.startswith("'\\x1b[31m'")


def test_an_annotation_adds_what_kubelet_did_not_ask_for() -> None:
    asked = {"devices.cdigen.dev": "nvidia.com/gpu=0,nvidia.com/gds=all"}
    assert devices(asked=asked, here=container(cdi=("nvidia.com/gpu=0",))) == ("nvidia.com/gds=all",)


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
def test_each_family_shows_by_its_own_nodes(name: str, path: str) -> None:
    asked = {"devices.cdigen.dev": name}
    given = {"asked": asked, "management_namespaces": ("ml",)}
    assert devices(here=container(devices=(path,)), **given) == ()
    assert devices(here=container(devices=NODES), **given) == (name,)


def test_a_privileged_container_has_every_node_of_the_host_and_no_driver() -> None:
    here = container(devices=(*NODES, "/dev/mem", "/dev/kmsg"))
    assert devices(GPU0, here=replace(here, may_use_all_devices=True)) == ("nvidia.com/gpu=0",)


def test_a_container_is_not_privileged_for_a_node_that_a_device_plugin_may_pass() -> None:
    here = container(devices=(*NODES, "/dev/kmsg"), mounts=DRIVER)
    assert outcome(GPU0, here=here).outcome == "served"


def test_void_asks_for_nothing_and_with_gpus_there_means_that_they_were_given() -> None:
    void = "NVIDIA_VISIBLE_DEVICES=void"
    assert outcome(void).outcome == "nothing"
    assert outcome(void, here=container(devices=NODES)).outcome == "served"
    assert outcome(void, asked=OWN, here=container(devices=NODES)).outcome == "served"


def test_void_alone_does_not_take_away_what_an_annotation_gives() -> None:
    assert devices("NVIDIA_VISIBLE_DEVICES=void", asked=OWN) == ("nvidia.com/gpu=0",)


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
    assert any(note.cause == "nodes_without_driver" for note in decision.notes) is lacks
    refused = outcome(GPU0, here=here, nodes_without_driver="refuse")
    assert (refused.outcome, refused.cause) == (
        ("refuse", "nodes_without_driver") if lacks else ("served", "")
    )


def test_a_container_that_has_its_gpus_is_not_refused_for_names_that_no_spec_has() -> None:
    asked = "NVIDIA_VISIBLE_DEVICES=GPU-of-another-spec"
    assert outcome(asked).outcome == "refuse"
    here = container(devices=NODES, mounts=DRIVER)
    assert outcome(asked, "NVIDIA_REQUIRE_CUDA=cuda>=99", here=here).outcome == "served"


def test_other_injectors_are_known_by_their_names() -> None:
    names = ["10-device-injector", "20-cdigen", "05-acme_device-injector.v2", "ulimit", "device-injector"]
    found = other_injectors(names, ("cdigen", "nvidia", "noderesource"))
    assert found == (("05-acme_device-injector.v2", "noderesource"), ("10-device-injector", "noderesource"))
    assert other_injectors(names, ("cdigen", "nvidia")) == ()
    told = [
        "00-default-validator",
        "10-nvidia-ctk-installer",
        "20-cdigen",
        "10-nvidia-toolkit",
        "30-x-nvidia",
    ]
    assert other_injectors(told, ("cdigen", "noderesource")) == ()
    assert other_injectors(told, ("nvidia",)) == (
        ("10-nvidia-ctk-installer", "nvidia"),
        ("10-nvidia-toolkit", "nvidia"),
    )


ASKED = (("devices.cdigen.dev", "cdigen"), ("nvidia.cdi.k8s.io/pod", "nvidia"))
MARK = "cdigen.dev/injected"


def test_gpus_that_an_annotation_asked_for_and_cdigen_did_not_give_came_from_another() -> None:
    here = container(devices=NODES)
    assert injected_by_another(here, ASKED) == ("nvidia.cdi.k8s.io/pod",)
    assert injected_by_another(container(), ASKED) == ()
    assert injected_by_another(container(devices=NODES, cdi=("a.b/c=d",)), ASKED) == ()
