"""Values of hosts for the status page: ``SAMPLES`` has them by name. All values have the same time, NOW_S."""

from collections.abc import Callable, Mapping

from support.values.devices import DRIVER
from support.values.devices import inventory as of_vendor
from support.values.topology_machines import hives, nvswitch, partition, pcie, placed
from support.values.unhealthy_gpus import example

from cdigen.daemon.cycle.report import (
    CycleReport,
    DaemonStatus,
    JournalEntry,
    SpecReport,
    VendorReport,
    verdict,
)
from cdigen.daemon.stats import VendorStats
from cdigen.model.findings import Finding
from cdigen.model.health import Cause
from cdigen.model.inventory import Accelerator, Inventory
from cdigen.model.profile import DEFAULT
from cdigen.model.stats import DeviceStats
from cdigen.page.view import (
    DeviceUser,
    DeviceUserSource,
    PageView,
    RefusedContainer,
    RuntimeView,
    ServiceStatus,
    device_views,
    names_for_containers,
)
from cdigen.pipeline.device_names import KnownDevice, known_devices
from cdigen.topology.matrix import devices_of
from cdigen.value import replace
from cdigen.vendors import registry
from cdigen.watch.triggers import Trigger

NOW_S = 1_795_446_000.0  # 2026-11-23T15:00:00Z
HOUR_S, DAY_S, GIB = 3600.0, 86_400.0, 1 << 30
FELL = Cause(
    cause="xid-79",
    since="2026-11-23T11:42:10Z",
    detail="the GPU has fallen off the bus (NVRM: Xid (PCI:0000:61:00): 79, pid=3127)",
    clears_when="the GPU is reset, its driver is loaded again, or the host is rebooted",
    next_step="reset the device, or reboot the host",
)
DRAM = Cause(
    cause="xid-94",
    since="2026-11-21T03:10:00Z",
    detail="contained memory error",
    clears_when="the application that used it is restarted",
)
KUBELET = ServiceStatus(
    name="kubelet's device plugins",
    state="good",
    status="registered",
    since_s=NOW_S - 3 * DAY_S,
    lines=("nvidia.com/gpu: 8 units, 5 allocated",),
)
NRI = ServiceStatus(
    name="NRI plugin",
    state="good",
    status="registered",
    since_s=NOW_S - 3 * DAY_S,
    lines=("with containerd 2.1.4", "214 containers with injected devices, 1 refused"),
    refusals=(
        RefusedContainer(
            at_s=NOW_S - 2 * HOUR_S,
            container="pod ml/sweep-41, container main",
            reason="NVIDIA_REQUIRE_CUDA: the driver serves CUDA 12.4, the image requires cuda>=12.8",
        ),
    ),
)
SOURCES = (
    DeviceUserSource(name="kubelet", state="responded"),
    DeviceUserSource(name="NRI plugin", state="responded"),
    DeviceUserSource(name="podman", state="off", detail="no socket of it is configured"),
    DeviceUserSource(name="Docker", state="absent"),
)
RUNTIMES = (
    RuntimeView(name="containerd", version="2.1.4", found=8, offered=8),
    RuntimeView(name="podman", version="4.3.1", found=8, offered=8),
)


def healthy() -> PageView:
    known = all_healthy(example("debian13-8xh100"))
    stats = tuple(busy(gpu, n, 0 if n > 4 else 97 - n) for n, gpu in enumerate(known["nvidia"].accelerators))
    users = {
        (gpu.address, ""): (
            DeviceUser(name=f"pod ml/train-{n // 2}, container trainer", source="kubelet, NRI"),
        )
        for n, gpu in enumerate(known["nvidia"].accelerators[:5])
    }
    return replace(
        view("gpu-node-17", known, stats, users),
        runtimes=RUNTIMES,
        services=(KUBELET, NRI),
        sources=SOURCES,
    )


