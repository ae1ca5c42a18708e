"""Read the inventory of an NVIDIA host (``discover``)."""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import HostError
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import Inventory
from cdigen.value import replace
from cdigen.vendors.kernel.pci.place import placed
from cdigen.vendors.nvidia import kernel_module, platforms
from cdigen.vendors.nvidia.devices import families, gpus
from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.files import driver_files, file_list, libraries, manifests
from cdigen.vendors.nvidia.files.tables import ENTRANCES, MISSING_CONTROL_NODE
from cdigen.vendors.nvidia.nvml import not_queried, reply_of
from cdigen.vendors.nvidia.options import MANAGEMENT, MANAGEMENT_KIND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator, Driver, Group, HostNode, ProbeResult
    from cdigen.model.saved import GpuPartitionNames
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.nvml import NvmlReply

NAME = "nvidia"
# The folders in a message about missing libraries. Most hosts have at most six.
_MAX_FOLDERS = 8


def discover(context: DiscoveryContext) -> Inventory:
    """Return the inventory of the host; raise HostError if no container can use a GPU.

    In the mode ``auto``, the function detects the type of the host. The kinds of the HostError are
    driver-not-loaded, no-gpu, no-nodes, no-usable-device, version-mismatch, driver-broken, driver-not-found
    and no-mig-instances.
    """
    if context.mode == "wsl" or (context.mode == "auto" and platforms.is_wsl(context)):
        from cdigen.vendors.nvidia.platforms import wsl  # noqa: PLC0415 - rarely used

        return wsl.discover(context)
    if context.mode == "csv" or (context.mode == "auto" and platforms.is_tegra(context)):
        from cdigen.vendors.nvidia.platforms import tegra  # noqa: PLC0415 - rarely used

        return tegra.discover(context)
    inventory = _discover_gpus(context)
    management = _management_groups(context, inventory)
    if context.mode == "management":
        return replace(inventory, mode="management", groups=management)
    # The management group is added before the check, because a container with its device can create the first
    # MIG instances.
    inventory = replace(inventory, groups=(*inventory.groups, *management))
    _require_offers(inventory)
    return inventory


def read_nodes(context: DiscoveryContext) -> NvidiaNodeReader:
    """Return a reader that has read all nodes of the host's NVIDIA devices."""
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
        lambda: _query_nvml(context, search, nvml_findings),
        lambda: _names_before(context, driver),
    )
    accelerators = placed(context.host, gpu_reader.read())
    _require_gpus(accelerators, gpu_reader.findings)
    nodes = gpu_reader.read_control_nodes()
    _require_nodes(accelerators, nodes, gpu_reader.findings)
    _require_libraries(context, driver, search)
    others, other_probes, other_findings = driver_files.find_files(
        context, driver, tuple(search.folders), listed.binaries
    )
    search32 = libraries.find_libraries(context, driver, bits=32) if context.compat32 else None
    found, manifest_findings = manifests.with_named_paths(
        context.driver,
        (*libraries.library_files(search), *(libraries.library_files(search32) if search32 else ()), *others),
    )
    groups, group_findings = families.read_groups(context, node_reader)
    searched = (*libraries.library_probes(search), *other_probes)
    return Inventory(
        vendor=NAME,
        driver=driver,
        accelerators=accelerators,
        nodes=nodes,
        files=found,
        searched=searched,
        findings=(
            *gpu_reader.findings,
            *nvml_findings,
            *search.findings,
            *listed.findings,
            *(search32.findings if search32 else ()),
            *other_findings,
            *manifest_findings,
            *group_findings,
            *_incomplete(searched),
        ),
        groups=groups,
    )


def _query_nvml(
    context: DiscoveryContext, search: libraries.LibrarySearch, findings: list[Finding]
) -> NvmlReply:
    """Query NVML in a child process, return its reply, and add failures to FINDINGS.

    If the context does not permit NVML, the function does not query NVML.
    """
    library = context.nvml
    if library == "off":
        return not_queried("nvml: off, or the driver is not this machine's own")
    if library == "auto":
        found = search.found.get("libnvidia-ml.so.1")
        if found is None:
            return not_queried("libnvidia-ml.so.1 was not found")
        library = found[0].host_path
    from cdigen.vendors.nvidia.nvml.query import MODULE_MISSING, query  # noqa: PLC0415 - most hosts do not need it

    answer = query(library)
    findings.extend(answer.findings)
    if any(finding.rule == MODULE_MISSING for finding in answer.findings):
        return not_queried("the Python module pynvml is missing")
    return reply_of(
        answer.report, next((finding.message for finding in answer.findings), "NVML does not answer")
    )


def _names_before(context: DiscoveryContext, driver: Driver) -> tuple[GpuPartitionNames, ...]:
    """Return the last known names of MIG instances that were recorded with the version of DRIVER."""
    own = (NAME, driver.version)
    return tuple(known for known in context.partition_names() if (known.vendor, known.driver) == own)


def _management_groups(context: DiscoveryContext, inventory: Inventory) -> tuple[Group, ...]:
    """Return the groups for the administration of GPUs: one in the mode ``management``, one by the option.

    The option ``management`` adds the kind management.nvidia.com/gpu, which NVIDIA's own software requests.
    """
    classes = ["management"] if context.mode == "management" else []
    classes += [MANAGEMENT_KIND] if context.option(NAME, MANAGEMENT) else []
    group = families.management_group(context, NvidiaNodeReader(context)) if classes else None
    return tuple(replace(group, device_class=each, files=inventory.files) for each in classes if group)


