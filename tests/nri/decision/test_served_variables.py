"""Requests in variables of vendors for devices that the container already has."""

import pytest
from support.nri.host import container, devices, outcome
from support.nri.vendor_kinds import KINDS, spec


@pytest.mark.parametrize(
    ("variable", "here"),
    [
        ("AMD_VISIBLE_DEVICES", {"devices": ("/dev/kfd",)}),
        ("AMD_VISIBLE_DEVICES", {"devices": ("/dev/dri/renderD128",)}),
        ("AMD_VISIBLE_DEVICES", {"cdi": ("k8s.gpu.amd.com/gpu=u-gpu-0",)}),
        ("AMD_VISIBLE_DEVICES", {"cdi": ("amd.com/gpu-compute=1",)}),
        ("HABANA_VISIBLE_DEVICES", {"devices": ("/dev/accel/accel7",)}),
        ("HABANA_VISIBLE_DEVICES", {"devices": ("/dev/hl0",)}),
        ("HABANA_VISIBLE_DEVICES", {"cdi": ("intel.com/gaudi=0000-01-00-0-0x1020",)}),
        ("ASCEND_VISIBLE_DEVICES", {"devices": ("/dev/davinci100",)}),
        ("ASCEND_VISIBLE_DEVICES", {"cdi": ("npu.huawei.com/ascend910=0",)}),
        ("ASCEND_VISIBLE_DEVICES", {"cdi": ("huawei.com/Ascend910=0",)}),
        ("AWS_NEURON_VISIBLE_DEVICES", {"devices": ("/dev/neuron15",)}),
        ("AWS_NEURON_VISIBLE_DEVICES", {"cdi": ("k8s.neuron.aws.com/claim=u",)}),
        ("TPU_VISIBLE_DEVICES", {"devices": ("/dev/accel0",)}),
        ("TPU_VISIBLE_DEVICES", {"devices": ("/dev/vfio/12",)}),
        ("TPU_VISIBLE_DEVICES", {"cdi": ("tpu.google.com/device=0",)}),
    ],
)
def test_devices_of_a_device_plugin_or_a_claim_are_not_injected_again(
    variable: str, here: dict[str, tuple[str, ...]]
) -> None:
    decision = outcome(f"{variable}=0", names=spec(KINDS[variable]), here=container(**here))
    assert (decision.outcome, [ignored.cause for ignored in decision.ignored_requests]) == (
        "served",
        ["served"],
    )


@pytest.mark.parametrize(
    ("variable", "here"),
    [
        ("AMD_VISIBLE_DEVICES", {"devices": ("/dev/nvidia0", "/dev/accel/accel0")}),
        ("AMD_VISIBLE_DEVICES", {"cdi": ("amd.com/npu=0",)}),
        ("HABANA_VISIBLE_DEVICES", {"devices": ("/dev/accel/accel_controlD0", "/dev/accel0")}),
        ("HABANA_VISIBLE_DEVICES", {"cdi": ("intel.com/gpu=0",)}),
        ("ASCEND_VISIBLE_DEVICES", {"devices": ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")}),
        ("AWS_NEURON_VISIBLE_DEVICES", {"cdi": ("aws.amazon.com/efa=0",)}),
        ("TPU_VISIBLE_DEVICES", {"devices": ("/dev/vfio/vfio",)}),
    ],
)
def test_other_nodes_and_cdi_devices_do_not_serve_a_request(
    variable: str, here: dict[str, tuple[str, ...]]
) -> None:
    kind = KINDS[variable]
    assert devices(f"{variable}=0", names=spec(kind), here=container(**here)) == (f"{kind}=0",)


@pytest.mark.parametrize(
    ("kind", "there", "other"),
    [
        ("aws.amazon.com/neuron", "/dev/neuron1", "/dev/neuron0"),
        ("huawei.com/npu", "/dev/davinci1", "/dev/davinci0"),
        ("intel.com/gaudi", "/dev/accel/accel1", "/dev/accel/accel0"),
        ("google.com/tpu", "/dev/accel1", "/dev/accel0"),
    ],
)
def test_a_qualified_name_is_served_by_the_node_with_its_number(kind: str, there: str, other: str) -> None:
    asked = {"devices.cdigen.dev": f"{kind}=1"}
    assert devices(pod_annotations=asked, names=spec(kind), here=container(devices=(there,))) == ()
    assert devices(pod_annotations=asked, names=spec(kind), here=container(devices=(other,))) == (
        f"{kind}=1",
    )


def test_all_replaces_the_single_devices_of_a_vendor() -> None:
    kind = "huawei.com/npu"
    asked = {"devices.cdigen.dev": f"{kind}=all,{kind}=0"}
    assert devices(pod_annotations=asked, names=spec(kind, "0", "all")) == (f"{kind}=all",)
