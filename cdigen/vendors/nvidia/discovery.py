"""Make the inventory of an NVIDIA host, or say why no container could use a GPU: ``discover``."""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import HostError
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import Inventory
from cdigen.value import replace
from cdigen.vendors.kernel.pci_place import placed
from cdigen.vendors.nvidia import (
    families,
    file_list,
    files,
    gpus,
    kernel_module,
    libraries,
    manifests,
    platforms,
)
from cdigen.vendors.nvidia.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.nvml import not_asked, reply_of
from cdigen.vendors.nvidia.options import MANAGEMENT
from cdigen.vendors.nvidia.tables import ENTRANCES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator, Driver, Group, HostNode, ProbeResult
    from cdigen.model.partition_names import GpuPartitionNames
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.nvidia.nvml import NvmlReply

NAME = "nvidia"


def discover(context: DiscoveryContext) -> Inventory:
    """Read what the host has, after telling what kind of host it is.

    Raises HostError where no container could use a GPU: driver-not-loaded, no-gpu, no-nodes,
    version-mismatch, driver-broken, driver-not-found, no-mig-instances.
    """
    if context.mode == "wsl" or (context.mode == "auto" and platforms.is_wsl(context)):
        from cdigen.vendors.nvidia.platforms import wsl  # noqa: PLC0415 - few hosts are such

        return wsl.discover(context)
    if context.mode == "csv" or (context.mode == "auto" and platforms.is_tegra(context)):
        from cdigen.vendors.nvidia.platforms import tegra  # noqa: PLC0415 - likewise

        return tegra.discover(context)
    inventory = _discover_gpus(context)
    if context.mode == "management":
        return _for_management(context, inventory)
    # With the kind of administrators MIG's instances can be made where there are none.
    inventory = replace(inventory, groups=(*inventory.groups, *_management(context, inventory)))
    _require_offers(inventory)
    return inventory


def read_nodes(context: DiscoveryContext) -> NvidiaNodeReader:
    """Return a reader that has looked at every node."""
    nodes = NvidiaNodeReader(context)
    reader = gpus.NvidiaGpuReader(context, nodes)
    reader.read()
    reader.read_control_nodes()
    families.read_groups(context, nodes)
    return nodes


def _discover_gpus(context: DiscoveryContext) -> Inventory:
    driver = kernel_module.read_driver(context.host)
    try:
        return _inventory(context, driver)
    except HostError as error:
        error.driver = driver.version
        raise


def _inventory(context: DiscoveryContext, driver: Driver) -> Inventory:
    listed = file_list.read(context)
    search = libraries.find_libraries(context, driver, listed=listed.libraries)
    nvml_findings: list[Finding] = []
    node_reader = NvidiaNodeReader(context)
    gpu_reader = gpus.NvidiaGpuReader(
        context,
        node_reader,
        lambda: _ask_nvml(context, search, nvml_findings),
        lambda: _names_before(context, driver),
    )
    accelerators = placed(context.host, gpu_reader.read())
    _require_gpus(accelerators)
    nodes = gpu_reader.read_control_nodes()
    _require_nodes(accelerators, nodes, gpu_reader.findings)
    _require_libraries(driver, search)
    others, sought_others, other_findings = files.find_files(
        context, driver, tuple(search.folders), listed.binaries
    )
    search32 = libraries.find_libraries(context, driver, bits=32) if context.compat32 else None
    found, manifest_findings = manifests.with_named_paths(
        context.driver,
        (
            *libraries.library_files(search),
            *(libraries.library_files(search32) if search32 else ()),
            *others,
        ),
    )
    groups, group_findings = families.read_groups(context, node_reader)
    sought = (*libraries.library_probes(search), *sought_others)
    return Inventory(
        vendor=NAME,
        driver=driver,
        accelerators=accelerators,
        nodes=nodes,
        files=found,
        sought=sought,
        findings=(
            *gpu_reader.findings,
            *nvml_findings,
            *search.findings,
            *listed.findings,
            *(search32.findings if search32 else ()),
            *other_findings,
            *manifest_findings,
            *group_findings,
            *_incomplete(sought),
        ),
        groups=groups,
    )


def _ask_nvml(
    context: DiscoveryContext, search: libraries.LibrarySearch, findings: list[Finding]
) -> NvmlReply:
    """Ask NVML in a child process, if that is allowed, and add what went wrong to FINDINGS."""
    library = context.nvml
    if library == "off":
        return not_asked("nvml: off, or the driver is not this machine's own")
    if library == "auto":
        found = search.found.get("libnvidia-ml.so.1")
        if found is None:
            return not_asked("libnvidia-ml.so.1 was not found")
        library = found[0].host_path
    from cdigen.vendors.nvidia.nvml.ask import MODULE_MISSING, ask  # noqa: PLC0415 - most hosts need it not

    answer = ask(library)
    findings.extend(answer.findings)
    if any(finding.rule == MODULE_MISSING for finding in answer.findings):
        return not_asked("the Python module pynvml is missing")
    return reply_of(answer.report, next((finding.message for finding in answer.findings), "NVML is silent"))


