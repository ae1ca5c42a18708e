"""The kernel's files for MIG: capability files, mig-minors and the device nodes of instances."""

from pathlib import Path

from support.hosts.nvidia_kernel import Node, make_node, write

CAPS_MAJOR = 511


def minor_of(gpu: int, gi: int, ci: int | None = None) -> int:
    """Return the minor of a capability. The driver has 15 instances per GPU, and nine minors per instance."""
    return 3 + gpu * 135 + gi * 9 + (0 if ci is None else ci + 1)


def write_minors(root: Path, gpus: int) -> None:
    """Write mig-minors, which lists every possible instance; also write the shared capabilities."""
    lines = ["config 1", "monitor 2"]
    for gpu in range(gpus):
        for gi in range(15):
            lines.append(f"gpu{gpu}/gi{gi}/access {minor_of(gpu, gi)}")
            lines.extend(f"gpu{gpu}/gi{gi}/ci{ci}/access {minor_of(gpu, gi, ci)}" for ci in range(8))
    write(root / "proc/driver/nvidia-caps/mig-minors", "\n".join([*lines, ""]))
    for name, number in (("config", 1), ("monitor", 2)):
        write(root / f"proc/driver/nvidia/capabilities/mig/{name}", access_text(number))


def access_text(minor: int) -> str:
    return f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"


def write_instance(root: Path, gpu: int, gi: int, ci: int = 0, *, nodes: bool = True) -> None:
    """Create a MIG instance: its capability files and, with NODES, its device nodes."""
    folder = root / f"proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{gi}"
    for path, minor in (
        (folder / "access", minor_of(gpu, gi)),
        (folder / f"ci{ci}/access", minor_of(gpu, gi, ci)),
    ):
        write(path, access_text(minor))
        if nodes:
            make_node(root, cap_node(minor), mode=0o444)


def cap_node(minor: int) -> Node:
    return Node(path=f"/dev/nvidia-caps/nvidia-cap{minor}", major=CAPS_MAJOR, minor=minor)


def cap_paths(gpu: int, gi: int, ci: int = 0) -> set[str]:
    return {cap_node(minor_of(gpu, gi)).path, cap_node(minor_of(gpu, gi, ci)).path}
