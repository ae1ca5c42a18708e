"""The pictures in docs/pictures equal the pictures that the code draws. --update-golden replaces them."""

from collections.abc import Callable

import pytest
from support.golden import compare
from support.paths import REPOSITORY
from support.values.topology_machines import FELL, dgx_a100, nvswitch, partition, pcie, placed
from support.values.unhealthy_gpus import example

from cdigen.model.inventory import Accelerator
from cdigen.topology.matrix import MatrixDevice, devices_of
from cdigen.topology.svg import picture
from cdigen.value import replace

PICTURES = REPOSITORY / "docs/pictures"
CPUS = ("0-31,64-95", "32-63,96-127")


def dgx() -> tuple[MatrixDevice, ...]:
    return devices_of(example("debian13-8xh100"))


def named(devices: tuple[Accelerator, ...], model: str) -> tuple[Accelerator, ...]:
    return tuple(replace(gpu, model=model, cpus=CPUS[gpu.numa_node or 0]) for gpu in devices)


def dgx2() -> tuple[MatrixDevice, ...]:
    machine = named(nvswitch(16, 6), "Tesla V100-SXM3-32GB")
    unhealthy = replace(machine[5], health="unhealthy", causes=(FELL,))
    return tuple(device("GPU", "nvidia", gpu) for gpu in (*machine[:5], unhealthy, *machine[6:]))


def partitioned() -> tuple[MatrixDevice, ...]:
    first, *others = dgx_a100()
    parts = tuple(partition(n) for n in range(7))
    unhealthy = replace(parts[2], health="unhealthy", causes=(replace(FELL, cause="xid-94"),))
    first = replace(first, partitioned=True, partitions=(*parts[:2], unhealthy, *parts[3:]))
    return tuple(device("GPU", "nvidia", gpu) for gpu in (first, *others))


def mixed() -> tuple[MatrixDevice, ...]:
    nvidia = named(pcie(4, per_socket=2, per_switch=2), "NVIDIA L40S")
    onboard = placed(0, socket=1)
    amd = replace(
        onboard,
        address="0000:c5:00.0",
        pci_path=("pci0000:c0", "0000:c0:08.1"),
        model="AMD Radeon Graphics",
        cpus=CPUS[1],
    )
    npu = replace(
        onboard,
        address="0000:00:0b.0",
        pci_path=("pci0000:00",),
        numa_node=0,
        model="Intel NPU",
        device_class="npu",
        cpus=CPUS[0],
    )
    intel = replace(
        placed(0, socket=None),
        address="0000:03:00.0",
        model="Intel Arc A770",
        usable=False,
        problem="vfio-pci",
    )
    return (
        *(device("nvidia", "nvidia", gpu) for gpu in nvidia),
        device("amd", "amd", amd),
        device("intel", "intel", intel),
        device("NPU", "intel", npu),
    )


def device(label: str, vendor: str, gpu: Accelerator) -> MatrixDevice:
    return MatrixDevice(label=f"{label}{gpu.index}", vendor=vendor, accelerator=gpu)


@pytest.mark.parametrize(
    ("name", "draw"), [("dgx", dgx), ("dgx2", dgx2), ("partitioned", partitioned), ("mixed", mixed)]
)
def test_a_picture_in_the_documentation_equals_the_picture_that_the_code_draws(
    name: str, draw: Callable[[], tuple[MatrixDevice, ...]], request: pytest.FixtureRequest
) -> None:
    compare(request, PICTURES / f"topology-{name}.svg", picture(draw()))
