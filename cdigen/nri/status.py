"""The plugin's status: ``PluginStatus``, its ``document`` in status.json, ``read`` for ``cdigen status``.

One thread writes it, any may read it.
"""

from __future__ import annotations

import time
from collections import deque

from cdigen import __version__
from cdigen.frontend import status as files
from cdigen.model.timestamps import timestamp
from cdigen.nri.book import Book

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.frontend.status import Process
    from cdigen.model.findings import Finding
    from cdigen.nri.decision.audit import AuditResult, MissedContainer
    from cdigen.nri.decision.compat import Abilities
    from cdigen.nri.events import ContainerDecided
    from cdigen.nri.shared_state import NriMetrics

SCHEMA = 1
CONNECTING, REGISTERING, REGISTERED = ("connecting", "registering", "registered")
# Of a plugin that was killed, and has not taken its file away: who reads the file sees that.
ENDED = "ended"
MAX_JOURNAL = 20
MAX_MISSED = 50
# What ``cdigen status`` shows of the document besides its header.
_PARTS = {
    "reason": str,
    "missed_count": int,
    "runtime": dict,
    "counts": dict,
    "refused": dict,
    "problems": list,
}


class PluginStatus:
    """How the plugin stands: with which runtime, since when, what is wrong, what it did last."""

    def __init__(self, metrics: NriMetrics, book: Book | None = None) -> None:
        self.metrics = metrics
        self.book = book or Book()
        self.state = CONNECTING
        self.started_s = self.since_s = time.time()
        self.reason = ""
        self.abilities: Abilities | None = None
        self.missed: tuple[MissedContainer, ...] = ()
        self.missed_count = 0
        self.is_complete = True
        self.problems: tuple[Finding, ...] = ()
        # The last containers that were given devices or refused, as rows of the document.
        self.journal: deque[dict[str, Any]] = deque(maxlen=MAX_JOURNAL)

    @property
    def runtime(self) -> str:
        """The runtime and its version, as far as it has told."""
        able = self.abilities
        return f"{able.runtime} {able.version}".strip() if able else "no runtime"

    def set_state(self, state: str, reason: str = "") -> None:
        """Note that the plugin is in STATE now, for REASON."""
        if state != self.state:
            self.state, self.since_s = state, time.time()
        self.reason = reason

    def set_audit(self, found: AuditResult) -> None:
        """Note what the last audit FOUND."""
        self.missed, self.missed_count = found.missed[:MAX_MISSED], len(found.missed)
        self.is_complete = found.is_complete

    def add_container(self, event: ContainerDecided) -> None:
        """Note what became of a container."""
        answer = event.answer
        if answer.outcome in {"inject", "refuse"}:
            self.journal.append(
                {
                    "at": timestamp(time.time()),
                    **event.name.row(),
                    "outcome": answer.outcome,
                    "devices": list(answer.devices[:MAX_JOURNAL]),
                    "cause": answer.cause,
                    "reason": answer.reason,
                }
            )


def document(status: PluginStatus, process: Process) -> dict[str, Any]:
    """Return what STATUS says as the JSON document of the plugin's status.json. Pure."""
    able, metrics = status.abilities, status.metrics
    return {
        "schema": SCHEMA,
        "state": status.state,
        "since": timestamp(status.since_s),
        "reason": status.reason,
        "version": __version__,
        "pid": process.pid,
        "pid_started": process.started,
        "pid_namespace": process.namespace,
        "owner": process.owner,
        "started": timestamp(status.started_s),
        "runtime": {}
        if able is None
        else {
            "name": able.runtime,
            "version": able.version,
            "nri": ".".join(map(str, able.nri)),
            "cdi": able.cdi,
            "validates": able.validates,
            "remedy": able.remedy,
        },
        "connections": metrics.connections,
        "counts": dict(metrics.outcomes),
        "refused": _counted(metrics.refusals),
        "notes": _counted(metrics.notes),
        "validations": dict(metrics.verdicts),
        "missed_count": status.missed_count,
        "missed_complete": status.is_complete,
        "missed": [
            {**one.name.row(), "devices": list(one.devices), "reason": one.reason} for one in status.missed
        ],
        "holders": [
            {
                "id": held.id,
                **held.name.row(),
                "devices": list(held.devices),
                "at": None if held.at_s is None else timestamp(held.at_s),
            }
            for held in status.book.held()
        ],
        "problems": [finding.row() for finding in status.problems],
        "journal": list(status.journal),
    }


def read(run_dir: str) -> dict[str, Any] | None:
    """Return the document in RUN_DIR, None where there is none, or it is of another version.

    The state of a plugin that was killed is ENDED, and its reason tells by what that is seen.
    """
    try:
        found = files.read_status(run_dir, schema=SCHEMA, parts=_PARTS)
    except ValueError:
        return None
    if found is not None and (problem := files.reason_not_running(run_dir, found)):
        return {**found, "state": ENDED, "reason": problem}
    return found


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
