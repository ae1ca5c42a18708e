"""What the plugin knows of its host: ``read_context`` reads a ``DecisionContext``, which is replaced whole.

Specs come from the spec directories, GPUs and driver from the daemon's inventory; nothing is discovered here.
"""

from __future__ import annotations

import os
import time

from cdigen.cdi.reader import MAX_SIZE, parse_document
from cdigen.frontend.status import is_held
from cdigen.host.root import Root, shown
from cdigen.nri.decision.cache import DecisionCache
from cdigen.nri.decision.machine import Machine, read
from cdigen.nri.decision.policy import Policy, policy_of
from cdigen.nri.decision.raw import prepare
from cdigen.nri.decision.select import DeviceNames
from cdigen.runtimes.scan import SpecCache
from cdigen.runtimes.specfile import as_loaded
from cdigen.runtimes.users import ROOT
from cdigen.store.lock import LOCK_FILE
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.config import Settings
    from cdigen.model.findings import Finding
    from cdigen.nri.decision.raw import PreparedSpec
    from cdigen.runtimes.scan import SpecScan

    # The running driver; of each spec directory and the inventory when it was changed, and its number.
    Stamp = tuple[str, tuple[tuple[int, int] | None, ...]]

# That of containerd 2.1 and CRI-O 1.33, the first that take CDI devices from a plugin, or nearly so.
LIBRARY = "1.0.1"
INVENTORY = "inventory.json"
RUNNING_DRIVER = "/sys/module/nvidia/version"
MAX_INVENTORY = 64 << 20
_MAX_VERSION = 256
# The kernel's clock for files goes in steps of up to 10 ms (CONFIG_HZ, before Linux 6.13 on every file
# system): what is read so soon after a change may be changed again with no other time to show for it.
_TICK_NS = 20_000_000


@frozen
class HostSources:
    """Where it is read: spec directories below ``specs``, the daemon's run directory below ``runs``.

    Each of the three is the folder that stands for ``/``: ``host`` is where the running driver shows.
    """

    host: str
    specs: str
    spec_dirs: tuple[str, ...]
    runs: str
    run_dir: str


@frozen
class DecisionContext:
    """What a decision needs.

    ``decisions`` are those made by it so far, ``problems`` what is wrong with spec files. ``prepared``: the
    document of each device, where the policy is to give nodes and mounts to a runtime that drops CDI devices;
    ``nodes``: where nodes are. ``begun_s``: when the look at the host began, by ``time.monotonic``,
    ``stamp`` what told then whether it has changed, and ``is_settled`` whether that tells all;
    ``is_inventory_maintained``: a daemon keeps the inventory true.
    """

    policy: Policy
    names: DeviceNames
    machine: Machine
    problems: tuple[Finding, ...]
    decisions: DecisionCache
    prepared: Mapping[str, PreparedSpec] | None
    nodes: Root
    sources: HostSources
    begun_s: float
    stamp: Stamp
    is_settled: bool
    is_kept: bool

    def is_current(self) -> bool:
        """Return whether no spec or inventory has come, gone or been replaced since, nor the driver."""
        return self.is_settled and stamp(self.sources) == self.stamp


def read_context(sources: HostSources, settings: Settings) -> DecisionContext:
    """Read what is known of the host now; what cannot be read is a problem of the value."""
    begun_s = time.monotonic()
    # Before anything is read: what changes meanwhile makes another look.
    before = stamp(sources)
    now_ns = time.time_ns()
    kept = is_inventory_maintained(sources)
    view = SpecCache(Root(sources.specs)).view(sources.spec_dirs, library=LIBRARY, reader=ROOT)
    return DecisionContext(
        policy=policy_of(settings),
        names=DeviceNames((device for device, _ in view.devices), lambda name: view.resolve(name).reason),
        machine=_machine(sources, kept=kept),
        is_kept=kept,
        problems=view.problems,
        decisions=DecisionCache(),
        prepared=_prepared(sources, view) if settings.nri.unsupported_cdi == "raw" else None,
        nodes=Root(sources.host),
        sources=sources,
        begun_s=begun_s,
        stamp=before,
        is_settled=not any(found and abs(now_ns - found[0]) < _TICK_NS for found in before[1]),
    )


def stamp(sources: HostSources) -> Stamp:
    """Return what differs as soon as a spec file is replaced, or another driver runs; microseconds."""
    places = [(sources.specs, folder) for folder in sources.spec_dirs]
    places.append((sources.runs, f"{sources.run_dir}/{INVENTORY}"))
    return _running_driver(sources.host), tuple([_times(root, path) for root, path in places])


def _times(root: str, path: str) -> tuple[int, int] | None:
    """Return when PATH was changed last and its number; a tool that copies folders sets other times back."""
    try:
        # Links of another tree lead where they lead there; this machine's own kernel is ten times faster.
        status = os.stat(path) if root == "/" else Root(root).stat(path)
    except OSError:
        return None
    return status.st_ctime_ns, status.st_ino


def _prepared(sources: HostSources, view: SpecScan) -> dict[str, PreparedSpec]:
    """Return by the name of each device of VIEW the document that defines it."""
    root = Root(sources.specs)
    made: dict[str, PreparedSpec] = {}
    found: dict[str, PreparedSpec] = {}
    for device, path in view.devices:
        if path not in made:
            try:
                data = root.read(path, limit=MAX_SIZE)
            except OSError:
                continue  # gone meanwhile, which the stamp tells
            parsed = parse_document(data, yaml=not path.lower().endswith(".json")).document
            made[path] = prepare(as_loaded(data, parsed, LIBRARY) or {})
        found[device] = made[path]
    return found


def is_inventory_maintained(sources: HostSources) -> bool:
    """Return whether a daemon keeps the inventory true, as far as can be told: it holds its lock."""
    root = Root(sources.runs)
    try:
        return is_held(root.outer_path(root.resolve(f"{sources.run_dir}/{LOCK_FILE}"))) is not False
    except OSError:
        return True


def _machine(sources: HostSources, *, kept: bool) -> Machine:
    try:
        content = Root(sources.runs).read(f"{sources.run_dir}/{INVENTORY}", limit=MAX_INVENTORY)
    except (FileNotFoundError, NotADirectoryError):
        content = None
    except OSError as error:
        return Machine(problem=f"{shown(sources.run_dir)}/{INVENTORY} cannot be read: {error.strerror}")
    return read(content, running_driver=_running_driver(sources.host), is_kept=kept)


def _running_driver(root: str) -> str:
    """Return the version of NVIDIA's kernel module, which sysfs gives without waiting for anything."""
    try:
        with open(f"{root.rstrip('/')}{RUNNING_DRIVER}", "rb", buffering=0) as file:
            return file.read(_MAX_VERSION).decode("ascii", "replace").strip()
    except OSError:
        return ""