def degraded() -> PageView:
    known = all_healthy(example("debian13-8xh100"))
    gpus = list(known["nvidia"].accelerators)
    gpus[3] = replace(gpus[3], health="unhealthy", causes=(FELL,))
    gpus[6] = replace(gpus[6], usable=False, problem="/dev/nvidia6 is missing", health="unknown")
    known = {"nvidia": replace(known["nvidia"], accelerators=tuple(gpus))}
    found = view("gpu-node-17", known)
    finding = Finding(
        severity="warning",
        rule="node-missing",
        path="/dev/nvidia6",
        message="/dev/nvidia6 is missing: GPU 6 is left out",
        hint="systemctl start cdigen-nodes.service",
    )
    vendor = VendorReport(
        vendor="nvidia",
        state="degraded",
        reason="7 of 8 GPUs can be used",
        hint="see the findings",
        since_s=NOW_S - 3.3 * HOUR_S,
    )
    cycle = found.status.cycle
    assert cycle is not None
    status = replace(
        found.status,
        state="degraded",
        since_s=NOW_S - 3.3 * HOUR_S,
        vendors=(vendor, *found.status.vendors[1:]),
        cycle=replace(cycle, findings=(finding,)),
        specs=(replace(found.status.specs[0], served=7, left_out=1),),
        sources=(("files", ""), ("kernel-log", "the socket /run/cdigen/kernel-log.sock does not exist")),
    )
    runtimes = (
        RUNTIMES[0],
        replace(
            RUNTIMES[1],
            found=0,
            problems=(("/etc/cdi/nvidia.yaml", "cdiVersion 1.1.0 is unknown to podman 4.3.1"),),
        ),
    )
    nri = replace(
        NRI, state="bad", status="not running", reason="its lock is free: the process has ended", since_s=None
    )
    return replace(
        found,
        status=status,
        runtimes=runtimes,
        services=(KUBELET, nri),
        stats_problem="NVML has not answered yet",
    )


def no_gpu() -> PageView:
    vendors = tuple(
        VendorReport(vendor=name, state="absent", reason=reason, hint=hint, since_s=NOW_S - 40)
        for name, reason, hint in (
            ("nvidia", "there is no NVIDIA GPU on the PCI bus", ""),
            ("amd", "the module amdgpu is not loaded", "run 'modprobe amdgpu'"),
            ("intel", "neither i915 nor xe has a device", ""),
        )
    )
    status = DaemonStatus(
        version="1.2.3",
        started_s=NOW_S - 41,
        since_s=NOW_S - 40,
        state="absent",
        verdict="there is no GPU, or its driver is not loaded",
        vendors=vendors,
    )
    return PageView(at_s=NOW_S, host="build-03", status=status, runtimes=(), reload_s=15)


def mixed() -> PageView:
    nvidia = tuple(replace(gpu, model="NVIDIA L40S") for gpu in pcie(4, per_socket=2, per_switch=2))
    onboard = placed(0, socket=1)
    amd = replace(
        onboard, address="0000:c5:00.0", pci_path=("pci0000:c0", "0000:c0:08.1"), model="AMD Radeon Graphics"
    )
    npu = replace(
        onboard,
        address="0000:00:0b.0",
        pci_path=("pci0000:00",),
        numa_node=0,
        model="Intel NPU",
        device_class="npu",
    )
    arc = replace(
        placed(0, socket=None),
        address="0000:03:00.0",
        model="Intel Arc A770",
        usable=False,
        problem="vfio-pci has it",
    )
    known = all_healthy(
        {
            "nvidia": inventory("nvidia", nvidia),
            "amd": inventory("amd", (amd,)),
            "intel": inventory("intel", (arc, npu)),
        }
    )
    return replace(view("workstation", known), sources=SOURCES)


def cpx() -> PageView:
    return replace(view("mi300x-2", all_healthy(example("ubuntu-2xmi300x-cpx"))), sources=SOURCES)


def large() -> PageView:
    machine = tuple(
        replace(
            gpu,
            model="NVIDIA A100-SXM4-80GB",
            memory_mib=81_920,
            partitioned=True,
            partitions=tuple(
                replace(partition(each), uuid=f"MIG-{n}-{each}", profile="1g.20gb", memory_mib=19_968)
                for each in range(4)
            ),
        )
        for n, gpu in enumerate(nvswitch(16, 6))
    )
    known = all_healthy({"nvidia": inventory("nvidia", machine)})
    gpus = list(known["nvidia"].accelerators)
    parts = gpus[2].partitions
    unhealthy = replace(parts[1], health="unhealthy", causes=(DRAM,))
    gpus[2] = replace(gpus[2], partitions=(parts[0], unhealthy, *parts[2:]))
    known = {"nvidia": replace(known["nvidia"], accelerators=tuple(gpus))}
    stats = tuple(
        replace(busy(gpu, n, 30), instance=part.instance, memory_total=19_968 << 20, memory_used=n << 29)
        for n, gpu in enumerate(gpus)
        for part in gpu.partitions
    )
    users = {
        (gpu.address, gpu.partitions[0].instance): (
            DeviceUser(name=f"pod notebooks/jupyter-user-{n}, container notebook", source="kubelet"),
        )
        for n, gpu in enumerate(gpus)
        if n % 2
    }
    return replace(view("dgx-2-mig", known, stats, users), sources=SOURCES, services=(KUBELET, NRI))


def one_cause() -> PageView:
    gpus = tuple(replace(gpu, health="unhealthy", causes=(FELL,)) for gpu in nvswitch(16, 6))
    return view("dgx-2", {"nvidia": inventory("nvidia", gpus)})


