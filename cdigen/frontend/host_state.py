"""The current state of the host, for processes that serve containers: ``read_host_state``.

Devices come from the specs in the spec directories, GPUs and driver from the inventory that the daemon keeps
in its run directory; nothing is discovered here. A state is one value, replaced as a whole by the next
reading. The first reading imports the spec reader: a process may have to register somewhere before that.
"""

from __future__ import annotations

import json
import os
import time
from types import MappingProxyType

from cdigen.frontend.rundir import INVENTORY_FILE, STATUS_FILE
from cdigen.frontend.status import is_held
from cdigen.host.filetimes import shows_changes
from cdigen.host.root import Root, shown
from cdigen.model.errors import ConfigError
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.store.lock import LOCK_FILE
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.model.inventory import Inventory
    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.spec_cache import SpecCache

    # The running driver; mtime and inode of each spec directory and of the inventory.
    Stamp = tuple[str, tuple[tuple[int, int] | None, ...]]

# Vendor -> the file in which the kernel gives the version of its running driver without blocking.
# WSL2 and most of Tegra have none of that name.
RUNNING_DRIVERS = {"nvidia": "/sys/module/nvidia/version"}
MAX_INVENTORY = 64 << 20
_MAX_VERSION = 256
_NONE: Mapping[str, Inventory] = MappingProxyType({})
_NO_DRIVERS: Mapping[str, str] = MappingProxyType({})


@frozen
class HostSources:
    """Where to read the state: specs below ``specs``, the run directory in ``runs``, the driver in ``host``.

    Each of the three is the folder that stands for ``/``.
    """

    host: str
    specs: str
    spec_dirs: tuple[str, ...]
    runs: str
    run_dir: str


@frozen
class HostInventory:
    """The daemon's inventories by vendor; ``problem`` says why there are none.

    ``stale`` gives for a vendor the reason why its inventory is out of date.
    """

    vendors: Mapping[str, Inventory] = _NONE
    problem: str = ""
    stale: Mapping[str, str] = _NO_DRIVERS

    def of(self, vendor: str) -> tuple[Inventory | None, str]:
        """Return a reliable inventory of VENDOR, or None and the reason.

        Both are empty where the host has no GPUs of VENDOR.
        """
        problem = self.problem or self.stale.get(vendor, "")
        return (None, problem) if problem else (self.vendors.get(vendor), "")


@frozen
class HostState:
    """What ``sources`` hold.

    ``specs``: the devices that a runtime with the CDI library ``library`` finds, and what is wrong with spec
    files. ``inventory_file``: the content of the inventory's file, None: there is none. ``has_daemon``: a
    daemon runs, which keeps the inventory current. ``begun_s``: when the reading began, by
    ``time.monotonic``; ``stamp``: the stamp at that time, to be compared later, and ``is_settled``: it
    detects every change.
    """

    sources: HostSources
    library: str
    specs: SpecScan
    inventory: HostInventory
    inventory_file: bytes | None
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
        """Return whether anything has changed, including a start or end of the daemon."""
        return not self.is_current() or self.has_daemon != _daemon_runs(self.sources)


def read_host_state(
    sources: HostSources, *, library: str, cache: SpecCache | None = None, before: HostState | None = None
) -> HostState:
    """Return the current state of the host; the value names what cannot be read.

    LIBRARY is the release of the CDI library in the runtimes that are served (``1.0.1``). CACHE keeps what
    spec files hold from one reading to the next, and says what else is made of them (``SpecFile.prepared``).
    Where the inventory has not changed since BEFORE, the state has the same one.
    """
    from cdigen.runtimes.scan import scan  # noqa: PLC0415 - see the head of this file

    begun_s = time.monotonic()
    # Before anything is read: a change meanwhile then causes another reading.
    stamp = _stamp(sources)
    now_ns = time.time_ns()
    has_daemon = _daemon_runs(sources)
    content, inventory = _inventory(sources, stamp, before, has_daemon=has_daemon)
    return HostState(
        sources=sources,
        library=library,
        specs=scan(sources.spec_dirs, Root(sources.specs), library=library, cache=cache),
        inventory=inventory,
        inventory_file=content,
        has_daemon=has_daemon,
        begun_s=begun_s,
        stamp=stamp,
        is_settled=all(found is None or shows_changes(found[0], now_ns) for found in stamp[1]),
    )


