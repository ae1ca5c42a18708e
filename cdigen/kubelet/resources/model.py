"""``Resource`` and ``Unit``: what the kubelet can count and give to containers."""

from __future__ import annotations

from cdigen.topology.choose import Share
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.health import Health
    from cdigen.model.inventory import Accelerator, Partition

# The rule of findings about a configuration of NVIDIA's (nvidia_file).
NVIDIA_RULE = "nvidia-configuration"


@frozen
class Unit:
    """One of a resource's devices: the kubelet knows it by ``id``, of at most 63 characters.

    It is the whole ``accelerator``, or its ``partition``; with a ``replica`` (from 0), it is one of those
    that share either. ``cdi_names`` are the fully qualified names that give it to a container. A unit of
    unknown health is offered as a healthy one. ``numa`` is its NUMA node's number, None: unknown.
    """

    id: str
    health: Health
    numa: int | None
    accelerator: Accelerator
    partition: Partition | None = None
    replica: int | None = None
    cdi_names: tuple[str, ...] = ()

    @property
    def share(self) -> Share:
        """What ``topology.choose`` chooses by."""
        return Share(name=self.id, accelerator=self.accelerator, partition=self.partition)


@frozen
class Resource:
    """What pods ask for by ``name``, as an extended resource (``nvidia.com/gpu``): its units in order."""

    name: str
    units: tuple[Unit, ...]
