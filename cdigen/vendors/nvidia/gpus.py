"""GPUs and their nodes, from /proc/driver/nvidia, /sys and /dev; NVML is not asked.

The index is NVML's: GPUs of the nvidia driver in the order of their PCI addresses, those that the
driver excludes left out (NVML API reference, nvmlDeviceGetCount_v2 and GetHandleByIndex_v2). A GPU
that cannot be served keeps its index, so the names of the others do not move.
"""

from __future__ import annotations

from cdigen.host import devnodes, sysfs
from cdigen.host.procfs import read_text
from cdigen.host.root import reason, shown
from cdigen.model.findings import Finding
from cdigen.model.inventory import Accelerator
from cdigen.value import replace
from cdigen.vendors.nvidia.tables import CONTROL_NODES, GRAPHICS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.base import Places

GPUS = "/proc/driver/nvidia/gpus"
PCI_VENDOR = 0x10DE
PCI_CLASSES = (0x0300, 0x0302)  # VGA and 3D controllers (PCI Code and ID Assignment, class 03)
MAX_MINOR = 0xFFFFF


def read_gpus(places: Places) -> tuple[tuple[Accelerator, ...], tuple[Finding, ...]]:
    """Read every GPU of the nvidia driver; one that is broken is unusable, with a finding.

    Returns the accelerators in the order of their index, excluded GPUs left out.
    """
    findings: list[Finding] = []
    accelerators: list[Accelerator] = []
    for folder, address in _addresses(places, findings):
        information = _read_information(places, f"{GPUS}/{folder}/information", findings)
        if information.get("GPU Excluded", "No").lower() == "yes":
            findings.append(
                Finding(
                    severity="info",
                    rule="gpu-excluded",
                    path=address,
                    message=f"GPU {address} is excluded by the driver's configuration and gets no device",
                )
            )
            continue
        accelerator = _accelerator(places, len(accelerators), address, information, findings)
        accelerators.append(_without_repetition(accelerator, accelerators, findings))
    findings.extend(_unbound(places, {accelerator.address for accelerator in accelerators}))
    return tuple(accelerators), tuple(findings)


def read_control_nodes(places: Places) -> tuple[tuple[HostNode, ...], tuple[Finding, ...]]:
    """Read the nodes that all GPUs share; a missing one is a finding by its weight."""
    nodes: list[HostNode] = []
    findings: list[Finding] = []
    for path, role, capabilities, weight in CONTROL_NODES:
        try:
            node = devnodes.read_node(places.dev, path, role=role, capabilities=capabilities)
        except (OSError, devnodes.NotADevice) as error:
            findings.append(
                Finding(
                    severity="error" if weight == "required" else "info",
                    rule="control-node-missing",
                    path=places.dev.host_path(path),
                    message=_node_problem(places, path, error),
                    hint="'nvidia-modprobe -c 0 -u -m' makes the nodes" if weight == "required" else "",
                )
            )
            continue
        nodes.append(node)
    return tuple(nodes), tuple(findings)


def parse_information(text: str) -> dict[str, str]:
    """Return the ``Key: value`` lines of a GPU's information file; other lines are passed over."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip().isprintable() and value.strip().isprintable():
            values.setdefault(key.strip(), value.strip())
    return values


def is_uuid(text: str) -> bool:
    """Return whether TEXT is a GPU's UUID as the driver spells it: ``GPU-`` and 8-4-4-4-12 digits."""
    prefix, _, digits = text.partition("-")
    groups = digits.split("-")
    return (
        prefix == "GPU"
        and [len(group) for group in groups] == [8, 4, 4, 4, 12]
        and all(character in "0123456789abcdef" for group in groups for character in group)
    )


