"""``HoldersOnDemand``: asks who has the devices, and what runtimes find, when somebody looks at the page."""

from __future__ import annotations

import time
from functools import partial

from cdigen.daemon.page.holders import Heard, numbers_of, pids_of
from cdigen.daemon.page.peers import read_peers
from cdigen.daemon.page.view import offered_names
from cdigen.daemon.verdicts import Verdicts
from cdigen.holders import cgroups
from cdigen.holders.asking import Asking
from cdigen.holders.engines import Engine
from cdigen.holders.model import Told
from cdigen.holders.open_nodes import Open, read_open
from cdigen.host.root import Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.daemon.figures import VendorFigures
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.pipeline.device_names import KnownDevice

# Questions that are no sockets.
_LIVING, _OPEN, _RUNTIMES = "processes", "open files", "runtimes"
# A process more costs a file that is opened.
_MAX_PIDS = 512


class HoldersOnDemand:
    """Asks the engines that SETUP allows, whose processes there are, and what runtimes find."""

    def __init__(self, setup: Callable[[], DaemonSetup]) -> None:
        self._setup = setup
        self._asking = Asking()
        # By the path that is configured, and where it leads on this machine.
        self._engines: dict[tuple[str, str], Engine] = {}
        self._verdicts = Verdicts(setup().outer)

    def heard(
        self,
        figures: Callable[[], tuple[VendorFigures, ...]],
        devices: tuple[KnownDevice, ...],
        wait_s: float,
    ) -> Heard:
        """Return what is heard within WAIT_S, beside what FIGURES, which may wait itself, tells.

        DEVICES are those that runtimes should find, and containers may have.
        """
        until_s = time.monotonic() + wait_s
        setup = self._setup()
        outer = setup.outer.rstrip("/")
        proc = f"{outer}{cgroups.PROC}"
        peers = read_peers(setup.nri_dir, setup.kubelet_dir)
        paths = setup.page.sockets
        # What is no longer allowed is forgotten.
        places = {path: _place(setup.outer, path) for path in paths}
        self._engines = {
            (path, place): self._engines.get((path, place)) or Engine(place) for path, place in places.items()
        }
        questions: dict[str, Callable[[], object]] = {
            path: engine.ask for (path, _), engine in self._engines.items()
        }
        questions[_RUNTIMES] = partial(self._verdicts.of, offered_names(devices))
        if numbers := tuple(numbers_of(devices)):
            questions[_OPEN] = partial(read_open, numbers, proc=proc)
        if peers.booked:
            questions[_LIVING] = partial(cgroups.living, proc=proc)
        self._asking.begin(questions)
        told = figures()
        answers = self._asking.answers(max(0.0, until_s - time.monotonic()))
        engines = {path: answers.get(path) for path in paths}
        living, runtimes = answers.get(_LIVING), answers.get(_RUNTIMES)
        found = answers.get(_OPEN)
        open_nodes = found if isinstance(found, Open) else None
        pids = pids_of(told, open_nodes)[:_MAX_PIDS]
        return Heard(
            peers=peers,
            engines={path: one if isinstance(one, Told) else None for path, one in engines.items()},
            living=living if isinstance(living, frozenset) else None,
            figures=told,
            runtimes=runtimes if isinstance(runtimes, tuple) else None,
            containers=cgroups.containers_of(pids, proc=proc),
            open_nodes=open_nodes,
        )


def _place(outer: str, path: str) -> str:
    """Return where the socket PATH of the host at OUTER is on this machine, its links followed as there.

    Each time: a link may be changed, and /run is often made after the daemon has started.
    """
    root = Root(outer)
    try:
        return root.outer_path(root.resolve_new(path))
    except OSError:
        # It leads nowhere; whoever asks there is told the same.
        return root.outer_path(path) if root.is_this_machine else ""
