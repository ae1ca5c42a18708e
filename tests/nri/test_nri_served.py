"""What somebody else has given a container already, and who else may."""

import pytest
from nri.nriwishes import container, devices, outcome

from cdigen.nri.served import injected_by_another, other_injectors

GPU0 = "NVIDIA_VISIBLE_DEVICES=0"
NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
OWN = {"devices.cdigen.dev": "nvidia.com/gpu=0"}


@pytest.mark.parametrize("path", ["/dev/nvidia0", "/dev/nvidia15", "/dev/nvidiactl", "/dev/dxg"])
@pytest.mark.parametrize("asked", [None, OWN])
def test_a_container_with_nodes_of_gpus_gets_no_gpu_again(path: str, asked: dict[str, str] | None) -> None:
    decision = outcome(GPU0, asked=asked, here=container(devices=("/dev/null", path)))
    assert (decision.outcome, decision.devices) == ("served", ())
    assert [path in note.text for note in decision.notes if note.cause == "served"] == [True]


@pytest.mark.parametrize("path", ["/dev/null", "/dev/nvidia-caps-imex-channels/channel0", "/dev/nvidia-fs0"])
def test_other_nodes_are_no_gpus(path: str) -> None:
    assert devices(GPU0, here=container(devices=(path,))) == ("nvidia.com/gpu=0",)


def test_amd_gpus_show_by_their_nodes_as_well() -> None:
    from cdigen.nri.select import Names  # noqa: PLC0415 - of this test alone

    names = Names(["amd.com/gpu=0"])
    assert devices("AMD_VISIBLE_DEVICES=0", names=names) == ("amd.com/gpu=0",)
    assert devices("AMD_VISIBLE_DEVICES=0", names=names, here=container(devices=("/dev/kfd",))) == ()


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=GPU-x",
        "k8s.gpu.nvidia.com/claim=u-gpu-0",
        "runtime.nvidia.com/gpu=0",
    ],
)
def test_what_kubelet_asked_for_is_not_asked_for_again_by_the_environment(name: str) -> None:
    assert outcome(GPU0, here=container(cdi=(name,))).outcome == "served"


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
    assert devices(asked=asked, here=container(devices=(path,))) == ()
    assert devices(asked=asked, here=container(devices=NODES)) == (name,)


def test_a_privileged_container_has_every_node_of_the_host_and_no_driver() -> None:
    here = container(devices=(*NODES, "/dev/mem", "/dev/kmsg"))
    assert devices(GPU0, here=here) == ("nvidia.com/gpu=0",)


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
        ({"mounts": ("/data",)}, True),
        ({"cdi": ("nvidia.com/gpu=0",)}, False),
    ],
)
def test_nodes_without_the_drivers_files_are_reported(
    more: dict[str, tuple[str, ...]], *, lacks: bool
) -> None:
    decision = outcome(GPU0, here=container(devices=NODES, **more))
    assert decision.outcome == "served"
    assert any(note.cause == "nodes_without_driver" for note in decision.notes) is lacks


def test_a_container_that_has_its_gpus_is_not_refused_for_names_that_no_spec_has() -> None:
    asked = "NVIDIA_VISIBLE_DEVICES=GPU-of-another-spec"
    assert outcome(asked).outcome == "refuse"
    assert outcome(asked, "NVIDIA_REQUIRE_CUDA=cuda>=99", here=container(devices=NODES)).outcome == "served"


def test_files_of_other_injectors_are_known() -> None:
    names = ["10-device-injector", "20-cdigen", "05-acme_device-injector.v2", "ulimit", "device-injector"]
    found = other_injectors(names, ("cdigen", "nvidia", "noderesource"))
    assert found == (("05-acme_device-injector.v2", "noderesource"), ("10-device-injector", "noderesource"))
    assert other_injectors(names, ("cdigen", "nvidia")) == ()


ASKED = (("devices.cdigen.dev", "cdigen"), ("nvidia.cdi.k8s.io/pod", "nvidia"))
MARK = "cdigen.dev/injected"


def test_gpus_that_an_annotation_asked_for_and_cdigen_did_not_give_came_from_another() -> None:
    here = container(devices=NODES)
    assert injected_by_another(here, ASKED, {}, MARK) == ("nvidia.cdi.k8s.io/pod",)
    assert injected_by_another(here, ASKED, {MARK: "nvidia.com/gpu=0"}, MARK) == ()
    assert injected_by_another(container(), ASKED, {}, MARK) == ()
    assert injected_by_another(container(devices=NODES, cdi=("a.b/c=d",)), ASKED, {}, MARK) == ()
