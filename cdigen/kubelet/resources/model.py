"""``Resource`` is a resource that the kubelet tracks. ``Unit`` is a device of a resource."""

from __future__ import annotations

from cdigen.topology.choose import AcceleratorPart
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.health import Health
    from cdigen.model.inventory import Accelerator, Partition

# The rule of findings on NVIDIA's configuration file (nvidia_file).
NVIDIA_RULE = "nvidia-configuration"


@frozen
class Unit:
    """A device of a resource.

    The kubelet identifies the unit by ``id``, which has at most 63 characters. The unit is the whole
    ``accelerator`` or a ``partition`` of the accelerator. If ``replica`` is set, the unit is a replica or a
    memory unit of this device, and ``replica`` is its number, from 0. ``cdi_names`` are the qualified names
    that inject the unit into a container. A unit of unknown health is advertised as healthy. ``numa`` is the
    number of the unit's NUMA node, or None if unknown.
    """

    id: str
    health: Health
    numa: int | None
    accelerator: Accelerator
    partition: Partition | None = None
    replica: int | None = None
    cdi_names: tuple[str, ...] = ()

    @property
    def part(self) -> AcceleratorPart:
        """The unit as a value for ``topology.choose``."""
        return AcceleratorPart(name=self.id, accelerator=self.accelerator, partition=self.partition)


@frozen
class Resource:
    """An extended resource that pods request by ``name`` (``nvidia.com/gpu``), with its units in order."""

    name: str
    units: tuple[Unit, ...]
