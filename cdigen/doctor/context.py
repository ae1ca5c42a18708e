"""What to examine, ``DoctorRequest``, and the host as the checks see it, ``Context``."""

from __future__ import annotations

import os
from functools import cached_property

from cdigen.doctor.examined import examined_runtimes, running
from cdigen.doctor.kubelet_node import Node
from cdigen.doctor.spec_documents import is_blocked, read_specs
from cdigen.model.errors import CdigenError
from cdigen.model.names import natural_key
from cdigen.pipeline import discovery, generate, links
from cdigen.runtimes import installed
from cdigen.runtimes.releases import RUNTIME_NAMES
from cdigen.runtimes.scan import scan
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.store import state as states
from cdigen.value import frozen, replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.config import Settings
    from cdigen.doctor.examined import ExaminedRuntime
    from cdigen.doctor.spec_documents import ExaminedSpec
    from cdigen.host.root import Root
    from cdigen.model.errors import HostError, SpecError
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.pipeline.delivery import DeliveryOptions
    from cdigen.pipeline.generate import GeneratedSpec, GenerateOptions
    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.spec_cache import SpecFile
    from cdigen.runtimes.users import User
    from cdigen.vendors.base import DiscoveryContext


@frozen
class DoctorRequest:
    """Which host to examine, and for which runtimes, devices and user.

    ``runtimes`` are those of RUNTIME_NAMES that matter, none: all that are installed; ``devices`` the names
    that have to resolve, none: all that there are. ``options`` are what a cdigen command needs to mean the
    same host; ``are_named`` says whether somebody named the ``vendors``, or all are asked. ``daemon`` reads
    the status of cdigen's daemon, None without one, and why it is not running; ``plugin`` that of the NRI
    plugin, None without one (CdigenError: it cannot be read); ``kubelet`` that of the device plugins, and why
    they are not running. ``restart`` gives the command that restarts a
    runtime, nothing where it has no daemon. ``misconfigured`` is what is wrong with the configuration; what
    is right in it counts. ``has_default_configuration``: no other file was named.
    ``for_kubelet``: Kubernetes matters, and the runtime that its kubelet uses.
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
    plugin: Callable[[], Mapping[str, Any] | None]
    restart: Callable[[str], tuple[str, ...]]
    user: User | None = None
    runtimes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    are_named: bool = True
    misconfigured: tuple[Finding, ...] = ()
    has_default_configuration: bool = True
    for_kubelet: bool = False
    kubelet: Callable[[], tuple[Mapping[str, Any] | None, str]] = lambda: (None, "")


class Context:
    """The host of REQUEST; each thing is read once, when a check first asks for it."""

    def __init__(self, request: DoctorRequest) -> None:
        self.node = Node(request)
        self.request = _for_kubelet(request, self.node) if request.for_kubelet else request
        self.host = request.host
        self.user = request.user
        self.configuration = request.configuration
        self._spec_cache = SpecCache()
        self._views: dict[str, SpecScan] = {}

    @property
    def is_live(self) -> bool:
        """Whether the host is the machine that runs this."""
        return self.host.is_this_machine

    # What the host has.

    @cached_property
    def _discovered(self) -> tuple[dict[str, Inventory], dict[str, HostError]]:
        context = self.request.discovery_context
        inventories, failures = discovery.discover(self.request.vendors, context)
        if not self.request.are_named:
            failures = discovery.relevant_failures(inventories, failures, self.host)
        return links.with_known(inventories, context), failures

    @property
    def inventories(self) -> dict[str, Inventory]:
        """What each vendor's driver offers."""
        return self._discovered[0]

    @property
    def failures(self) -> dict[str, HostError]:
        """Why some vendors offer nothing."""
        return self._discovered[1]

    @cached_property
    def _produced(self) -> tuple[tuple[GeneratedSpec, ...], dict[str, SpecError]]:
        try:
            return generate.generate_specs(
                self.inventories,
                host=self.host,
                options=self.request.generate_options,
                delivery=self.request.delivery_options,
            )
        except OSError:
            return (), {}

    @property
    def products(self) -> tuple[GeneratedSpec, ...]:
        """The specs that cdigen would write now."""
        return self._produced[0]

    @property
    def broken(self) -> dict[str, SpecError]:
        """The kinds whose specs could not be made."""
        return self._produced[1]

    @cached_property
    def nodes(self) -> tuple[HostNode, ...]:
        """Every device node of the inventories, each once."""
        found: dict[str, HostNode] = {}
        for inventory in self.inventories.values():
            accelerators = [gpu for gpu in inventory.accelerators if gpu.usable]
            partitions = [part for gpu in accelerators for part in gpu.partitions if part.usable]
            devices = [device for group in inventory.groups for device in group.devices]
            held: list[tuple[HostNode, ...]] = [inventory.nodes, *(gpu.nodes for gpu in accelerators)]
            held += [*(part.nodes for part in partitions), *(device.nodes for device in devices)]
            found |= {node.host_path: node for nodes in held for node in nodes}
        return tuple(found[path] for path in sorted(found, key=natural_key))

    # The runtimes.

    @cached_property
    def installed(self) -> dict[str, InstalledRuntime]:
        """The runtimes that were found, by the names of RUNTIME_NAMES."""
        known = {target: name for name, target in RUNTIME_NAMES.items()}
        found = {known[one.runtime]: one for one in installed.find(self.host) if one.runtime in known}
        server = self.node.server if self.request.for_kubelet else None
        if server is None or server.name not in RUNTIME_NAMES:
            return found
        there, target = found.get(server.name), RUNTIME_NAMES[server.name]
        if not server.program:
            found.setdefault(server.name, installed.unnamed(target, "only root may see which program it is"))
        elif there is None or os.path.realpath(there.binary) != os.path.realpath(server.program):
            found[server.name] = installed.examine(self.host, target, server.program)
        return found

    @cached_property
    def low_level(self) -> dict[str, InstalledRuntime]:
        """Runc and crun, where they were found."""
        return {one.runtime: one for one in installed.find_low_level(self.host)}

    @cached_property
    def runtimes(self) -> tuple[ExaminedRuntime, ...]:
        """The runtimes that matter: those asked for that are there, else all that are there, else any."""
        server = self.node.server if self.request.for_kubelet else None
        return examined_runtimes(self.request, self.installed, server)

    @cached_property
    def daemons(self) -> dict[str, float]:
        """When each runtime's daemon was started, of several the kubelet's; empty with --root."""
        server = self.node.server if self.request.for_kubelet else None
        own = {server.name: server.began_s} if server else {}
        return running() | own if self.is_live else {}

    def view(self, runtime: ExaminedRuntime) -> SpecScan:
        """Return what RUNTIME finds in its spec directories."""
        if runtime.name not in self._views:
            self._views[runtime.name] = scan(
                runtime.settings.spec_dirs,
                self.host,
                library=runtime.library,
                reader=runtime.reader,
                cache=self._spec_cache,
            )
        return self._views[runtime.name]

    @cached_property
    def own_view(self) -> SpecScan:
        """What the newest CDI library finds in the directories of cdigen's configuration."""
        return scan(self.configuration.spec_dirs, self.host, cache=self._spec_cache)

    @cached_property
    def views(self) -> tuple[SpecScan, ...]:
        """All views, cdigen's own first."""
        return (self.own_view, *(self.view(runtime) for runtime in self.runtimes))

    # Names, and the files that hold them.

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """The qualified device names that have to resolve."""
        if self.request.devices:
            return self.request.devices
        names = self.offered
        if not names:
            begins = registry.prefixes(self.request.vendors)
            names = frozenset(name for name in self.defined if name.startswith(begins)) or self.defined
        return tuple(sorted(names, key=natural_key))

    @cached_property
    def offered(self) -> frozenset[str]:
        """Every qualified device name that a new spec of this host would define."""
        return frozenset(
            f"{product.kind}={device['name']}"
            for product in self.products
            for device in product.document["devices"]
        )

    @cached_property
    def offered_kinds(self) -> tuple[str, ...]:
        """The kinds for which a new spec can be generated."""
        return tuple(product.kind for product in self.products)

    @cached_property
    def defined(self) -> frozenset[str]:
        """Every device name that a file in any spec directory defines, whether the file is loaded or not."""
        return frozenset(
            f"{file.kind}={device}" for view in self.views for file in view.files for device in file.devices
        )

    @cached_property
    def spec_files(self) -> dict[str, SpecFile]:
        """The spec files by path, as the first view has them."""
        return {file.path: file for view in reversed(self.views) for file in view.files}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of the names that are wanted."""
        return frozenset(name.partition("=")[0] for name in self.wanted)

    @cached_property
    def state(self) -> states.State:
        """What cdigen has recorded of the specs that it wrote; nothing where the record is damaged."""
        try:
            return states.read(self.request.state_dir)[0]
        except CdigenError:
            return states.State()

    @cached_property
    def is_blocked(self) -> bool:
        """Whether a foreign file keeps cdigen from writing its specs."""
        return any(is_blocked(self, product) for product in self.products)

    @cached_property
    def specs(self) -> tuple[ExaminedSpec, ...]:
        """The spec files of the wanted kinds, with their documents."""
        return read_specs(self)

    @cached_property
    def own_scan(self) -> SpecScan:
        """The same as ``own_view``, with paths of this machine instead of the host's."""
        return scan(self.request.spec_dirs, cache=self._spec_cache)

    # Paths.

    def outer(self, path: str) -> str:
        """Return PATH of the host as this machine has it, for a command; a last link is not followed.

        The folder is the one that links lead to now, and was judged: later they might lead elsewhere.
        """
        folder, _, name = path.rpartition("/")
        try:
            return self.host.outer_path(f"{self.host.resolve_new(folder or '/').rstrip('/')}/{name}")
        except OSError:
            return self.host.outer_path(path)

    def text(self, path: str, *, limit: int = 1 << 16) -> str:
        """Return the text of a small file of the host, empty where it cannot be read."""
        try:
            return self.host.read(path, limit=limit).decode("utf-8", "replace")
        except OSError:
            return ""


def _for_kubelet(request: DoctorRequest, node: Node) -> DoctorRequest:
    """Return REQUEST for the runtime that the kubelet of NODE uses."""
    # What a distribution brings with it is known by its process alone.
    is_known = node.server is not None or (node.kubelet is not None and not node.kubelet.brings_runtime)
    names = (node.runtime,) if node.runtime and is_known else ()
    unit, server = (node.server.unit, node.server.name) if node.server else ("", "")
    of_host = request.restart
    if unit not in {"", f"{server}.service", "crio.service", "cri-o.service"}:

        def restart(name: str) -> tuple[str, ...]:
            return ("systemctl", "restart", unit) if name == server else of_host(name)

        request = replace(request, restart=restart)
    return replace(request, runtimes=tuple(dict.fromkeys((*request.runtimes, *names))))
