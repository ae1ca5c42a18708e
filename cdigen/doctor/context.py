"""What the checks look at, everything read once and only where a check asks for it: ``Context``."""

from __future__ import annotations

import os
from functools import cached_property

from cdigen.doctor.daemons import running
from cdigen.doctor.words import joined, quoted
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.model.names import natural_key, spec_file_name
from cdigen.pipeline import discovery, generate
from cdigen.runtimes import installed, lookup, settings
from cdigen.runtimes.scan import SpecCache
from cdigen.runtimes.targets import RUNTIMES
from cdigen.runtimes.users import ROOT
from cdigen.store import state as states
from cdigen.value import frozen
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.config import Settings as Configuration
    from cdigen.host.root import Root
    from cdigen.model.errors import HostError, SpecError
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.pipeline.delivery import DeliveryOptions
    from cdigen.pipeline.generate import GeneratedSpec, GenerateOptions
    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.settings import RuntimeSettings
    from cdigen.runtimes.users import Reader, User
    from cdigen.vendors.base import DiscoveryContext

# What people call the runtimes that start containers -> what runtimes.targets does.
RUNTIME_NAMES = {"podman": "podman", "docker": "docker", "containerd": "containerd", "crio": "cri-o"}
# Stands for any runtime where the host has none that was found: the newest library, the configured places.
ANY_RUNTIME = "any runtime"
_NEWEST = "1.1.0"


@frozen
class DaemonReport:
    """What cdigen's own daemon says of itself: its status, None without one, and why it is not running."""

    status: Mapping[str, Any] | None
    problem: str = ""


@frozen
class DoctorRequest:
    """What is asked, of which host.

    ``runtimes`` are those of NAMES that matter, none: all that are installed; ``devices`` the names that
    have to resolve, none: all that there are. ``options`` are what a cdigen command needs to mean the same
    host; ``are_named`` says whether somebody named the ``vendors``, or all are asked. ``daemon`` reads
    cdigen's daemon, ``restart`` gives the command that restarts a runtime. ``misconfigured`` is what is wrong
    with the configuration, of which the rest counts.
    """

    host: Root
    configuration: Configuration
    places: DiscoveryContext
    generate_options: GenerateOptions
    delivery_options: DeliveryOptions
    vendors: tuple[str, ...]
    spec_dirs: tuple[str, ...]
    state_dir: str
    daemon: Callable[[], DaemonReport]
    restart: Callable[[str], str]
    user: User | None = None
    runtimes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    are_named: bool = True
    misconfigured: tuple[Finding, ...] = ()


@frozen
class ExaminedRuntime:
    """A runtime that matters here: its name for people, its binary, and how it is configured."""

    name: str
    binary: InstalledRuntime | None
    settings: RuntimeSettings
    library: str
    newest: str
    reader: Reader

    @property
    def shown(self) -> str:
        """The runtime with its release, for people."""
        release = self.binary.release if self.binary else None
        return f"{self.name} {'.'.join(map(str, release))}" if release else self.name