def _names_before(context: DiscoveryContext, driver: Driver) -> tuple[GpuPartitionNames, ...]:
    """Return the names that instances of the GPUs of this DRIVER had at last."""
    own = (NAME, driver.version)
    return tuple(known for known in context.partition_names() if (known.vendor, known.driver) == own)


def _for_management(context: DiscoveryContext, inventory: Inventory) -> Inventory:
    """Return INVENTORY as the kind for those who administer GPUs, and no other."""
    group = families.management_group(context, NvidiaNodeReader(context))
    own = () if group is None else (replace(group, files=inventory.files),)
    groups = (*own, *_management(context, inventory))
    return replace(inventory, mode="management", groups=groups)


def _management(context: DiscoveryContext, inventory: Inventory) -> tuple[Group, ...]:
    """Return the same under the name by which NVIDIA's own software asks for it, where that is wanted."""
    if not context.option(NAME, MANAGEMENT):
        return ()
    group = families.management_group(context, NvidiaNodeReader(context))
    if group is None:
        return ()
    return (replace(group, device_class=families.MANAGEMENT_KIND, files=inventory.files),)


def _require_offers(inventory: Inventory) -> None:
    usable = [gpu for gpu in inventory.accelerators if gpu.usable]
    offered = [gpu for gpu in usable if not gpu.partitioned or any(mig.usable for mig in gpu.partitions)]
    if offered or inventory.groups:
        return
    reasons = [f for f in inventory.findings if f.rule in {"mig-empty", "mig-instance-unusable"}]
    raise HostError(
        f"no GPU has anything to offer: {reasons[0].message}", hint=reasons[0].hint, kind="no-mig-instances"
    )


def _require_gpus(accelerators: tuple[Accelerator, ...]) -> None:
    if not accelerators:
        raise HostError(
            f"no GPU: the NVIDIA kernel module is loaded, but {gpus.GPUS} lists none",
            hint="see 'lspci -d 10de:' and 'dmesg | grep NVRM'",
            kind="no-gpu",
        )


def _require_nodes(
    accelerators: tuple[Accelerator, ...], nodes: tuple[HostNode, ...], findings: tuple[Finding, ...]
) -> None:
    if not any(node.role == "control" for node in nodes):
        problem = next(f.message for f in findings if f.rule == "control-node-missing")
        raise HostError(
            f"the driver is loaded, but no program can reach it: {problem}",
            hint="'nvidia-modprobe -c 0 -u -m' makes the nodes, and so does 'nvidia-smi'",
            kind="no-nodes",
        )
    if not any(accelerator.usable for accelerator in accelerators):
        first = next(finding for finding in findings if finding.severity == "error")
        raise HostError(
            f"none of the {len(accelerators)} GPUs can be used: {first.message}",
            hint=first.hint,
            kind="no-nodes" if first.rule == "gpu-node-missing" else "no-gpu",
        )


def _require_libraries(driver: Driver, search: libraries.LibrarySearch) -> None:
    versions = libraries.stale_versions(search)
    if versions:
        raise HostError(
            f"the kernel module is {driver.version}, but the installed libraries are {', '.join(versions)}",
            hint="load the module that was installed with them: stop what uses the GPUs and run "
            "'rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia', or reboot",
            kind="version-mismatch",
        )
    broken = [finding for finding in search.findings if finding.severity == "error"]
    if broken:
        raise HostError(broken[0].message, hint=broken[0].hint, kind="driver-broken")
    # The others come in packages of their own, which outlive it where nobody runs 'apt-get autoremove'.
    if any(library.stem in ENTRANCES for _, library, _ in search.found.values()):
        return
    raise HostError(
        f"no library of the driver {driver.version} was found below {shown(search.root.host_path('/'))}: "
        f"none of {', '.join(ENTRANCES)}",
        hint="install the driver's libraries, or name their folder with --driver-root or "
        "--library-search-path",
        kind="driver-not-found",
    )


def _incomplete(sought: tuple[ProbeResult, ...]) -> list[Finding]:
    """Say which capability cannot work, or is installed in part."""
    collector = FindingCollector()
    for thing in sought:
        if thing.weight == "required" and not thing.found:
            will = f"{', '.join(thing.capabilities)} will not work"
            message = f"{thing.name} was not found ({thing.reason}): {will}"
            hint = "install the driver's package that holds it, if containers shall have it"
            collector.add("warning", "library-missing", thing.name, message, hint)
    for capability in ("compute", "graphics", "video"):
        of_it = [thing for thing in sought if capability in thing.capabilities]
        missing = [thing.name for thing in of_it if thing.weight != "optional" and not thing.found]
        if missing and any(thing.found for thing in of_it if thing.weight == "core"):
            verb = "is" if len(missing) == 1 else "are"
            message = f"the capability {capability} is installed in part: {', '.join(missing)} {verb} missing"
            hint = "install the driver's packages that hold them, or expect such programs to fail"
            collector.add("warning", "capability-incomplete", capability, message, hint)
    return collector.findings
