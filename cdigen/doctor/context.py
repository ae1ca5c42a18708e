"""The request for an examination (``DoctorRequest``), and the state of the host (``Context``)."""

from __future__ import annotations

import os
from functools import cached_property

from cdigen.config import DEFAULT_PATH
from cdigen.doctor.examined import examined_runtimes, running
from cdigen.doctor.kubernetes_node.bundled import examined_containerd
from cdigen.doctor.kubernetes_node.node import KubernetesNode
from cdigen.doctor.spec_documents import is_blocked, read_specs
from cdigen.host.containers import uses_host_kernel
from cdigen.model.errors import CdigenError, HostError
from cdigen.model.names import natural_key
from cdigen.pipeline import discovery, generate
from cdigen.pipeline.driver import links
from cdigen.runtimes import installed
from cdigen.runtimes.installed import InstalledRuntime
from cdigen.runtimes.releases import RUNTIME_NAMES
from cdigen.runtimes.scan import scan
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.store.records import owned_specs
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
    from cdigen.model.errors import SpecError
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.pipeline.delivery import DeliveryOptions
    from cdigen.pipeline.generate import GeneratedSpec, GenerateOptions
    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.spec_cache import SpecFile
    from cdigen.runtimes.users import User
    from cdigen.service.host_state import HostInventory
    from cdigen.vendors.context import DiscoveryContext


@frozen
class DoctorRequest:
    """The host to examine, and the runtimes, devices and user of the examination.

    Scope:

    - ``runtimes`` is a subset of RUNTIME_NAMES; empty means all installed runtimes.
    - ``devices`` are the names that must resolve; empty means all names.
    - ``for_kubelet`` means to examine Kubernetes, and the runtime of the node's kubelet.
    - ``are_named`` is true if the user named the ``vendors``; otherwise ``vendors`` has all vendors.

    Options:

    - ``options`` are the options that select the same host in other cdigen commands.
    - ``discovery_options`` are the options that only commands with a discovery accept.
    - ``misconfigured`` are the faults of the configuration. The valid keys of the configuration still apply.
    - ``configuration_file`` is the path of the configuration on this machine.
    - ``has_default_configuration`` is true if the user named no other file.

    Functions:

    - ``inventory`` returns the inventory of cdigen's daemon, or the ``problem`` that there is none.
    - ``daemon`` returns a pair: the status of cdigen's daemon (or None), and why the daemon is not running.
    - ``plugin`` returns the status of the NRI plugin, or None; it raises CdigenError if the status is
      unreadable.
    - ``kubelet`` returns a pair as ``daemon`` does, but for cdigen's device plugins.
    - ``restart`` returns the command that restarts a runtime, or an empty value if the runtime has no daemon.
    """

    host: Root
    configuration: Settings
    discovery_context: DiscoveryContext
    generate_options: GenerateOptions
    delivery_options: DeliveryOptions
    vendors: tuple[str, ...]
    spec_dirs: tuple[str, ...]
    state_dir: str
    inventory: Callable[[], HostInventory]
    daemon: Callable[[], tuple[Mapping[str, Any] | None, str]]
    plugin: Callable[[], Mapping[str, Any] | None]
    restart: Callable[[str], tuple[str, ...]]
    user: User | None = None
    runtimes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    discovery_options: tuple[str, ...] = ()
    are_named: bool = True
    misconfigured: tuple[Finding, ...] = ()
    configuration_file: str = DEFAULT_PATH
    has_default_configuration: bool = True
    for_kubelet: bool = False
    kubelet: Callable[[], tuple[Mapping[str, Any] | None, str]] = lambda: (None, "")

    @property
    def is_for_user(self) -> bool:
        """Whether the request is for a user's rootless containers, and names no runtime."""
        return self.user is not None and not self.runtimes and not self.for_kubelet

    def concerns(self, *names: str) -> bool:
        """Return whether the request is for one of the runtimes NAMES, or for the whole host."""
        return not self.is_for_user and (not self.runtimes or bool({*names} & {*self.runtimes}))