def watched_paths(sources: HostSources) -> tuple[str, ...]:
    """Return the patterns of files whose change may change the state, for ``watch.files.FileSource``.

    A daemon that starts writes its status once it holds its lock, and an inventory only if it is another one.
    """
    specs = [
        f"{sources.specs.rstrip('/')}{folder}/*{suffix}"
        for folder in sources.spec_dirs
        for suffix in SPEC_SUFFIXES
    ]
    run_dir = f"{sources.runs.rstrip('/')}{sources.run_dir}"
    return (*specs, f"{run_dir}/{INVENTORY_FILE}", f"{run_dir}/{STATUS_FILE}")


def parse_inventory(
    content: bytes | None, *, running_drivers: Mapping[str, str] = _NO_DRIVERS, has_daemon: bool = True
) -> HostInventory:
    """Return what an inventory.json says about the present host; None: no such file. Pure.

    An inventory is stale if no daemon keeps it current, or if it is of another driver than that in
    RUNNING_DRIVERS. A vendor that is not in there has no loaded kernel module that tells a version; its
    inventory is taken as it is, since without a module there are no devices to give.
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
            stale[vendor] = "the inventory is stale: the cdigen daemon, which updates it, does not run"
        elif running not in {"", driver}:
            stale[vendor] = f"the inventory is stale: it is of driver {driver}, and {running} runs"
    return HostInventory(vendors=vendors, stale=stale)


def running_drivers(host: str) -> dict[str, str]:
    """Return the version of the running driver of each vendor, empty where none runs or it tells none.

    HOST is the folder that stands for ``/``.
    """
    return {vendor: _running_driver(host, file) for vendor, file in RUNNING_DRIVERS.items()}


def _inventory(
    sources: HostSources, stamp: Stamp, before: HostState | None, *, has_daemon: bool
) -> tuple[bytes | None, HostInventory]:
    """Return the content of the inventory and what it says; that of BEFORE where all is as it was."""
    path = f"{sources.run_dir}/{INVENTORY_FILE}"
    try:
        content = Root(sources.runs).read(path, limit=MAX_INVENTORY)
    except (FileNotFoundError, NotADirectoryError):
        content = None
    except OSError as error:
        return None, HostInventory(problem=f"{shown(path)} cannot be read: {error.strerror}")
    if (
        before is not None
        and content is not None
        and (before.inventory_file, before.has_daemon, before.stamp[0]) == (content, has_daemon, stamp[0])
    ):
        return content, before.inventory
    drivers = running_drivers(sources.host)
    return content, parse_inventory(content, running_drivers=drivers, has_daemon=has_daemon)


def _stamp(sources: HostSources) -> Stamp:
    """Return a value that changes when a spec file is replaced, or another driver runs."""
    places = [(sources.specs, folder) for folder in sources.spec_dirs]
    places.append((sources.runs, f"{sources.run_dir}/{INVENTORY_FILE}"))
    running = ",".join([_running_driver(sources.host, file) for file in RUNNING_DRIVERS.values()])
    return running, tuple([_times(root, path) for root, path in places])


def _times(root: str, path: str) -> tuple[int, int] | None:
    """Return when PATH was changed last and its inode; a tool that copies folders sets other times back."""
    try:
        # In another tree, resolve links within it; on this machine the kernel does it ten times faster.
        status = os.stat(path) if root == "/" else Root(root).stat(path)
    except OSError:
        return None
    return status.st_ctime_ns, status.st_ino


def _daemon_runs(sources: HostSources) -> bool:
    """Return whether a daemon seems to run: it holds its lock."""
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