def hive() -> PageView:
    gpus = tuple(replace(gpu, memory_mib=196_592) for gpu in hives(8, 8, per_socket=4))
    return view("mi300x-8", all_healthy({"amd": inventory("amd", gpus)}))


SAMPLES: Mapping[str, Callable[[], PageView]] = {
    "healthy": healthy,
    "degraded": degraded,
    "no-gpu": no_gpu,
    "mixed": mixed,
    "large": large,
    "cpx": cpx,
    "one-cause": one_cause,
}


def inventory(vendor: str, gpus: tuple[Accelerator, ...]) -> Inventory:
    driver = DRIVER if vendor == "nvidia" else replace(DRIVER, version="6.12.48")
    return of_vendor(vendor, *gpus, driver=driver)


def all_healthy(inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
    """Return INVENTORIES with every usable device healthy."""

    def fit(gpu: Accelerator) -> Accelerator:
        parts = tuple(replace(part, health="healthy") for part in gpu.partitions)
        return replace(gpu, partitions=parts, health="healthy" if gpu.usable else "unknown")

    return {
        vendor: replace(known, accelerators=tuple(fit(gpu) for gpu in known.accelerators))
        for vendor, known in inventories.items()
    }


def busy(gpu: Accelerator, n: int, percent: float) -> DeviceStats:
    return DeviceStats(
        address=gpu.address,
        memory_total=80 * GIB,
        memory_used=int((percent * 0.7 + n) * GIB * 0.8) + (600 << 20),
        utilization=percent,
        temperature=31 + percent / 3,
        power=71 + percent * 5,
    )


def _spec_reports(
    inventories: Mapping[str, Inventory], known: tuple[KnownDevice, ...]
) -> tuple[SpecReport, ...]:
    """Return the reports of a cycle that changed no spec."""
    return tuple(
        SpecReport(
            kind=f"{registry.cdi_vendor(name)}/gpu",
            file=f"/var/run/cdi/{registry.cdi_vendor(name)}-gpu.json",
            result="unchanged",
            served=sum(one.usable for one in known if one.vendor == name),
            written_s=NOW_S - 3 * DAY_S,
        )
        for name in inventories
    )


def daemon_status(inventories: Mapping[str, Inventory], known: tuple[KnownDevice, ...]) -> DaemonStatus:
    """Return the status of a daemon that has been ready for three days; KNOWN are all devices."""
    vendors = tuple(
        VendorReport(
            vendor=name,
            state="ready" if name in inventories else "absent",
            reason="" if name in inventories else "no such device",
            since_s=NOW_S - 3 * DAY_S,
        )
        for name in ("nvidia", "amd", "intel")
    )
    specs = _spec_reports(inventories, known)
    cycle = CycleReport(
        number=412,
        reasons=(Trigger(source="timer", reason="cycle without an event"),),
        started_s=NOW_S - 90,
        duration_s=0.021,
        result="unchanged",
        vendors=vendors,
        specs=specs,
        devices=len(names_for_containers(known)),
        unhealthy=sum(one.is_offered and one.health == "unhealthy" for one in known),
    )
    state, text = verdict(cycle)
    journal = tuple(
        JournalEntry(
            at_s=NOW_S - 3 * DAY_S,
            cycle=3,
            reasons=(
                "uevents: add /devices/virtual/nvidia",
                "files: /usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01",
            ),
            kind=spec.kind,
            file=spec.file,
            result="written",
            summary=f"{spec.served} devices added",
        )
        for spec in specs
    )
    return DaemonStatus(
        version="1.2.3",
        started_s=NOW_S - 3 * DAY_S,
        since_s=NOW_S - 3 * DAY_S,
        state=state,
        verdict=text,
        vendors=vendors,
        specs=specs,
        cycle=cycle,
        last_success_s=NOW_S - 90,
        sources=(("files", ""), ("uevents", "")),
        journal=journal,
    )


def view(
    host: str,
    inventories: Mapping[str, Inventory],
    stats: tuple[DeviceStats, ...] = (),
    users: Mapping[tuple[str, str], tuple[DeviceUser, ...]] | None = None,
) -> PageView:
    """Return the page of a HOST that has been ready for three days."""
    known = known_devices(inventories, (DEFAULT,))
    by_vendor = tuple(VendorStats(vendor=vendor, devices=stats, at_s=NOW_S) for vendor in inventories)
    return PageView(
        at_s=NOW_S,
        host=host,
        status=daemon_status(inventories, known),
        devices=device_views(known, inventories, by_vendor, users),
        topology=devices_of(inventories),
        drivers=tuple((name, known.driver.version) for name, known in inventories.items()),
        cuda="12.4" if "nvidia" in inventories else "",
        reload_s=15,
    )
