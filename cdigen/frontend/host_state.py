"""The host as it is now, for processes that serve containers by it: ``read_host_state``.

Devices come from the specs in the spec directories, GPUs and driver from the inventory that the daemon keeps
in its run directory; nothing is discovered here. A state is one value, replaced whole by the next reading.
What reads specs is imported by the first reading: a process may have to register somewhere before that.
"""

from __future__ import annotations

import json
import os
import time
from types import MappingProxyType

from cdigen.frontend.rundir import INVENTORY_FILE
from cdigen.frontend.status import is_held
from cdigen.host.root import Root, shown
from cdigen.model.errors import ConfigError
from cdigen.model.names import SPEC_SUFFIXES, is_yaml
from cdigen.store.lock import LOCK_FILE
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.model.inventory import Inventory
    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.spec_cache import SpecCache

    # The running driver; of each spec directory and the inventory when it was changed, and its inode.
    Stamp = tuple[str, tuple[tuple[int, int] | None, ...]]

# Vendor -> the file in which the kernel tells the version of its running driver without waiting for anything.
# WSL2 and most of Tegra have none of that name.
RUNNING_DRIVERS = {"nvidia": "/sys/module/nvidia/version"}
MAX_INVENTORY = 64 << 20
_MAX_VERSION = 256
# The kernel's clock for files goes in steps of up to 10 ms (CONFIG_HZ, before Linux 6.13 on every file
# system): what is read so soon after a change may be changed again with no other time to show for it.
_TICK_NS = 20_000_000
_NONE: Mapping[str, Inventory] = MappingProxyType({})
_NO_DRIVERS: Mapping[str, str] = MappingProxyType({})


@frozen
class HostSources:
    """Where the state is read: spec directories below ``specs``, the daemon's run directory below ``runs``.

    Each of the three is the folder that stands for ``/``: ``host`` is where the running driver shows.
    """

    host: str
    specs: str
    spec_dirs: tuple[str, ...]
    runs: str
    run_dir: str


@frozen
class HostInventory:
    """The daemon's inventories by vendor; ``problem`` says why there are none.

    ``stale`` says of a vendor why its inventory is not that of the host as it is now.
    """

    vendors: Mapping[str, Inventory] = _NONE
    problem: str = ""
    stale: Mapping[str, str] = _NO_DRIVERS

    def of(self, vendor: str) -> tuple[Inventory | None, str]:
        """Return the inventory of VENDOR that can be relied on, or None and why there is none.

        Both are empty where the host has no GPUs of VENDOR.
        """
        problem = self.problem or self.stale.get(vendor, "")
        return (None, problem) if problem else (self.vendors.get(vendor), "")


@frozen
class HostState:
    """What ``sources`` hold.

    ``specs``: the devices that a runtime with the CDI library ``library`` finds, and what is wrong with spec
    files. ``has_daemon``: a daemon runs, which keeps the inventory current. ``begun_s``: when the reading
    began, by ``time.monotonic``; ``stamp``: what told then whether anything has changed, and ``is_settled``:
    that tells every change.
    """

    sources: HostSources
    library: str
    specs: SpecScan
    inventory: HostInventory
    has_daemon: bool
    begun_s: float
    stamp: Stamp
    is_settled: bool

    def is_current(self) -> bool:
        """Return whether no spec or inventory was added, removed or replaced since, nor the driver.

        It takes microseconds.
        """
        return self.is_settled and _stamp(self.sources) == self.stamp

    def has_changed(self) -> bool:
        """Return whether anything has changed, that the daemon was started or has ended included."""
        return not self.is_current() or self.has_daemon != _daemon_runs(self.sources)

    def documents(self) -> dict[str, dict[str, object]]:
        """Read again, and return by its path, each spec that defines a device, as ``library`` decodes it."""
        from cdigen.cdi.loaders.emulation import decoded_document  # noqa: PLC0415 - see the head of this file
        from cdigen.cdi.reader import MAX_SIZE, parse_document  # noqa: PLC0415 - likewise

        root = Root(self.sources.specs)
        found: dict[str, dict[str, object]] = {}
        for path in dict.fromkeys(path for _, path in self.specs.devices):
            try:
                data = root.read(path, limit=MAX_SIZE)
            except OSError:
                continue  # removed meanwhile, which the stamp tells
            document = decoded_document(data, self.library, parse_document(data, yaml=is_yaml(path)))
            if document is not None:
                found[path] = document
        return found


