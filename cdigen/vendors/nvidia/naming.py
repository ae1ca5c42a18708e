"""The names of devices: index and UUID as NVIDIA's tools have them, and others by choice.

Forms of names: nvidia-container-toolkit's naming strategies index, uuid and type-index; PCI addresses
as sysfs spells them. No two namings can give the same name: an index is a number, or two with a colon,
or one with a colon and an instance's ids, and each of the others begins with its own letters or holds a
PCI address's dot.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator, Partition

# Those of a profile that names none.
NAMINGS = ("index", "uuid")


def gpu_names(gpu: Accelerator, namings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a whole GPU; what it does not have (a UUID) gives none."""
    names = {
        "index": str(gpu.index),
        "uuid": gpu.uuid,
        "type-index": f"gpu{gpu.index}",
        "pci": gpu.address,
        "minor": None if gpu.minor is None else f"minor{gpu.minor}",
    }
    return tuple(name for naming in namings if (name := names.get(naming)))


def mig_names(gpu: Accelerator, mig: Partition, namings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a MIG instance; namings that are of whole GPUs only give none.

    One whose number is not known is named by its ids (``0:gi9-ci0``): a number that is counted here could
    be another instance's tomorrow, when NVML answers.
    """
    names = {
        "index": f"{gpu.index}:{mig.label}",
        "uuid": mig.uuid,
        "type-index": f"mig{gpu.index}:{mig.label}",
    }
    return tuple(name for naming in namings if (name := names.get(naming)))