class Context:
    """The state of the host of REQUEST; each part is read once, at its first use."""

    def __init__(self, request: DoctorRequest) -> None:
        self.node = KubernetesNode(request)
        self.request = _for_kubelet(request, self.node) if request.for_kubelet else request
        self.host = request.host
        self.user = request.user
        self.configuration = request.configuration
        self._spec_cache = SpecCache()
        self._views: dict[str, SpecScan] = {}

    @property
    def is_live(self) -> bool:
        """Whether the host is this machine."""
        return self.host.is_this_machine

    @cached_property
    def in_container(self) -> bool:
        """Whether the host is a container, which uses the kernel and the devices of another host."""
        return self.is_live and uses_host_kernel()

    # Devices and specs of the host.

    @cached_property
    def _discovered(self) -> tuple[dict[str, Inventory], dict[str, HostError]]:
        context = self.request.discovery_context
        inventories, failures = discovery.discover(self.request.vendors, context)
        if not self.request.are_named:
            failures = discovery.relevant_failures(inventories, failures, self.host)
        if self.in_container:
            # The hints apply to the host, not to the container.
            failures = {name: HostError(error.message, kind=error.kind) for name, error in failures.items()}
        return links.with_known_links(inventories, context), failures

    @property
    def inventories(self) -> dict[str, Inventory]:
        """The inventories, by vendor."""
        return self._discovered[0]

    @property
    def failures(self) -> dict[str, HostError]:
        """The failures of the discovery, by vendor."""
        return self._discovered[1]

    def concerns(self, vendor: str) -> bool:
        """Return whether devices of VENDOR are examined.

        This is true if devices of VENDOR are requested, or if no devices are requested.
        """
        requested = {registry.vendor_of(name, self.request.vendors) for name in self.request.devices} - {""}
        return not requested or vendor in requested

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
        """The specs that cdigen can generate now."""
        return self._produced[0]

    @property
    def broken(self) -> dict[str, SpecError]:
        """The errors of the kinds whose specs cannot be generated."""
        return self._produced[1]

    @cached_property
    def nodes(self) -> tuple[HostNode, ...]:
        """All device nodes of the inventories, without duplicates."""
        found: dict[str, HostNode] = {}
        for inventory in self.inventories.values():
            accelerators = [gpu for gpu in inventory.accelerators if gpu.usable]
            partitions = [part for gpu in accelerators for part in gpu.partitions if part.usable]
            devices = [device for group in inventory.groups for device in group.devices]
            groups: list[tuple[HostNode, ...]] = [inventory.nodes, *(gpu.nodes for gpu in accelerators)]
            groups += [*(part.nodes for part in partitions), *(device.nodes for device in devices)]
            found |= {node.host_path: node for nodes in groups for node in nodes}
        return tuple(found[path] for path in sorted(found, key=natural_key))

    # The runtimes.

    @cached_property
    def installed(self) -> dict[str, InstalledRuntime]:
        """The installed runtimes, by the names of RUNTIME_NAMES."""
        known = {target: name for name, target in RUNTIME_NAMES.items()}
        found = {known[one.runtime]: one for one in installed.find(self.host) if one.runtime in known}
        if bundled := examined_containerd(self.host, for_kubelet=self.request.for_kubelet):
            found["containerd"] = installed.examine(self.host, "containerd", bundled.binary)
        server = self.node.server if self.request.for_kubelet else None
        if server is None or server.name not in RUNTIME_NAMES:
            return found
        present, target = found.get(server.name), RUNTIME_NAMES[server.name]
        if not server.program:
            problem = "only root may read its program's path"
            unknown = InstalledRuntime(runtime=target, binary="", release=None, problem=problem)
            found.setdefault(server.name, unknown)
        elif present is None or os.path.realpath(present.binary) != os.path.realpath(server.program):
            found[server.name] = installed.examine(self.host, target, server.program)
        return found

    @cached_property
    def low_level(self) -> dict[str, InstalledRuntime]:
        """The installed low-level runtimes, runc and crun."""
        return {one.runtime: one for one in installed.find(self.host, installed.LOW_LEVEL)}

    @cached_property
    def runtimes(self) -> tuple[ExaminedRuntime, ...]:
        """The runtimes to examine (see ``examined_runtimes``)."""
        server = self.node.server if self.request.for_kubelet else None
        return examined_runtimes(self.request, self.installed, server)

    @cached_property
    def readers(self) -> tuple[ExaminedRuntime, ...]:
        """The runtimes in ``runtimes`` whose release reads CDI specs."""
        return tuple(runtime for runtime in self.runtimes if runtime.reads_cdi)

    @cached_property
    def daemons(self) -> dict[str, float]:
        """The start time of each runtime's daemon; empty with --root.

        If a runtime has several daemons, the daemon that serves the kubelet has precedence.
        """
        server = self.node.server if self.request.for_kubelet else None
        own = {server.name: server.began_s} if server else {}
        return running() | own if self.is_live else {}

    def view(self, runtime: ExaminedRuntime) -> SpecScan:
        """Return the scan of RUNTIME's spec directories by the rules of RUNTIME's CDI library."""
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
        """The scan of the configured spec directories by the rules of the newest CDI library."""
        return scan(self.configuration.spec_dirs, self.host, cache=self._spec_cache)

    @cached_property
    def views(self) -> tuple[SpecScan, ...]:
        """All scans; the first scan is ``own_view``."""
        return (self.own_view, *(self.view(runtime) for runtime in self.readers))

    # Device names, and the files that define them.

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The qualified device names that must resolve."""
        if self.request.devices:
            return self.request.devices
        names = self.offered
        if not names:
            begins = registry.prefixes(self.request.vendors)
            names = frozenset(name for name in self.defined if name.startswith(begins)) or self.defined
        return tuple(sorted(names, key=natural_key))

    @cached_property
    def offered(self) -> frozenset[str]:
        """The qualified device names that new specs of this host would define."""
        return frozenset(
            f"{product.kind}={device['name']}"
            for product in self.products
            for device in product.document["devices"]
        )

    @cached_property
    def offered_kinds(self) -> tuple[str, ...]:
        """The kinds whose specs cdigen can generate now."""
        return tuple(product.kind for product in self.products)

    @cached_property
    def defined(self) -> frozenset[str]:
        """The device names in all files of all spec directories; this includes files that runtimes ignore."""
        return frozenset(
            f"{file.kind}={device}" for view in self.views for file in view.files for device in file.devices
        )

    @cached_property
    def spec_files(self) -> dict[str, SpecFile]:
        """The spec files by path; each file is from the first of ``views`` that contains it."""
        return {file.path: file for view in reversed(self.views) for file in view.files}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of the required names."""
        return frozenset(name.partition("=")[0] for name in self.required)

    @cached_property
    def state(self) -> owned_specs.State:
        """The record of the specs that cdigen wrote; empty if the record is damaged."""
        try:
            return owned_specs.read(self.request.state_dir)[0]
        except CdigenError:
            return owned_specs.State()

    @cached_property
    def is_blocked(self) -> bool:
        """Whether a foreign file prevents cdigen from writing its specs."""
        return any(is_blocked(self, product) for product in self.products)

    @cached_property
    def specs(self) -> tuple[ExaminedSpec, ...]:
        """The spec files of the required kinds, with their parsed contents."""
        return read_specs(self)

    @cached_property
    def own_scan(self) -> SpecScan:
        """The same scan as ``own_view``, with paths of this machine instead of paths of the host."""
        return scan(self.request.spec_dirs, cache=self._spec_cache)

    # Paths.

    def outer(self, path: str) -> str:
        """Return the path on this machine for PATH of the host.

        If the last part of PATH is a link, this link is not followed. Links in the parent folders are
        resolved now, because these links could have other targets when a remedy runs.
        """
        folder, _, name = path.rpartition("/")
        try:
            return self.host.outer_path(f"{self.host.resolve_new(folder or '/').rstrip('/')}/{name}")
        except OSError:
            return self.host.outer_path(path)

    def text(self, path: str, *, limit: int = 1 << 16) -> str:
        """Return the text of a small file of the host; empty if the file cannot be read."""
        try:
            return self.host.read(path, limit=limit).decode("utf-8", "replace")
        except OSError:
            return ""


def _for_kubelet(request: DoctorRequest, node: KubernetesNode) -> DoctorRequest:
    """Return REQUEST for the runtime of NODE's kubelet."""
    # If the distribution brings its own runtime, the running process identifies this runtime, or its files.
    is_known = node.server is not None or (
        node.kubelet is not None
        and (not node.kubelet.brings_runtime or examined_containerd(request.host, for_kubelet=True))
    )
    names = (node.runtime,) if node.runtime and is_known else ()
    unit, server = (node.server.unit, node.server.name) if node.server else ("", "")
    of_host = request.restart
    if unit not in {"", f"{server}.service", "crio.service", "cri-o.service"}:

        def restart(name: str) -> tuple[str, ...]:
            return ("systemctl", "restart", unit) if name == server else of_host(name)

        request = replace(request, restart=restart)
    return replace(request, runtimes=tuple(dict.fromkeys((*request.runtimes, *names))))
