"""What to examine: ``DoctorRequest``."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.pipeline.delivery import DeliveryOptions
    from cdigen.pipeline.generate import GenerateOptions
    from cdigen.runtimes.users import User
    from cdigen.vendors.base import DiscoveryContext

# What people call the runtimes that start containers -> what runtimes.targets does.
RUNTIME_NAMES = {"podman": "podman", "docker": "docker", "containerd": "containerd", "crio": "cri-o"}


@frozen
class DoctorRequest:
    """Which host to examine, and for which runtimes, devices and user.

    ``runtimes`` are those of RUNTIME_NAMES that matter, none: all that are installed; ``devices`` the names
    that have to resolve, none: all that there are. ``options`` are what a cdigen command needs to mean the
    same host; ``are_named`` says whether somebody named the ``vendors``, or all are asked. ``daemon`` reads
    the status of cdigen's daemon, None without one, and why it is not running. ``restart`` gives the command
    that restarts a runtime, nothing where it has no daemon. ``misconfigured`` is what is wrong with the
    configuration; what is right in it counts.
    """

    host: Root
    configuration: Settings
    discovery_context: DiscoveryContext
    generate_options: GenerateOptions
    delivery_options: DeliveryOptions
    vendors: tuple[str, ...]
    spec_dirs: tuple[str, ...]
    state_dir: str
    daemon: Callable[[], tuple[Mapping[str, Any] | None, str]]
    restart: Callable[[str], tuple[str, ...]]
    user: User | None = None
    runtimes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    are_named: bool = True
    misconfigured: tuple[Finding, ...] = ()
