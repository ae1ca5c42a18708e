"""The labels of a node: values that all GPUs have, and counts of values that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.kubelet.advertised_resources import h100, in_mig, sized, with_gpus, with_memory
from support.kubelet.labels import labels, some
from support.kubelet.resources import GPU
from support.values.unhealthy_gpus import ECC, example, with_causes

from cdigen.config import ResourceRow, SharedMemory, SharingRow
from cdigen.model.inventory import Driver, Group, GroupDevice
from cdigen.value import replace

if TYPE_CHECKING:
    from typing import Any

    from cdigen.model.inventory import Accelerator, Inventory

H100 = "NVIDIA-H100-80GB-HBM3"
FOUR = (SharingRow(resource=GPU, replicas=4),)


def a30(index: int) -> Accelerator:
    return replace(sized(index, 24576), model="NVIDIA A30")


def host_with(gpu: Accelerator) -> dict[str, Inventory]:
    """Return the inventories of a host that has only the accelerator GPU."""
    return {"nvidia": replace(example()["nvidia"], accelerators=(gpu,))}


def of_model(model: str) -> dict[str, Inventory]:
    return host_with(replace(h100(0), model=model))


def test_equal_gpus_have_the_labels_of_gpu_feature_discovery() -> None:
    driver = Driver(version="550.163.01", flavour="open", architecture="x86_64", cuda="12.4")
    host = replace(with_memory(example(), 81559)["nvidia"], driver=driver)
    assert labels({"nvidia": host}, machine="NVIDIA DGX H100") == {
        "nvidia.com/cuda.driver-version.full": "550.163.01",
        "nvidia.com/cuda.driver-version.major": "550",
        "nvidia.com/cuda.driver-version.minor": "163",
        "nvidia.com/cuda.driver-version.revision": "01",
        "nvidia.com/cuda.driver.major": "550",
        "nvidia.com/cuda.driver.minor": "163",
        "nvidia.com/cuda.driver.rev": "01",
        "nvidia.com/cuda.runtime-version.full": "12.4",
        "nvidia.com/cuda.runtime-version.major": "12",
        "nvidia.com/cuda.runtime-version.minor": "4",
        "nvidia.com/cuda.runtime.major": "12",
        "nvidia.com/cuda.runtime.minor": "4",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.machine": "NVIDIA-DGX-H100",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.product": H100,
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/mps.capable": "false",
    }


def test_gpus_of_two_models_are_counted_for_each_model() -> None:
    found = labels(with_gpus(a30(0), a30(1)))
    assert some(found, f"{GPU}.product") == {".NVIDIA-A30": "2", f".{H100}": "6"}
    assert some(found, f"{GPU}.family") == {".ampere": "2", ".hopper": "6"}
    assert some(found, f"{GPU}.compute.major") == {".8": "2", ".9": "6"}
    # The minor number is equal for all GPUs. The memory is known only for some GPUs.
    assert found[f"{GPU}.compute.minor"] == "0"
    assert some(found, f"{GPU}.memory") == {".24576": "2"}
    assert found[f"{GPU}.count"] == "8"


def test_mig_instances_on_a_node_with_whole_gpus_have_their_own_labels() -> None:
    found = labels(with_gpus(in_mig(h100(0), "1g.10gb", "1g.10gb", "1c.3g.40gb"), in_mig(h100(1), "1g.10gb")))
    assert found[f"{GPU}.count"] == "8"
    assert found[f"{GPU}.product"] == H100
    # A split GPU has 0 replicas, because no container gets the whole GPU.
    assert some(found, f"{GPU}.replicas") == {".0": "2", ".1": "6"}
    assert some(found, "nvidia.com/mig-1g.10gb.") == {
        "count": "3",
        "product": f"{H100}-MIG-1g.10gb",
        "replicas": "1",
        "sharing-strategy": "none",
        "slices.ci": "1",
        "slices.gi": "1",
    }
    assert found["nvidia.com/mig-1c.3g.40gb.slices.ci"] == "1"
    assert found["nvidia.com/mig-1c.3g.40gb.slices.gi"] == "3"
    assert found["nvidia.com/mig.strategy"] == "mixed"


def test_with_the_strategy_single_the_gpu_count_is_the_number_of_mig_instances() -> None:
    host = with_gpus(*(in_mig(h100(index), "1g.10gb", "1g.10gb") for index in range(8)))
    found = labels(host, mig_strategy="single")
    assert found[f"{GPU}.count"] == "16"
    assert found[f"{GPU}.product"] == f"{H100}-MIG-1g.10gb"
    assert found["nvidia.com/mig.strategy"] == "single"
    assert not some(found, "nvidia.com/mig-")


def test_with_the_strategy_single_a_gpu_whose_split_differs_has_no_labels() -> None:
    host = with_gpus(h100(0), *(in_mig(h100(index), "1g.10gb") for index in range(1, 8)))
    found = labels(host, mig_strategy="single")
    assert (found[f"{GPU}.count"], found[f"{GPU}.product"]) == ("7", f"{H100}-MIG-1g.10gb")


def test_with_the_strategy_none_split_gpus_have_no_labels() -> None:
    found = labels(with_gpus(in_mig(h100(0), "1g.10gb")), mig_strategy="none")
    assert found[f"{GPU}.count"] == "7"
    assert not some(found, "nvidia.com/mig-")
    assert "nvidia.com/mig.strategy" not in found


def test_a_shared_gpu_has_another_product_label_than_the_unshared_gpus_of_the_node() -> None:
    found = labels(example(), sharing=(SharingRow(resource=GPU, replicas=4, devices=("7",)),))
    assert some(found, f"{GPU}.product") == {f".{H100}": "7", f".{H100}-SHARED": "1"}
    assert some(found, f"{GPU}.replicas") == {".1": "7", ".4": "1"}
    assert some(found, f"{GPU}.sharing-strategy") == {".none": "7", ".time-slicing": "1"}


def test_replicas_under_another_resource_name_have_the_product_label_of_an_unshared_gpu() -> None:
    row = SharingRow(resource=GPU, replicas=4, rename="nvidia.com/gpu.shared")
    found = labels(example(), sharing=(row,))
    assert (found[f"{GPU}.product"], found[f"{GPU}.replicas"]) == (H100, "4")
    assert found[f"{GPU}.sharing-strategy"] == "time-slicing"


def test_mps_capable_is_true_if_a_gpu_uses_mps() -> None:
    found = labels(example(), sharing=(SharingRow(resource=GPU, replicas=4, mps=True),))
    assert found["nvidia.com/mps.capable"] == "true"
    assert found[f"{GPU}.sharing-strategy"] == "mps"
    assert found[f"{GPU}.product"] == f"{H100}-SHARED"


@pytest.mark.parametrize(("mps", "strategy"), [(False, "memory"), (True, "mps")])
def test_gpus_in_memory_units_have_0_replicas_and_a_sharing_strategy(mps: bool, strategy: str) -> None:  # noqa: FBT001 - a parameter
    shared = SharedMemory(unit="GiB", devices=("0", "1"), mps=mps)
    found = labels(with_memory(example(), 81559), shared_memory=shared)
    assert (found[f"{GPU}.count"], found[f"{GPU}.product"]) == ("8", H100)
    assert some(found, f"{GPU}.replicas") == {".0": "2", ".1": "6"}
    assert some(found, f"{GPU}.sharing-strategy") == {f".{strategy}": "2", ".none": "6"}


def test_gpus_under_another_resource_name_have_the_same_labels() -> None:
    rows = (ResourceRow(name="example.com/h100", devices=("0", "1")),)
    assert labels(example(), resources=rows) == labels(example())


def test_an_unhealthy_gpu_does_not_change_the_labels() -> None:
    assert labels(with_causes(example(), 0, ECC)) == labels(example())


def test_ignored_gpus_are_not_in_the_labels() -> None:
    found = labels(with_gpus(a30(0)), ignore=("0",))
    assert (found[f"{GPU}.count"], found[f"{GPU}.product"]) == ("7", H100)


def test_a_node_without_devices_has_no_labels() -> None:
    assert labels({}) == {}
    assert labels({"nvidia": replace(example()["nvidia"], accelerators=())}) == {}


def test_no_label_has_a_version_if_the_loaded_driver_differs_from_the_inventory() -> None:
    found = labels(example(), running={"nvidia": "580.65.06"})
    assert not some(found, "nvidia.com/cuda.")
    assert found[f"{GPU}.count"] == "8"


@pytest.mark.parametrize(
    ("model", "capable"),
    [
        ("Tesla T4", "false"),
        ("NVIDIA L40S", "false"),
        ("NVIDIA A30", "true"),
        ("NVIDIA GeForce RTX 5090", ""),
        ("NVIDIA A100-40C", ""),
    ],
)
def test_mig_capable_is_set_if_mig_support_is_known(model: str, capable: str) -> None:
    assert labels(of_model(model)).get("nvidia.com/mig.capable", "") == capable


@pytest.mark.parametrize("model", ["", "NVIDIA Unheard Of 9000"])
def test_an_unknown_model_has_no_labels_for_family_compute_capability_and_memory(model: str) -> None:
    found = labels(of_model(model))
    assert not [name for name in found if "family" in name or "compute" in name or "memory" in name]
    assert found.get(f"{GPU}.product", "") == model.replace(" ", "-")
    assert not some(labels(of_model(""), sharing=FOUR), f"{GPU}.product")


@pytest.mark.parametrize(
    ("model", "family"), [("Tesla V100", "volta"), ("Tesla T4", "turing"), ("NVIDIA L40S", "ada-lovelace")]
)
def test_gpus_of_the_same_major_compute_capability_may_have_different_families(
    model: str, family: str
) -> None:
    assert labels(of_model(model))[f"{GPU}.family"] == family


def test_a_split_gpu_of_any_model_is_mig_capable() -> None:
    split = replace(in_mig(h100(0), "1g.10gb"), model="NVIDIA Unheard Of 9000")
    assert labels(host_with(split))["nvidia.com/mig.capable"] == "true"


def test_a_wsl_host_has_labels_for_the_driver_but_not_for_the_gpu() -> None:
    host = example()["nvidia"]
    group = Group(device_class="gpu", devices=(GroupDevice(name="all", nodes=host.accelerators[0].nodes),))
    found = labels({"nvidia": replace(host, mode="wsl", accelerators=(), groups=(group,))})
    assert found["nvidia.com/cuda.driver-version.full"] == "550.163.01"
    assert not some(found, f"{GPU}.c")
    assert not some(found, f"{GPU}.product")


def test_amds_gpus_have_the_labels_of_amds_labeller() -> None:
    host = example("ubuntu-2xmi300x-cpx")["amd"]
    gpus = tuple(replace(gpu, memory_mib=196592) for gpu in host.accelerators)
    driver = Driver(version="6.10.5", flavour="dkms", architecture="x86_64")
    assert labels({"amd": replace(host, accelerators=gpus, driver=driver)}) == {
        "amd.com/gpu.compute-memory-partition": "cpx_nps1",
        "amd.com/gpu.device-id": "74a1",
        "amd.com/gpu.driver-version": "6.10.5",
        "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
        "amd.com/gpu.vram": "192G",
    }


def test_different_amd_gpus_are_counted() -> None:
    host = example("ubuntu-2xmi300x-cpx")["amd"]
    first, *rest = host.accelerators
    other = replace(
        first,
        model="AMD Instinct MI325X (SPX, NPS1)",
        device_id="0x74a5",
        partitioned=False,
        partitions=(),
        nodes=first.partitions[0].nodes,
        usable=True,
        memory_mib=262128,
    )
    found = labels({"amd": replace(host, accelerators=(other, *rest))}, amd_strategy="mixed")
    count = len(rest)
    assert found == {
        "amd.com/gpu.compute-memory-partition.cpx_nps1": str(count),
        "amd.com/gpu.compute-memory-partition.spx_nps1": "1",
        "amd.com/gpu.device-id.74a1": str(count),
        "amd.com/gpu.device-id.74a5": "1",
        "amd.com/gpu.product-name.AMD_Instinct_MI300X_OAM": str(count),
        "amd.com/gpu.product-name.AMD_Instinct_MI325X": "1",
        "amd.com/gpu.vram.256G": "1",
    }


def test_an_amd_gpu_without_a_name_and_with_different_partitions_lacks_two_labels() -> None:
    host = example("ubuntu-2xmi300x-cpx")["amd"]
    first = host.accelerators[0]
    parts = (replace(first.partitions[0], profile="dpx_nps1"), *first.partitions[1:])
    gpu = replace(first, model="AMD GPU 74a1", partitions=parts)
    found = labels({"amd": replace(host, accelerators=(gpu,))}, amd_strategy="mixed")
    assert found["amd.com/gpu.device-id"] == "74a1"
    assert not some(found, "amd.com/gpu.product-name")
    assert not some(found, "amd.com/gpu.compute-memory-partition")


def test_intels_gpus_have_the_labels_of_intels_rules() -> None:
    assert labels(example("ubuntu-flex170-sriov")) == {
        # Four virtual functions of a Flex 170, and an integrated GPU for which Intel has no rule.
        "gpu.intel.com/device-id.0380-56c0.count": "4",
        "gpu.intel.com/device-id.0380-56c0.present": "true",
        "gpu.intel.com/device.count": "5",
        "gpu.intel.com/family.Flex_Series": "4",
        "gpu.intel.com/product.Flex_170": "4",
        "intel.feature.node.kubernetes.io/gpu": "true",
    }


def test_each_vendor_has_its_own_labels() -> None:
    hosts: dict[str, Any] = {**example(), **example("ubuntu-2xmi300x-cpx"), **example("ubuntu-flex170-sriov")}
    alone = [labels({vendor: one}) for vendor, one in hosts.items()]
    assert labels(hosts) == {name: value for one in alone for name, value in one.items()}