def read_host_state(sources: HostSources, *, library: str, cache: SpecCache | None = None) -> HostState:
    """Return the host as it is now; what cannot be read is a problem that the value names.

    LIBRARY is the release of the CDI library in the runtimes that are served (``1.0.1``). CACHE keeps what
    spec files hold from one reading to the next, so that one changed file costs one parse.
    """
    from cdigen.runtimes.scan import scan  # noqa: PLC0415 - see the head of this file

    begun_s = time.monotonic()
    # Before anything is read: what changes meanwhile makes another reading.
    before = _stamp(sources)
    now_ns = time.time_ns()
    has_daemon = _daemon_runs(sources)
    return HostState(
        sources=sources,
        library=library,
        specs=scan(sources.spec_dirs, Root(sources.specs), library=library, cache=cache),
        inventory=_inventory(sources, has_daemon=has_daemon),
        has_daemon=has_daemon,
        begun_s=begun_s,
        stamp=before,
        is_settled=not any(found and abs(now_ns - found[0]) < _TICK_NS for found in before[1]),
    )


def watched_paths(sources: HostSources) -> tuple[str, ...]:
    """Return the patterns of files whose change makes another state, for ``watch.files.FileSource``."""
    specs = [
        f"{sources.specs.rstrip('/')}{folder}/*{suffix}"
        for folder in sources.spec_dirs
        for suffix in SPEC_SUFFIXES
    ]
    return (*specs, f"{sources.runs.rstrip('/')}{sources.run_dir}/{INVENTORY_FILE}")


def parse_inventory(
    content: bytes | None, *, running_drivers: Mapping[str, str] = _NO_DRIVERS, has_daemon: bool = True
) -> HostInventory:
    """Return what an inventory.json says of the host as it is now; None is an absent file. Pure.

    An inventory is stale where no daemon keeps it current, and where it is of another driver than the one
    of RUNNING_DRIVERS. A vendor that is not in there has no kernel module that tells a version, or it is not
    loaded, and then there is nothing to give, whatever the inventory says: it counts as it is.
    """
    from cdigen.model.inventory_json import from_document  # noqa: PLC0415 - see the head of this file

    if content is None:
        return HostInventory(problem="there is no inventory: the cdigen daemon has not written one")
    try:
        vendors = from_document(json.loads(content))
    except (ConfigError, ValueError, RecursionError) as error:
        text = error.message if isinstance(error, ConfigError) else "it is no JSON"
        return HostInventory(problem=f"the inventory cannot be read: {text}")
    stale = {}
    for vendor, inventory in vendors.items():
        driver, running = inventory.driver.version, running_drivers.get(vendor, "")
        if not has_daemon:
            stale[vendor] = "the inventory is stale: the cdigen daemon, which keeps it true, does not run"
        elif running not in {"", driver}:
            stale[vendor] = f"the inventory is stale: it is of driver {driver}, and {running} runs"
    return HostInventory(vendors=vendors, stale=stale)


def _inventory(sources: HostSources, *, has_daemon: bool) -> HostInventory:
    path = f"{sources.run_dir}/{INVENTORY_FILE}"
    try:
        content = Root(sources.runs).read(path, limit=MAX_INVENTORY)
    except (FileNotFoundError, NotADirectoryError):
        content = None
    except OSError as error:
        return HostInventory(problem=f"{shown(path)} cannot be read: {error.strerror}")
    running = {vendor: _running_driver(sources.host, file) for vendor, file in RUNNING_DRIVERS.items()}
    return parse_inventory(content, running_drivers=running, has_daemon=has_daemon)


def _stamp(sources: HostSources) -> Stamp:
    """Return what differs as soon as a spec file is replaced, or another driver runs."""
    places = [(sources.specs, folder) for folder in sources.spec_dirs]
    places.append((sources.runs, f"{sources.run_dir}/{INVENTORY_FILE}"))
    running = ",".join([_running_driver(sources.host, file) for file in RUNNING_DRIVERS.values()])
    return running, tuple([_times(root, path) for root, path in places])


def _times(root: str, path: str) -> tuple[int, int] | None:
    """Return when PATH was changed last and its inode; a tool that copies folders sets other times back."""
    try:
        # Links of another tree lead where they lead there; this machine's own kernel is ten times faster.
        status = os.stat(path) if root == "/" else Root(root).stat(path)
    except OSError:
        return None
    return status.st_ctime_ns, status.st_ino


def _daemon_runs(sources: HostSources) -> bool:
    """Return whether a daemon runs, as far as can be told: it holds its lock."""
    root = Root(sources.runs)
    try:
        return is_held(root.outer_path(root.resolve(f"{sources.run_dir}/{LOCK_FILE}"))) is not False
    except OSError:
        return True


def _running_driver(root: str, path: str) -> str:
    try:
        with open(f"{root.rstrip('/')}{path}", "rb", buffering=0) as file:
            return file.read(_MAX_VERSION).decode("ascii", "replace").strip()
    except OSError:
        return ""