class Context:
    """One look at the host of QUESTION."""

    def __init__(self, request: DoctorRequest) -> None:
        self.request = request
        self.host = request.host
        self.user = request.user
        self.configuration = request.configuration
        self._spec_cache = SpecCache(request.host)
        self._views: dict[str, SpecScan] = {}

    @property
    def is_live(self) -> bool:
        """Whether the host is the machine that runs this."""
        return self.host.is_this_machine

    # What the host has.

    @cached_property
    def _discovered(self) -> tuple[dict[str, Inventory], dict[str, HostError]]:
        inventories, failures = discovery.discover(self.request.vendors, self.request.places)
        if not self.request.are_named:
            failures = discovery.relevant_failures(inventories, failures, self.host)
        return inventories, failures

    @property
    def inventories(self) -> dict[str, Inventory]:
        """What each vendor's driver offers."""
        return self._discovered[0]

    @property
    def failures(self) -> dict[str, HostError]:
        """Why a vendor offers nothing."""
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
        except ConfigError:
            raise
        except OSError:
            return (), {}

    @property
    def products(self) -> tuple[GeneratedSpec, ...]:
        """The specs that the host would give now."""
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
        """The runtimes that were found, by the names of NAMES."""
        known = {target: name for name, target in RUNTIME_NAMES.items()}
        return {known[one.runtime]: one for one in installed.find(self.host) if one.runtime in known}

    @cached_property
    def low_level(self) -> dict[str, InstalledRuntime]:
        """Runc and crun, where they were found."""
        return {one.runtime: one for one in installed.find_low_level(self.host)}

    @cached_property
    def runtimes(self) -> tuple[ExaminedRuntime, ...]:
        """The runtimes that matter: those asked for that are there, else all that are there, else any."""
        names = self.request.runtimes or tuple(self.installed)
        found = tuple(self._runtime(name) for name in names if name in self.installed)
        return found or (self._any_runtime(),)

    def _runtime(self, name: str) -> ExaminedRuntime:
        binary = self.installed[name]
        user = self.user if name in {"podman", "docker"} else None
        newest = RUNTIMES[RUNTIME_NAMES[name]][-1]
        read = settings.read(
            RUNTIME_NAMES[name], self.host, binary.release, self._starter(name), environment=self._environment
        )
        return ExaminedRuntime(
            name=name,
            binary=binary,
            settings=read,
            library=binary.library if binary.release else newest[1],
            newest=binary.newest if binary.release else newest[2],
            reader=user.reader() if user and read.rootless else ROOT,
        )

    def _starter(self, name: str) -> User | None:
        """Return whose runtime NAME is meant: a user's own dockerd only where one is set up."""
        if name == "podman":
            return self.user
        if name != "docker" or self.user is None:
            return None
        places = (
            f"{self.user.config_home}/systemd/user/docker.service",
            f"{self.user.runtime_dir}/docker.sock",
        )
        return self.user if any(self.host.exists(place) for place in places) else None

    @property
    def _environment(self) -> Mapping[str, str]:
        return os.environ if self.is_live and (self.user is None or self.user.uid == os.geteuid()) else {}

    def _any_runtime(self) -> ExaminedRuntime:
        configured = settings.RuntimeSettings(
            runtime=ANY_RUNTIME,
            spec_dirs=self.configuration.spec_dirs,
            cdi_enabled=None,
            nri_enabled=None,
            files=(),
            wanted="",
            findings=(),
        )
        return ExaminedRuntime(
            name=ANY_RUNTIME,
            binary=None,
            settings=configured,
            library=_NEWEST,
            newest=_NEWEST,
            reader=self.user.reader() if self.user else ROOT,
        )

    @cached_property
    def daemons(self) -> dict[str, float]:
        """When each daemon began that runs on this machine; of a folder nothing is known."""
        return running() if self.is_live else {}

    def view(self, runtime: ExaminedRuntime) -> SpecScan:
        """Return what RUNTIME makes of its spec directories."""
        if runtime.name not in self._views:
            self._views[runtime.name] = self._spec_cache.view(
                runtime.settings.spec_dirs,
                library=runtime.library,
                reader=runtime.reader,
                follows_links=runtime.settings.follows_links,
            )
        return self._views[runtime.name]

    @cached_property
    def own_view(self) -> SpecScan:
        """What the newest library makes of the directories that cdigen writes to and looks into."""
        return self._spec_cache.view(self.configuration.spec_dirs, library=_NEWEST, reader=ROOT)

    @cached_property
    def views(self) -> tuple[SpecScan, ...]:
        """All views, cdigen's own first."""
        return (self.own_view, *(self.view(runtime) for runtime in self.runtimes))

    # Names, and the files that hold them.

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """The qualified names that have to resolve."""
        if self.request.devices:
            return self.request.devices
        offered = {
            f"{product.kind}={device['name']}"
            for product in self.products
            for device in product.document["devices"]
        }
        if not offered:
            begins = registry.prefixes(self.request.vendors)
            offered = {name for name in self.defined if name.startswith(begins)} or set(self.defined)
        return tuple(sorted(offered, key=natural_key))

    @cached_property
    def defined(self) -> frozenset[str]:
        """Every name that any file in any directory defines, whether it is loaded or not."""
        return frozenset(
            f"{spec_file.kind}={device}"
            for view in self.views
            for spec_file in view.spec_files
            for device in spec_file.devices
        )

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of the names that are wanted."""
        return frozenset(name.partition("=")[0] for name in self.wanted)

    def own_file(self, kind: str) -> str:
        """Return where cdigen keeps the spec of KIND, as a path of the host."""
        return f"{self.configuration.spec_dirs[-1].rstrip('/')}/{spec_file_name(kind)}"

    @cached_property
    def _state(self) -> states.State:
        try:
            return states.read(self.request.state_dir)[0]
        except CdigenError:
            return states.State()

    def is_ours(self, path: str) -> bool:
        """Return whether the spec file PATH of the host is one that cdigen wrote, unchanged since."""
        try:
            real = self.host.resolve(path)
            return self._state.owns(self.host.outer_path(real), self.host.read(real, limit=64 << 20))
        except OSError:
            return False

    def was_ours(self, path: str) -> bool:
        """Return whether cdigen has written PATH, whatever became of it since."""
        try:
            real = self.host.resolve(path)
        except OSError:
            real = path
        return self._state.of(self.host.outer_path(real)) is not None

    # Commands.

    def outer(self, path: str) -> str:
        """Return PATH of the host as a word of a command on this machine; a last link is not followed."""
        if self.is_live:
            return quoted(path)
        folder, _, name = path.rpartition("/")
        try:
            return quoted(self.host.outer_path(f"{self.host.resolve_new(folder or '/').rstrip('/')}/{name}"))
        except OSError:
            return quoted(self.host.outer_path(path))

    def cdigen(self, *words: str) -> str:
        """Return the command line of cdigen for WORDS and this host."""
        return joined(("cdigen", *words, *self.request.options))

    def write_command(self, *words: str) -> str:
        """Return the command that writes the specs of this host, moving aside what is in its way."""
        return self.cdigen(
            "generate", "--write", *(("--replace-foreign",) if self._is_in_the_way else ()), *words
        )

    def configure_command(self, runtime: ExaminedRuntime) -> str:
        """Return the command that sets what RUNTIME needs, and restarts it where it is running."""
        restart = ("--restart",) if self.is_live and self.request.restart(runtime.name) else ()
        return self.cdigen("configure", runtime.name, *restart)

    @cached_property
    def _is_in_the_way(self) -> bool:
        """Whether something that is not cdigen's keeps it from writing its specs."""
        directory = self.request.spec_dirs[-1]
        for product in self.products:
            file = self.own_file(product.kind)
            try:
                present: bytes | None = self.host.read(file, limit=64 << 20)
            except FileNotFoundError:
                if self.is_link(file):
                    return True
                present = None
            except OSError:
                return True
            if present not in (None, product.content) and not self.is_ours(file):
                return True
            names = [device["name"] for device in product.document["devices"]]
            found = lookup.clashes(
                self.scan,
                directory=directory,
                file_name=spec_file_name(product.kind),
                kind=product.kind,
                device_names=names,
            )
            if any(finding.severity == "error" for finding in found):
                return True
        return False

    @cached_property
    def scan(self) -> lookup.Lookup:
        """What runtimes find in the directories that cdigen writes to and looks into, with the documents."""
        return lookup.scan(self.request.spec_dirs)

    def text(self, path: str, *, limit: int = 1 << 16) -> str:
        """Return the text of a small file of the host, empty where it cannot be read."""
        try:
            return self.host.read(path, limit=limit).decode("utf-8", "replace")
        except OSError:
            return ""

    def is_link(self, path: str) -> bool:
        """Return whether PATH itself is a link, wherever it leads."""
        folder, _, name = path.rpartition("/")
        try:
            return os.path.islink(f"{self.host.outer_path(self.host.directory(folder or '/'))}/{name}")
        except OSError:
            return False
