"""The newest CUDA version that NVIDIA's driver supports (``DRIVER_API``).

``read_cuda`` reads the version from NVML. ``of_branch`` returns the version by the driver's branch, which is
the first number of the driver's version. Programs that are linked with a newer version of CUDA do not start.
NVML gets the CUDA version from libcuda (NVML API reference, nvmlSystemGetCudaDriverVersion).

``arch_of`` and ``brands_of`` return the compute capability and the brands of a GPU model, which the inventory
does not contain. A GPU whose model is not in the tables may be new. Therefore, cdigen does not reject such a
GPU for any requirement of an image (``NVIDIA_REQUIRE_*``).
"""

from __future__ import annotations

import re

from cdigen.vendors.base import DriverApi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext

# In seconds. The query loads the driver's libraries, and uses no GPU.
DEADLINE_S = 5.0
# The inventory's modes in which the driver's version is the version of the kernel module nvidia. Drivers of
# Tegra boards and WSL2 have other version numbers.
_NUMBERED = frozenset(("gpu", "management"))
# A number of NVML outside of these limits is invalid, or is a CUDA version that no supported driver has.
_LEAST, _MOST = 1000, 1_000_000

# (first driver branch with this CUDA version, CUDA version). The source is the CUDA Toolkit release notes,
# "CUDA Toolkit and corresponding driver versions". The newest version is in the first row. A branch between
# two rows has the CUDA version of the older branch.
_CUDA = (
    (590, "13.1"),
    (580, "13.0"),
    (575, "12.9"),
    (570, "12.8"),
    (565, "12.7"),
    (560, "12.6"),
    (555, "12.5"),
    (550, "12.4"),
    (545, "12.3"),
    (535, "12.2"),
    (530, "12.1"),
    (525, "12.0"),
    (520, "11.8"),
    (515, "11.7"),
    (510, "11.6"),
    (495, "11.5"),
    (470, "11.4"),
    (465, "11.3"),
    (460, "11.2"),
    (455, "11.1"),
    (450, "11.0"),
    (440, "10.2"),
    (418, "10.1"),
    (410, "10.0"),
    (396, "9.2"),
    (390, "9.1"),
    (384, "9.0"),
)
_NEWEST = 595  # the first branch after the table

# Pattern of the model name (in lower case, without "NVIDIA") -> compute capability. The first match applies.
# The values are from developer.nvidia.com/cuda-gpus.
_ARCHITECTURES = (
    (r"rtx pro .*blackwell|(?:geforce )?rtx 50\d0|rtx pro \d+", "12.0"),
    (r"gb10\b", "12.1"),
    (r"(?:gb|b)300", "10.3"),
    (r"(?:gb|b)[12]00", "10.0"),
    (r"gh200|h[128]00|h20\b", "9.0"),
    (r"l40s?\b|l4\b|l20\b|l2\b|.*\bada\b|(?:geforce )?rtx 40\d0", "8.9"),
    (r"a(?:100|30|800)\b", "8.0"),
    (r"a(?:10g?|10m|16|2|40)\b|rtx a\d+|(?:geforce )?rtx 30\d0", "8.6"),
    (r"(?:tesla )?t4g?\b|quadro rtx|titan rtx|(?:geforce )?rtx 20\d0|geforce gtx 16\d0|t\d{3,4}\b", "7.5"),
    (r"(?:tesla )?v100|titan v\b|quadro gv100", "7.0"),
    (r"(?:tesla )?p100|quadro gp100", "6.0"),
    (r"(?:tesla )?p(?:4|6|40)\b|titan xp?\b|titan x \(pascal\)|geforce gtx 10\d0|quadro p\d+", "6.1"),
    (r"(?:tesla )?m(?:4|6|10|40|60)\b|geforce gtx 9\d0", "5.2"),
    (r"(?:tesla )?k80\b", "3.7"),
)

# Pattern of the model name -> possible brand names. The names are from NVML (nvml.h, nvmlBrandType_t), in
# libnvidia-container's spelling without spaces. For a data-centre GPU, older drivers report the brand Tesla,
# and newer drivers report the brand NVIDIA.
_BRANDS = (
    (r"geforce rtx", ("geforce", "geforcertx")),
    (r"geforce", ("geforce",)),
    (r"titan rtx", ("titan", "titanrtx")),
    (r"titan", ("titan",)),
    (r"quadro rtx", ("quadro", "quadrortx")),
    (r"quadro", ("quadro",)),
    (r"nvs", ("nvs",)),
    (r"grid", ("grid",)),
    (r"rtx", ("nvidiartx", "quadrortx", "quadro")),
    (r"tesla|(?:gb|gh|h|b|a|l|t|v|p|m|k)\d+[a-z]{0,2}\b", ("nvidia", "tesla")),
)


def read_cuda(context: DiscoveryContext, inventory: Inventory) -> str | None:
    """Return the CUDA version that NVML reports for INVENTORY's driver, or None; resume no GPU."""
    # These imports are needed only for a query.
    from cdigen.vendors.nvidia.nvml.document import DRIVER  # noqa: PLC0415
    from cdigen.vendors.nvidia.nvml.query import query  # noqa: PLC0415
    from cdigen.vendors.nvidia.nvml.readiness import library_of  # noqa: PLC0415

    library, _ = library_of(context, inventory)
    if not library or any(finding.rule == "nvml-timeout" for finding in inventory.findings):
        return None
    report = query(library, what=(DRIVER,), deadline_s=DEADLINE_S).report
    return version(report.cuda) if report is not None else None


def version(number: int | None) -> str | None:
    """Return the CUDA version for NVML's NUMBER, or None if NUMBER is invalid. 12040 means 12.4."""
    if number is None or not _LEAST <= number < _MOST:
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def served(inventory: Inventory) -> str:
    """Return the newest CUDA version that INVENTORY's driver supports, or "" if it is not known.

    The result is the version that the driver reported, else the version of the driver's branch.
    """
    driver = inventory.driver
    if driver.cuda is not None:
        return driver.cuda
    return of_branch(driver.version) if inventory.mode in _NUMBERED else ""


def of_branch(driver: str) -> str:
    """Return the newest CUDA version for the driver version DRIVER, or "" if it is not known."""
    major = driver.partition(".")[0]
    if not (major.isascii() and major.isdigit() and len(major) < 6) or int(major) >= _NEWEST:
        return ""
    return next((cuda for branch, cuda in _CUDA if branch <= int(major)), "")


def arch_of(model: str) -> str:
    """Return the compute capability of the GPU model MODEL, or "" if it is not known."""
    name = _plain(model)
    return next((arch for rule, arch in _ARCHITECTURES if re.match(rule, name)), "")


def brands_of(model: str) -> tuple[str, ...]:
    """Return the possible brands of the GPU model MODEL, or an empty tuple if they are not known."""
    name = _plain(model)
    return next((brands for rule, brands in _BRANDS if re.match(rule, name)), ())


def _plain(model: str) -> str:
    return model.strip().lower().removeprefix("nvidia").strip()


DRIVER_API = DriverApi(read=read_cuda, version=served, architecture=arch_of, brands=brands_of)
