"""GPUs with NVLinks for the stand-in of NVML: `linked` to GPUs or switches, or `switched`."""

from support.hosts import nvidia_kernel
from support.nvml.standin import Gpu, gpu, uuid

FIRST_BUS = 0x19


def address(number: int) -> str:
    return f"0000:{FIRST_BUS + number:02x}:00.0"


def linked(
    number: int, *peers: int | None, results: tuple[str, ...] = (), faults: tuple[str, ...] = ()
) -> Gpu:
    """Return GPU NUMBER with a link for each of PEERS: a GPU's index, None (switch) or -1 (inactive)."""
    lines = [*results]
    for link, peer in enumerate(peers):
        bus = 0xF0 if peer is None else FIRST_BUS + peer
        lines.append(f"nvmlDeviceGetNvLinkState {link} {int(peer != -1)} 0")
        lines.append(f"nvmlDeviceGetNvLinkRemoteDeviceType {link} {2 if peer is None else 0} 0")
        lines.append(f"nvmlDeviceGetNvLinkRemotePciInfo_v2 {link} {bus} 0")
    return gpu(number, results=tuple(lines), faults=faults)


def switched(
    number: int,
    count: int,
    links: int,
    *,
    reached: bool = True,
    results: tuple[str, ...] = (),
    faults: tuple[str, ...] = (),
) -> Gpu:
    """Return GPU NUMBER of COUNT GPUs; its LINKS links lead to switches, which reach all GPUs if REACHED."""
    others = (other for other in range(count) if other != number)
    p2p = tuple(f"nvmlDeviceGetP2PStatus {other} {0 if reached else 6} 0" for other in others)
    return linked(number, *(None,) * links, results=(*p2p, *results), faults=faults)


def on_the_bus(count: int) -> tuple[nvidia_kernel.Gpu, ...]:
    """Return COUNT GPUs for the kernel's files, with the addresses and UUIDs that `linked` uses."""
    return tuple(
        nvidia_kernel.Gpu(minor=number, bdf=address(number), uuid=uuid(number)) for number in range(count)
    )
