"""Detect hosts whose GPUs are discovered in another way: WSL2, Tegra boards."""

from __future__ import annotations

from cdigen.host.procfs import read_text
from cdigen.vendors.nvidia.gpus import GPUS
from cdigen.vendors.nvidia.kernel_module import parse_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.vendors.base import DiscoveryContext

WSL_NODE = "/dev/dxg"
WSL_LIBRARIES = "/usr/lib/wsl/lib"
DXCORE = "libdxcore.so"

TEGRA_RELEASE = "/etc/nv_tegra_release"
_SOC_FAMILY = "/sys/devices/soc0/family"
# Words in the names of integrated GPUs. NVML says "Orin (nvgpu)" and "NVIDIA Thor".
_INTEGRATED = ("nvgpu", "thor", "orin", "xavier", "tegra")


def is_wsl(context: DiscoveryContext) -> bool:
    """Return whether the host is a Linux in WSL2 to which Windows shows its GPUs."""
    return context.driver.exists(f"{WSL_LIBRARIES}/{DXCORE}") and context.dev.exists(WSL_NODE)


def is_tegra(context: DiscoveryContext) -> bool:
    """Return whether the host is a Tegra board whose integrated GPU is to be served.

    A board is known by its release file or its SoC's family, as go-nvlib does. Boards with a discrete
    GPU (IGX Orin) can run the desktop driver instead: then the nvidia module lists that GPU on the
    PCI bus and no integrated one. That the module is loaded says nothing: Orin's display uses it.
    """
    if not _has_tegra_files(context.host):
        return False
    integrated, discrete = listed_gpus(context.host)
    return bool(integrated) or not discrete


def listed_gpus(host: Root) -> tuple[list[str], list[str]]:
    """Return the names of the GPUs that the nvidia module lists: integrated ones, those on the PCI bus."""
    integrated, discrete = [], []
    for name in host.names(GPUS):
        try:
            model = parse_lines(read_text(host, f"{GPUS}/{name}/information")).get("Model", "")
        except OSError:
            continue
        if any(word in model.lower() for word in _INTEGRATED):
            integrated.append(model)
        elif host.exists(f"/sys/bus/pci/devices/{name}"):
            discrete.append(model)
    return integrated, discrete


def _has_tegra_files(host: Root) -> bool:
    if host.exists(TEGRA_RELEASE):
        return True
    try:
        return read_text(host, _SOC_FAMILY).lower().startswith("tegra")
    except OSError:
        return False
