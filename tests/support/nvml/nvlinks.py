"""GPUs with NVLinks for the stand-in of NVML: `linked` directly to others, or `switched`."""

from support.hosts import nvidia_kernel
from support.nvml.standin import Gpu, gpu, uuid

FIRST_BUS = 0x19


def address(number: int) -> str:
    return f"0000:{FIRST_BUS + number:02x}:00.0"


def linked(
    number: int, *peers: int | None, figures: tuple[str, ...] = (), faults: tuple[str, ...] = ()
) -> Gpu:
    """Return the GPU with a link to each of PEERS: a GPU's index, None for a switch, -1 for a link down."""
    told = [*figures]
    for link, peer in enumerate(peers):
        bus = 0xF0 if peer is None else FIRST_BUS + peer
        told.append(f"nvmlDeviceGetNvLinkState {link} {int(peer != -1)} 0")
        told.append(f"nvmlDeviceGetNvLinkRemoteDeviceType {link} {2 if peer is None else 0} 0")
        told.append(f"nvmlDeviceGetNvLinkRemotePciInfo_v2 {link} {bus} 0")
    return gpu(number, figures=tuple(told), faults=faults)


def switched(
    number: int,
    count: int,
    links: int,
    *,
    reached: bool = True,
    figures: tuple[str, ...] = (),
    faults: tuple[str, ...] = (),
) -> Gpu:
    """Return one of COUNT GPUs with so many LINKS to switches, which join it with all others if REACHED."""
    others = (other for other in range(count) if other != number)
    p2p = tuple(f"nvmlDeviceGetP2PStatus {other} {0 if reached else 6} 0" for other in others)
    return linked(number, *(None,) * links, figures=(*p2p, *figures), faults=faults)


def on_the_bus(count: int) -> tuple[nvidia_kernel.Gpu, ...]:
    """Return the same GPUs as the kernel shows them."""
    return tuple(
        nvidia_kernel.Gpu(minor=number, bdf=address(number), uuid=uuid(number)) for number in range(count)
    )