def _require_offers(inventory: Inventory) -> None:
    usable = [gpu for gpu in inventory.accelerators if gpu.usable]
    offered = [gpu for gpu in usable if not gpu.partitioned or any(mig.usable for mig in gpu.partitions)]
    if offered or inventory.groups:
        return
    reasons = [f for f in inventory.findings if f.rule in {"mig-empty", "mig-instance-unusable"}]
    raise HostError(
        f"no container can use a GPU: {reasons[0].message}", hint=reasons[0].hint, kind="no-mig-instances"
    )


def _require_gpus(accelerators: tuple[Accelerator, ...], findings: tuple[Finding, ...]) -> None:
    if accelerators:
        return
    excluded = [finding.path for finding in findings if finding.rule == gpus.EXCLUDED]
    if excluded:
        raise HostError(
            f"the driver's configuration excludes all GPUs: {', '.join(excluded)}",
            hint="see NVreg_ExcludedGpus in /proc/driver/nvidia/params and /etc/modprobe.d",
            kind="no-gpu",
        )
    unbound = [finding for finding in findings if finding.rule == gpus.NOT_BOUND]
    more = f" (and {len(unbound) - 1} more)" if len(unbound) > 1 else ""
    why = f": {unbound[0].message}{more}" if unbound else ""
    raise HostError(
        f"no GPU: the NVIDIA kernel module is loaded, but {gpus.GPUS} lists no GPU{why}",
        hint=next(
            filter(None, (one.hint for one in unbound)), "see 'lspci -d 10de:' and 'dmesg | grep NVRM'"
        ),
        kind="no-gpu",
    )


def _require_nodes(
    accelerators: tuple[Accelerator, ...], nodes: tuple[HostNode, ...], findings: tuple[Finding, ...]
) -> None:
    if not any(node.role == "control" for node in nodes):
        problem = next(f.message for f in findings if f.rule == MISSING_CONTROL_NODE)
        raise HostError(
            f"the driver is loaded, but no program can use the driver: {problem}",
            hint=next(f.hint for f in findings if f.rule == MISSING_CONTROL_NODE),
            kind="no-nodes",
        )
    if not any(accelerator.usable for accelerator in accelerators):
        first = next(finding for finding in findings if finding.severity == "error")
        raise HostError(
            f"none of the {len(accelerators)} GPUs can be used: {first.message}",
            hint=first.hint,
            kind="no-nodes" if first.rule == "gpu-node-missing" else "no-usable-device",
        )


def _require_libraries(context: DiscoveryContext, driver: Driver, search: libraries.LibrarySearch) -> None:
    versions = libraries.stale_versions(search)
    if versions:
        raise HostError(
            f"the kernel module has version {driver.version}, but the installed libraries have version "
            f"{', '.join(versions)}",
            hint="reboot, or stop all programs that use the GPUs and run "
            "'rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia'",
            kind="version-mismatch",
        )
    broken = [finding for finding in search.findings if finding.severity == "error"]
    if broken:
        raise HostError(broken[0].message, hint=broken[0].hint, kind="driver-broken")
    # Libraries that are not in ENTRANCES do not show that the driver is installed. Their packages can remain
    # after the driver's removal, until 'apt-get autoremove'.
    if any(library.stem in ENTRANCES for _, library, _ in search.found.values()):
        return
    folders = libraries.searched_folders(context, search)
    more = f" and {len(folders) - _MAX_FOLDERS} more folders" if len(folders) > _MAX_FOLDERS else ""
    where = f"{shown(', '.join(folders[:_MAX_FOLDERS]))}{more}" if folders else "any folder of libraries"
    raise HostError(
        f"no library of the driver {driver.version} was found below {shown(search.root.host_path('/'))}: "
        f"none of {', '.join(ENTRANCES)} in {where}",
        hint="install the driver's libraries, or name their folder with 'library_search_paths: [FOLDER]', or "
        "the folder of a driver container with 'driver_root: FOLDER'",
        kind="driver-not-found",
    )


def _incomplete(searched: tuple[ProbeResult, ...]) -> list[Finding]:
    """Return findings for missing required files and for incomplete capabilities."""
    collector = FindingCollector()
    for thing in searched:
        if thing.weight == "required" and not thing.found:
            will = f"{', '.join(thing.capabilities)} will not work"
            message = f"{thing.name} was not found ({thing.reason}): {will}"
            hint = "install the driver's package with this file, if containers need the file"
            collector.add("warning", "library-missing", thing.name, message, hint)
    for capability in ("compute", "graphics", "video"):
        of_it = [thing for thing in searched if capability in thing.capabilities]
        missing = [thing.name for thing in of_it if thing.weight != "optional" and not thing.found]
        if missing and any(thing.found for thing in of_it if thing.weight == "core"):
            verb = "is" if len(missing) == 1 else "are"
            message = f"the capability {capability} is incomplete: {', '.join(missing)} {verb} missing"
            hint = "install the driver's packages with these files; else programs of this kind may fail"
            collector.add("warning", "capability-incomplete", capability, message, hint)
    return collector.findings
