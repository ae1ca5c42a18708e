"""Devices in the format of nvidia-docker 1.0: `two_p100`, one of them idle, and `others`."""

from support.values.devices import host_node
from support.values.topology_machines import hives, pcie

from cdigen.daemon.stats import VendorStats
from cdigen.model.stats import DeviceProcess, DeviceStats
from cdigen.page.nvidia_docker.devices import NvidiaDockerDevice, listed
from cdigen.topology.matrix import MatrixDevice as Shown
from cdigen.value import replace

MIB = 1 << 20
BUSY = DeviceStats(
    address="0000:11:00.0", memory_total=16_276 * MIB, memory_used=8_195 * MIB + 17,
    bar1_total=16_384 * MIB, bar1_used=2 * MIB,
    utilization=87.0, memory_utilization=41.0, encoder_utilization=0.0, decoder_utilization=0.0,
    temperature=61.0, power=212.7, power_limit=250.0,
    core_clock=1303, memory_clock=715, core_clock_max=1328, memory_clock_max=715,
    pcie_generation_max=3, pcie_width_max=16, pcie_received=12_345_678, pcie_sent=999_999,
    ecc_enabled=True, ecc_l1=0, ecc_l2=1, ecc_memory=0,
    memory_bus_width=4096, cores=3584, compute_capability="6.0",
    processes=(
        DeviceProcess(pid=4711, name="python3", memory=8_000 * MIB),
        DeviceProcess(pid=99, name="a<b>&c", memory=None),
    ),
)  # fmt: skip


def two_p100() -> tuple[NvidiaDockerDevice, ...]:
    gpus = tuple(
        replace(
            gpu,
            model="Tesla P100-PCIE-16GB",
            uuid=f"GPU-{n}a7e1c40-2f6b-4d1e-9b1c-0d8e7f6a5b4{n}",
            nodes=(host_node(f"/dev/nvidia{n}", "gpu"),),
        )
        for n, gpu in enumerate(pcie(2, per_socket=2, per_switch=2))
    )
    idle = DeviceStats(address=gpus[1].address, temperature=0.0, ecc_enabled=False)
    shown = tuple(Shown(label=f"GPU{n}", vendor="nvidia", accelerator=gpu) for n, gpu in enumerate(gpus))
    return listed(shown, (VendorStats(vendor="nvidia", devices=(BUSY, idle)),))


def others() -> tuple[NvidiaDockerDevice, ...]:
    """Return a P100 without known properties, and two AMD GPUs with an XGMI link across sockets."""
    lone = replace(pcie(1, per_socket=1)[0], numa_node=None, nodes=(host_node("/dev/nvidia0", "gpu"),))
    amd = tuple(
        replace(
            gpu,
            model="AMD Instinct MI300X OAM",
            uuid=None,
            memory_mib=196_592,
            nodes=(host_node("/dev/kfd", "control"), host_node(f"/dev/dri/renderD{128 + n}", "render")),
        )
        for n, gpu in enumerate(hives(2, 2, per_socket=1))
    )
    return listed(
        (
            Shown(label="nvidia0", vendor="nvidia", accelerator=lone),
            *(Shown(label=f"amd{n}", vendor="amd", accelerator=gpu) for n, gpu in enumerate(amd)),
        )
    )
