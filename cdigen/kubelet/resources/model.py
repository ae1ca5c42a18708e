"""``Resource`` is a resource that the kubelet tracks. ``Unit`` is a device of a resource."""

from __future__ import annotations

from cdigen.topology.choose import AcceleratorPart
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.health import Health
    from cdigen.model.inventory import Accelerator, Partition

# The default limit of gRPC for a message in bytes, which the kubelet uses (grpc-go, clientconn.go).
MAX_MESSAGE = 4 << 20
# The largest number of characters in the id of a unit (deviceplugin/v1beta1/api.proto, Device.ID).
MAX_ID = 63
# The separators in the ids of units. REPLICA is between a device's id and the number of a replica, as in
# NVIDIA's plugin. MEMORY is between a GPU's id and the number of a memory unit, as in gpushare (nvidia.go,
# generateFakeDeviceID).
REPLICA, MEMORY = "::", "-_-"
# The rule of findings on NVIDIA's configuration file (nvidia_file).
NVIDIA_RULE = "nvidia-configuration"


@frozen
class Unit:
    """A device of a resource.

    The kubelet identifies the unit by ``id``, which has at most 63 characters. The unit is the whole
    ``accelerator`` or a ``partition`` of the accelerator. If ``replica`` is set, the unit is a replica or a
    memory unit of this device, and ``replica`` is its number, from 0. ``cdi_names`` are the qualified names
    that inject the unit into a container. A unit of unknown health is advertised as healthy. ``numa`` is the
    number of the unit's NUMA node, or None if unknown. ``claim_names`` are the names of the devices of a DRA
    driver that are the unit, contain the unit or are a part of it (``gpu.nvidia.com/gpu-0``). A ``*`` in such
    a name matches any text.
    """

    id: str
    health: Health
    numa: int | None
    accelerator: Accelerator
    partition: Partition | None = None
    replica: int | None = None
    cdi_names: tuple[str, ...] = ()
    claim_names: tuple[str, ...] = ()

    @property
    def part(self) -> AcceleratorPart:
        """The unit as a value for ``topology.choose``."""
        return AcceleratorPart(name=self.id, accelerator=self.accelerator, partition=self.partition)


def numbered(unit: Unit, mark: str, count: int) -> list[Unit]:
    """Return COUNT replicas or memory units of the device UNIT; MARK is REPLICA or MEMORY."""
    return [
        Unit(
            id=f"{unit.id}{mark}{number}",
            health=unit.health,
            numa=unit.numa,
            accelerator=unit.accelerator,
            partition=unit.partition,
            replica=number,
            cdi_names=unit.cdi_names,
            claim_names=unit.claim_names,
        )
        for number in range(count)
    ]


@frozen
class Resource:
    """An extended resource that pods request by ``name`` (``nvidia.com/gpu``), with its units in order.

    If ``fails_many`` is set, a container may have at most one replica. If ``by_mps`` is set, containers share
    the devices through the Multi-Process Service (MPS). If ``is_memory`` is set, the units are memory units.
    """

    name: str
    units: tuple[Unit, ...]
    fails_many: bool = False
    by_mps: bool = False
    is_memory: bool = False
