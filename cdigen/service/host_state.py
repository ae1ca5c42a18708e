"""The current state of the host, for processes that serve containers: ``read_host_state``.

The devices come from the specs in the spec directories. GPUs and driver come from the inventory that the
daemon writes to its run directory. This module discovers no devices. A state is an immutable value, and each
read returns a new state. The first read imports the spec reader. The import of this module does not import
the spec reader, because some processes must first register with the runtime or the kubelet.
"""

from __future__ import annotations

import json
import os
import time
from types import MappingProxyType

from cdigen.host.filetimes import shows_changes
from cdigen.host.root import Root, shown
from cdigen.model.errors import ConfigError
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.service.rundir import INVENTORY_FILE, STATUS_FILE
from cdigen.service.status import is_held
from cdigen.store.lock import LOCK_FILE
from cdigen.value import frozen
from cdigen.vendors.registry import VENDORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.model.inventory import Inventory
    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.spec_cache import SpecCache
    from cdigen.watch.files import FileSource

    # The versions of the running drivers, and (ctime, inode) of each spec directory and of the inventory.
    Stamp = tuple[str, tuple[tuple[int, int] | None, ...]]

# Vendor -> the file with the version of its running driver. Reading the file does not block.
RUNNING_DRIVERS = {name: row.version_file for name, row in VENDORS.items() if row.version_file}
MAX_INVENTORY = 64 << 20
_MAX_VERSION = 256
_NONE: Mapping[str, Inventory] = MappingProxyType({})
_NO_DRIVERS: Mapping[str, str] = MappingProxyType({})


@frozen
class HostSources:
    """The locations of the specs, the daemon's run directory and the driver.

    ``host``, ``specs`` and ``runs`` are root folders. ``spec_dirs`` are paths below ``specs``, ``run_dir`` is
    a path below ``runs``, and the files of the driver are below ``host``.
    """

    host: str
    specs: str
    spec_dirs: tuple[str, ...]
    runs: str
    run_dir: str


@frozen
class HostInventory:
    """The daemon's inventories by vendor; ``problem`` is the reason if there are no inventories.

    ``stale`` maps a vendor to the reason why its inventory is out of date.
    """

    vendors: Mapping[str, Inventory] = _NONE
    problem: str = ""
    stale: Mapping[str, str] = _NO_DRIVERS

    def of(self, vendor: str) -> tuple[Inventory | None, str]:
        """Return the inventory of VENDOR, and a problem.

        If the inventory is up to date, the problem is "". If it is out of date, the inventory is None, and
        the problem is the reason. If the host has no GPUs of VENDOR, the result is None and "".
        """
        problem = self.problem or self.stale.get(vendor, "")
        return (None, problem) if problem else (self.vendors.get(vendor), "")


@frozen
class HostState:
    """The content of ``sources`` at one time.

    ``specs`` are the devices that a runtime with the same CDI library finds, and the problems of spec files.
    ``inventory_file`` is the content of the inventory file, None if there is no file. ``has_daemon`` is true
    if a daemon runs and keeps the inventory up to date. ``begun_s`` is the time at which the read began
    (``time.monotonic``). ``stamp`` is the ``Stamp`` of that time, for later comparisons.
    ``is_settled`` is true if a comparison of stamps detects every change.
    """

    sources: HostSources
    specs: SpecScan
    inventory: HostInventory
    inventory_file: bytes | None
    has_daemon: bool
    begun_s: float
    stamp: Stamp
    is_settled: bool

    def is_current(self) -> bool:
        """Return whether specs, inventory and driver are unchanged since the read; takes microseconds."""
        return self.is_settled and _stamp(self.sources) == self.stamp

    def has_changed(self) -> bool:
        """Return whether anything has changed, including a start or an end of the daemon."""
        return not self.is_current() or self.has_daemon != _daemon_runs(self.sources)


def read_host_state(
    sources: HostSources, *, library: str, cache: SpecCache | None = None, before: HostState | None = None
) -> HostState:
    """Return the current state of the host. The result names unreadable parts.

    LIBRARY is the release of the CDI library in the served runtimes (``1.0.1``). CACHE keeps the content of
    spec files between reads, and defines further values that are computed from the content
    (``SpecFile.prepared``). If the inventory is unchanged since BEFORE, the result has the same inventory
    object.
    """
    from cdigen.runtimes.scan import scan  # noqa: PLC0415 - see the head of this file

    begun_s = time.monotonic()
    # The stamp is read first, so that a change during the read causes another read.
    stamp = _stamp(sources)
    now_ns = time.time_ns()
    has_daemon = _daemon_runs(sources)
    content, inventory = _inventory(sources, stamp, before, has_daemon=has_daemon)
    return HostState(
        sources=sources,
        specs=scan(sources.spec_dirs, Root(sources.specs), library=library, cache=cache),
        inventory=inventory,
        inventory_file=content,
        has_daemon=has_daemon,
        begun_s=begun_s,
        stamp=stamp,
        is_settled=all(found is None or shows_changes(found[0], now_ns) for found in stamp[1]),
    )