def _addresses(places: Places, findings: list[Finding]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name in places.host.names(GPUS):
        address = sysfs.pci_address(name)
        if address is None:
            findings.append(
                Finding(
                    severity="warning",
                    rule="gpu-address-unknown",
                    path=shown(f"{GPUS}/{name}"),
                    message=f"{shown(name)!r} is not a PCI address; the entry is passed over",
                )
            )
            continue
        found.append((name, address))
    return sorted(found, key=lambda pair: sysfs.pci_key(pair[1]) or ())


def _read_information(places: Places, path: str, findings: list[Finding]) -> dict[str, str]:
    problem = "it holds no 'Device Minor' line"
    try:
        values = parse_information(read_text(places.host, path))
    except OSError as error:
        values, problem = {}, reason(error)
    if "Device Minor" not in values:
        findings.append(
            Finding(
                severity="error",
                rule="gpu-information-unreadable",
                path=path,
                message=f"{path} does not describe a GPU: {problem}; this GPU gets no device",
                hint="see 'dmesg | grep NVRM' for what happened to it",
            )
        )
    return values


def _accelerator(
    places: Places, index: int, address: str, information: dict[str, str], findings: list[Finding]
) -> Accelerator:
    minor = _minor(information, address, findings)
    uuid: str | None = information.get("GPU UUID", "").lower().replace("gpu-", "GPU-", 1)
    if not uuid or not is_uuid(uuid):
        uuid = None
    if uuid is None and minor is not None:
        findings.append(
            Finding(
                severity="warning",
                rule="uuid-unknown",
                path=f"{GPUS}/{address}/information",
                message=f"GPU {index} ({address}) has no UUID yet; it is offered by its index only",
                hint="its first use makes it known, for example 'nvidia-smi -L'",
            )
        )
    nodes = _nodes(places, index, address, minor, findings) if minor is not None else ()
    usable = any(node.role == "gpu" for node in nodes)
    problem = "" if usable else "its device node is missing" if minor is not None else "its minor is unknown"
    return Accelerator(
        index=index,
        address=address,
        model=information.get("Model", ""),
        uuid=uuid,
        minor=minor,
        nodes=nodes,
        usable=usable,
        problem=problem,
    )


def _without_repetition(
    accelerator: Accelerator, others: list[Accelerator], findings: list[Finding]
) -> Accelerator:
    """Return ACCELERATOR as it may be served beside OTHERS: no minor and no UUID stands for two GPUs."""
    for other in others:
        if accelerator.minor is not None and accelerator.minor == other.minor:
            problem = f"its minor {accelerator.minor} is that of GPU {other.index}"
            accelerator = replace(accelerator, nodes=(), usable=False, problem=problem)
        elif accelerator.uuid is not None and accelerator.uuid == other.uuid:
            problem = f"its UUID is that of GPU {other.index}"
            accelerator = replace(accelerator, uuid=None, problem=problem)
        else:
            continue
        findings.append(
            Finding(
                severity="error",
                rule="gpu-repeated",
                path=accelerator.address,
                message=f"GPU {accelerator.index} ({accelerator.address}): {problem}",
                hint="the kernel module is in a bad state: reload it or reboot",
            )
        )
    return accelerator


def _minor(information: dict[str, str], address: str, findings: list[Finding]) -> int | None:
    text = information.get("Device Minor")
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 7 and int(text) <= MAX_MINOR:
        return int(text)
    findings.append(
        Finding(
            severity="error",
            rule="gpu-information-unreadable",
            path=f"{GPUS}/{address}/information",
            message=f"GPU {address} has 'Device Minor: {text[:40]}', which is no number; it gets no device",
            hint="see 'dmesg | grep NVRM' for what happened to it",
        )
    )
    return None


def _nodes(
    places: Places, index: int, address: str, minor: int, findings: list[Finding]
) -> tuple[HostNode, ...]:
    wanted = [
        (f"/dev/nvidia{minor}", "gpu"),
        *(
            (f"/dev/dri/{name}", "card" if name.startswith("card") else "render")
            for name in sysfs.drm_names(places.host, address)
        ),
    ]
    nodes = []
    for path, role in wanted:
        is_gpu = role == "gpu"
        try:
            nodes.append(
                devnodes.read_node(places.dev, path, role=role, capabilities=() if is_gpu else GRAPHICS)
            )
        except (OSError, devnodes.NotADevice) as error:
            consequence = "this GPU gets no device" if is_gpu else "graphics programs will not find the GPU"
            findings.append(
                Finding(
                    severity="error" if is_gpu else "warning",
                    rule="gpu-node-missing" if is_gpu else "drm-node-missing",
                    path=places.dev.host_path(path),
                    message=f"GPU {index} ({address}): {_node_problem(places, path, error)}; {consequence}",
                    hint=f"'nvidia-modprobe -c {minor}' makes it" if is_gpu else "is udev running?",
                )
            )
            if is_gpu:
                return ()
    return tuple(nodes)


def _node_problem(places: Places, path: str, error: OSError | devnodes.NotADevice) -> str:
    if isinstance(error, devnodes.NotADevice):
        return str(error)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{places.dev.host_path(path)} does not exist"
    return f"{places.dev.host_path(path)} cannot be read: {reason(error)}"


def _unbound(places: Places, served: set[str]) -> list[Finding]:
    findings = []
    for address, driver in sysfs.pci_devices(places.host, vendor=PCI_VENDOR, classes=PCI_CLASSES):
        if driver == "nvidia" or address in served:
            continue
        holder = f"is bound to the driver {driver}" if driver else "is bound to no driver"
        findings.append(
            Finding(
                severity="info",
                rule="gpu-not-bound",
                path=address,
                message=f"GPU {address} {holder}, not to nvidia, and gets no device",
            )
        )
    return findings
