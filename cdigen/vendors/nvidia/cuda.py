"""Which CUDA a driver serves: ``served`` says it, by the driver's own word (``ask``) or by its branch.

Programs that link a newer one do not start. Source of what NVML tells: NVML API reference,
nvmlSystemGetCudaDriverVersion, which asks libcuda.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext

# Nothing waits for a GPU here: the driver's libraries alone are loaded.
DEADLINE_S = 5.0
# Where the driver is the kernel module nvidia; drivers of Tegra and WSL have numbers of their own.
_NUMBERED = frozenset(("gpu", "management"))
# Below these a number is none, or of a CUDA that no driver of ours served.
_LEAST, _MOST = 1000, 1_000_000

# The first driver branch with each CUDA, newest first (CUDA Toolkit release notes, "CUDA Toolkit and
# corresponding driver versions"). A branch between two has the older one's.
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
_NEWEST = 595  # the first branch of which the table says nothing


def ask(context: DiscoveryContext, inventory: Inventory) -> str | None:
    """Return the CUDA that INVENTORY's driver says it serves, None where it does not tell; wakes no GPU."""
    # What is below is for the few runs that ask.
    from cdigen.vendors.nvidia.nvml.ask import ask as ask_nvml  # noqa: PLC0415
    from cdigen.vendors.nvidia.nvml.document import DRIVER  # noqa: PLC0415
    from cdigen.vendors.nvidia.nvml.library import library_of  # noqa: PLC0415

    library, _ = library_of(context, inventory)
    if not library or any(finding.rule == "nvml-timeout" for finding in inventory.findings):
        return None
    report = ask_nvml(library, what=(DRIVER,), deadline_s=DEADLINE_S).report
    return version(report.cuda) if report is not None else None


def version(number: int | None) -> str | None:
    """Return a NUMBER of NVML's as a version: 12040 is 12.4."""
    if number is None or not _LEAST <= number < _MOST:
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def served(inventory: Inventory) -> str:
    """Return the newest CUDA that INVENTORY's driver runs: what it says, else its branch; empty: unknown."""
    driver = inventory.driver
    if driver.cuda is not None:
        return driver.cuda
    return of_branch(driver.version) if inventory.mode in _NUMBERED else ""


def of_branch(driver: str) -> str:
    """Return the newest CUDA that a driver of version DRIVER runs, empty where that is not known."""
    major = driver.partition(".")[0]
    if not (major.isascii() and major.isdigit() and len(major) < 6) or int(major) >= _NEWEST:
        return ""
    return next((cuda for branch, cuda in _CUDA if branch <= int(major)), "")