def watch_host(files: FileSource, sources: HostSources, *further: str) -> None:
    """Make FILES watch the files that affect the state, and the files FURTHER.

    The status file is watched to detect the start of a daemon. A daemon writes its status when it gets the
    lock. It writes the inventory only if the inventory has changed.
    """
    specs = [
        f"{sources.specs.rstrip('/')}{folder}/*{suffix}"
        for folder in sources.spec_dirs
        for suffix in SPEC_SUFFIXES
    ]
    run_dir = f"{sources.runs.rstrip('/')}{sources.run_dir}"
    # The links of another tree are resolved within that tree.
    roots = tuple({sources.specs, sources.runs} - {"/"})
    files.rearm((*specs, f"{run_dir}/{INVENTORY_FILE}", f"{run_dir}/{STATUS_FILE}", *further), roots=roots)


def parse_inventory(
    content: bytes | None, *, running_drivers: Mapping[str, str] = _NO_DRIVERS, has_daemon: bool = True
) -> HostInventory:
    """Return the inventories in CONTENT. The function is pure.

    CONTENT is the inventory.json of this host, or None if there is no file. An inventory is stale if no
    daemon keeps it up to date, or if its driver version differs from RUNNING_DRIVERS. If RUNNING_DRIVERS has
    no version of a vendor, the vendor's inventory is used unchanged. In this case, the vendor's kernel module
    reports no version, or no module is loaded and there are no devices.
    """
    from cdigen.model.inventory_json import from_document  # noqa: PLC0415 - see the head of this file

    if content is None:
        return HostInventory(problem="there is no inventory: the cdigen daemon has not written one")
    try:
        vendors = from_document(json.loads(content))
    except (ConfigError, ValueError, RecursionError) as error:
        text = error.message if isinstance(error, ConfigError) else "it is not JSON"
        return HostInventory(problem=f"the inventory cannot be read: {text}")
    stale = {}
    for vendor, inventory in vendors.items():
        driver, running = inventory.driver.version, running_drivers.get(vendor, "")
        if not has_daemon:
            stale[vendor] = "the inventory is stale: the cdigen daemon, which updates it, does not run"
        elif running not in {"", driver}:
            problem = f"it describes driver {driver}, but driver {running} is loaded"
            stale[vendor] = f"the inventory is stale: {problem}"
    return HostInventory(vendors=vendors, stale=stale)


def running_drivers(host: str) -> dict[str, str]:
    """Return the version of each vendor's running driver; "" if no driver runs, or if it reports no version.

    HOST is the folder that serves as ``/``.
    """
    return {vendor: _running_driver(host, file) for vendor, file in RUNNING_DRIVERS.items()}


def _inventory(
    sources: HostSources, stamp: Stamp, before: HostState | None, *, has_daemon: bool
) -> tuple[bytes | None, HostInventory]:
    """Return the content of the inventory file and its inventories; reuse BEFORE if nothing has changed."""
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
    """Return a value that changes if a spec file or the inventory is replaced, or if another driver runs."""
    places = [(sources.specs, folder) for folder in sources.spec_dirs]
    places.append((sources.runs, f"{sources.run_dir}/{INVENTORY_FILE}"))
    running = ",".join(running_drivers(sources.host).values())
    return running, tuple([_times(root, path) for root, path in places])


def _times(root: str, path: str) -> tuple[int, int] | None:
    """Return ctime and inode of PATH. The mtime is unsuitable, because tools that copy folders reset it."""
    try:
        # Root resolves the links of another tree within that tree. For "/", the kernel's resolution is used,
        # which is ten times faster.
        status = os.stat(path) if root == "/" else Root(root).stat(path)
    except OSError:
        return None
    return status.st_ctime_ns, status.st_ino


def _daemon_runs(sources: HostSources) -> bool:
    """Return whether a daemon holds the lock of the run directory, True if unknown."""
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
