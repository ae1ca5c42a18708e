"""Detect WSL2 hosts and Tegra boards. cdigen has a separate discovery for each of them."""

from __future__ import annotations

from cdigen.host.procfs import is_wsl_release, kernel_release, read_line, read_text
from cdigen.vendors.nvidia.devices.gpus import GPUS
from cdigen.vendors.nvidia.kernel_module import VERSION_FILE, parse_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.vendors.context import DiscoveryContext

WSL_NODE = "/dev/dxg"
WSL_LIBRARIES = "/usr/lib/wsl/lib"
DXCORE = "libdxcore.so"

TEGRA_RELEASE = "/etc/nv_tegra_release"
_SOC_FAMILY = "/sys/devices/soc0/family"
# Words in the model names of integrated GPUs. NVML's names are "Orin (nvgpu)" and "NVIDIA Thor".
_INTEGRATED = ("nvgpu", "thor", "orin", "xavier", "tegra")


def is_wsl(context: DiscoveryContext) -> bool:
    """Return whether the host is Linux in WSL, with or without GPUs that Windows shares.

    A host with Microsoft's kernel is not WSL if the nvidia module is loaded.
    """
    if context.driver.exists(f"{WSL_LIBRARIES}/{DXCORE}") and context.dev.exists(WSL_NODE):
        return True
    return is_wsl_release(kernel_release(context.host)) and not context.host.exists(VERSION_FILE)


def is_tegra(context: DiscoveryContext) -> bool:
    """Return whether the host is a Tegra board with an integrated GPU that cdigen must offer.

    As in go-nvlib, the release file or the family of the SoC shows that the host is a Tegra board. A board
    with a discrete GPU (IGX Orin) can use the desktop driver instead of Tegra's driver. The nvidia module
    then lists a GPU on the PCI bus and no integrated GPU, and the result is false. A loaded nvidia module
    without GPUs is not a sign of a desktop driver, because Orin's display also uses the module.
    """
    if not _has_tegra_files(context.host):
        return False
    integrated, discrete = listed_gpus(context.host)
    return bool(integrated) or not discrete


def listed_gpus(host: Root) -> tuple[list[str], list[str]]:
    """Return the model names of the integrated GPUs and of the PCI GPUs that the nvidia module lists."""
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
    return host.exists(TEGRA_RELEASE) or read_line(host, _SOC_FAMILY).lower().startswith("tegra")
