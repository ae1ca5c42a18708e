"""NVIDIA's side of the vendor protocol: put the readings together and judge the whole."""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding
from cdigen.model.inventory import Inventory
from cdigen.vendors.nvidia import edits, files, gpus, kernel, libraries, manifests
from cdigen.vendors.nvidia.nodes import NodeReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.cdi import Draft
    from cdigen.model.inventory import Accelerator, Driver, HostNode, Sought
    from cdigen.model.profile import Profile
    from cdigen.vendors.base import Places


class Nvidia:
    """The vendor ``nvidia`` (``vendors.base.Vendor``)."""

    NAME = "nvidia"

    def discover(self, places: Places) -> Inventory:
        """Read GPUs, nodes and driver files.

        Raises HostError with the kinds driver-not-loaded, no-gpu, no-nodes, version-mismatch and
        driver-broken where no container could use a GPU.
        """
        driver = kernel.read_driver(places.host)
        node_reader = NodeReader(places)
        gpu_reader = gpus.GpuReader(places, node_reader)
        accelerators = gpu_reader.read()
        _require_gpus(accelerators)
        nodes = gpu_reader.read_control_nodes()
        _require_nodes(accelerators, nodes, gpu_reader.findings)
        search = libraries.find_libraries(places, driver)
        _require_libraries(driver, search)
        others, sought_others, other_findings = files.find_files(places, driver, tuple(search.folders))
        found, manifest_findings = manifests.with_named_paths(
            places.driver, (*libraries.library_files(search), *others)
        )
        sought = (*libraries.sought_libraries(search), *sought_others)
        return Inventory(
            vendor=self.NAME,
            driver=driver,
            accelerators=accelerators,
            nodes=nodes,
            files=found,
            sought=sought,
            findings=(
                *gpu_reader.findings,
                *search.findings,
                *other_findings,
                *manifest_findings,
                *_incomplete(sought),
            ),
        )

    def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
        """Return one draft per profile."""
        return edits.drafts(inventory, profiles)


VENDOR = Nvidia()


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


def _require_libraries(driver: Driver, search: libraries.Search) -> None:
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
    if search.found:
        return
    raise HostError(
        f"no library of the driver {driver.version} was found below {shown(search.root.host_path('/'))}",
        hint="install the driver's libraries, or name their folder with --driver-root or "
        "--library-search-path",
        kind="driver-not-found",
    )


def _incomplete(sought: tuple[Sought, ...]) -> list[Finding]:
    """Say which capability cannot work, or is installed in part."""
    findings = [
        Finding(
            severity="warning",
            rule="library-missing",
            path=thing.name,
            message=f"{thing.name} was not found ({thing.reason}): {', '.join(thing.capabilities)} "
            "will not work",
            hint="install the driver's package that holds it, if containers shall have it",
        )
        for thing in sought
        if thing.weight == "required" and not thing.found
    ]
    for capability in ("compute", "graphics", "video"):
        core = [
            thing
            for thing in sought
            if capability in thing.capabilities and thing.weight in {"core", "required"}
        ]
        own = [thing for thing in core if thing.weight == "core"]
        missing = [thing.name for thing in core if not thing.found]
        if missing and any(thing.found for thing in own):
            findings.append(
                Finding(
                    severity="warning",
                    rule="capability-incomplete",
                    path=capability,
                    message=f"the capability {capability} is installed in part: {', '.join(missing)} "
                    f"{'is' if len(missing) == 1 else 'are'} missing",
                    hint="install the driver's packages that hold them, or expect such programs to fail",
                )
            )
    return findings
