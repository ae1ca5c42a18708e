"""The daemon's ``status.json`` (``document``, ``read``) and ``inventory.json`` (``save_inventory``).

Both files are world-readable, because the specs and ``cdigen inspect`` show the same facts.
"""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import HostError, StoreError
from cdigen.model.inventory_json import to_document
from cdigen.model.strict import as_json
from cdigen.model.times.timestamps import timestamp
from cdigen.runtimes.daemon_service import SYSTEMD
from cdigen.service.rundir import INVENTORY_FILE, STATUS_FILE, write_file
from cdigen.service.status import header, read_status
from cdigen.store.records.state_file import json_content

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.daemon.cycle.report import CycleReport, DaemonStatus, JournalEntry, SpecReport, VendorReport
    from cdigen.model.inventory import Inventory
    from cdigen.runtimes.daemon_service import DaemonService
    from cdigen.service.status import ServiceProcess

_PARTS = {
    "verdict": str,
    "vendors": list,
    "specs": list,
    "findings": list,
    "last_cycle": dict,
    "sources": dict,
    "journal": list,
    "maintains": dict,
}


def document(status: DaemonStatus, process: ServiceProcess) -> dict[str, Any]:
    """Return STATUS as the JSON document that ``cdigen status --json`` prints. The function is pure."""
    cycle = status.cycle
    return {
        **header(process, state=status.state, since_s=status.since_s, started_s=status.started_s),
        "verdict": status.verdict,
        "version": status.version,
        "last_success": None if status.last_success_s is None else timestamp(status.last_success_s),
        "vendors": [_vendor(vendor) for vendor in status.vendors],
        "specs": [_spec(spec) for spec in status.specs],
        "findings": [finding.row() for finding in cycle.findings] if cycle else [],
        "last_cycle": _cycle(cycle) if cycle else {},
        "sources": {name: {"healthy": not text, "problem": text} for name, text in status.sources},
        "journal": [_journaled(entry) for entry in status.journal],
        "maintains": dict(status.maintained),
    }


def save_inventory(run_dir: str, inventories: Mapping[str, Inventory]) -> bool:
    """Write INVENTORIES to RUN_DIR; return whether the file changed.

    A file with the same content is not written again, so processes that watch the file see only changes.
    Raises StoreError if the system refuses the write.
    """
    return write_file(run_dir, INVENTORY_FILE, json_content(to_document(inventories)))


def read(run_dir: str, service: DaemonService = SYSTEMD) -> dict[str, Any]:
    """Return the status in RUN_DIR.

    SERVICE has the commands of the host's service manager for the hints. Raises HostError if there is no
    status, and StoreError if this version of cdigen cannot read the status.
    """
    path = f"{run_dir}/{STATUS_FILE}"
    try:
        found = read_status(run_dir, _PARTS)
    except ValueError as error:
        raise unreadable(path, error, service) from None
    if found is None:
        raise HostError(
            f"no cdigen daemon has written a status: {shown(path)} does not exist",
            hint=service.started(),
            kind="no-daemon",
        )
    return found


def unreadable(path: str, why: object, service: DaemonService) -> StoreError:
    """Return the error for the file PATH that this version of cdigen cannot read; WHY is the reason."""
    return StoreError(
        f"{shown(path)} is not a status of this version of cdigen: {why}",
        hint=f"remove the file and restart the daemon: {service.restart}",
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
    row = as_json(entry)
    return {"at": timestamp(row.pop("at_s")), **row}
