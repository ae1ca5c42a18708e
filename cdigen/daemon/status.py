"""Make and read the daemon's ``status.json`` (``document``, ``read``) and ``inventory.json``.

Both files are world-readable, and hold nothing that the specs and ``cdigen inspect`` do not show as well.
"""

from __future__ import annotations

import json

from cdigen.frontend.rundir import INVENTORY_FILE, STATUS_FILE, write_file
from cdigen.frontend.status import header, read_status
from cdigen.host.root import shown
from cdigen.model.errors import HostError, StoreError
from cdigen.model.inventory_json import to_document
from cdigen.model.timestamps import timestamp
from cdigen.runtimes.daemon_service import SYSTEMD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.daemon.report import CycleReport, DaemonStatus, JournalEntry, SpecReport, VendorReport
    from cdigen.frontend.status import Process
    from cdigen.model.inventory import Inventory
    from cdigen.runtimes.daemon_service import DaemonService

SCHEMA = 1
_PARTS = {
    "vendors": list,
    "specs": list,
    "findings": list,
    "last_cycle": dict,
    "sources": dict,
    "journal": list,
}


def document(status: DaemonStatus, process: Process) -> dict[str, Any]:
    """Return STATUS as the JSON document that ``cdigen status --json`` prints. Pure."""
    cycle = status.cycle
    return {
        **header(
            process,
            schema=SCHEMA,
            state=status.state,
            since_s=status.since_s,
            started_s=status.started_s,
        ),
        "version": status.version,
        "last_success": None if status.last_success_s is None else timestamp(status.last_success_s),
        "vendors": [_vendor(vendor) for vendor in status.vendors],
        "specs": [_spec(spec) for spec in status.specs],
        "findings": [finding.row() for finding in cycle.findings] if cycle else [],
        "last_cycle": _cycle(cycle) if cycle else {},
        "sources": {name: {"healthy": not text, "problem": text} for name, text in status.sources},
        "journal": [_journaled(entry) for entry in status.journal],
    }


def save_inventory(run_dir: str, inventories: Mapping[str, Inventory]) -> bool:
    """Put INVENTORIES into the run directory; returns whether that changed the file.

    A file that holds them already stays untouched, so that whoever watches it wakes up for a reason.
    StoreError: the system refused.
    """
    text = json.dumps(to_document(inventories), ensure_ascii=True, indent=1)
    return write_file(run_dir, INVENTORY_FILE, f"{text}\n".encode("ascii"))


def read(run_dir: str, service: DaemonService = SYSTEMD) -> dict[str, Any]:
    """Return the status in RUN_DIR. HostError: there is none; StoreError: this cdigen cannot read it.

    SERVICE is how the host starts the daemon, for the hints.
    """
    path = f"{run_dir}/{STATUS_FILE}"
    try:
        found = read_status(run_dir, schema=SCHEMA, parts=_PARTS)
    except ValueError as error:
        raise unreadable(path, error, service) from None
    if found is None:
        raise HostError(
            f"no cdigen daemon has a status here: {shown(path)} does not exist",
            hint=service.started(),
            kind="no-daemon",
        )
    return found


def unreadable(path: str, why: object, service: DaemonService) -> StoreError:
    """Return the error for a file PATH that is not a status of this cdigen, and WHY."""
    return StoreError(
        f"{shown(path)} is not a status of this cdigen: {why}",
        hint=f"remove it; the daemon writes a new one when it is restarted: {service.restart}",
    )


def _vendor(vendor: VendorReport) -> dict[str, Any]:
    return {
        "vendor": vendor.vendor,
        "state": vendor.state,
        "since": timestamp(vendor.since_s),
        "reason": vendor.reason,
        "hint": vendor.hint,
    }


def _spec(spec: SpecReport) -> dict[str, Any]:
    return {
        "kind": spec.kind,
        "file": spec.file,
        "result": spec.result,
        "reason": spec.reason,
        "devices": {"served": spec.served, "left_out": spec.left_out},
        "written": None if spec.written_s is None else timestamp(spec.written_s),
        "changes": spec.changes.summary() if spec.changes is not None and spec.changes.any() else "",
    }


def _cycle(cycle: CycleReport) -> dict[str, Any]:
    return {
        "number": cycle.number,
        "started": timestamp(cycle.started_s),
        "duration_s": round(cycle.duration_s, 6),
        "result": cycle.result,
        "error": cycle.error,
        "events": cycle.events,
        "reasons": [{"source": trigger.source, "reason": trigger.reason} for trigger in cycle.reasons],
    }


def _journaled(entry: JournalEntry) -> dict[str, Any]:
    return {
        "at": timestamp(entry.at_s),
        "cycle": entry.cycle,
        "reasons": list(entry.reasons),
        "kind": entry.kind,
        "file": entry.file,
        "result": entry.result,
        "summary": entry.summary,
        "added": list(entry.added),
        "removed": list(entry.removed),
        "changed": list(entry.changed),
        "edits": list(entry.edits),
    }
