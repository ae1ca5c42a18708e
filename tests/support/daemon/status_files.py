"""Status files of the daemon."""

import json
from pathlib import Path
from typing import Any

from support.paths import REPOSITORY
from support.values.cycle_reports import CHANGED, MISMATCH, QUIET, STARTING

from cdigen.daemon import status as files
from cdigen.daemon.cycle.report import next_status
from cdigen.model.inventory_json import from_document
from cdigen.service import rundir
from cdigen.service.status import ServiceProcess, this_process
from cdigen.value import replace

STATUS = next_status(
    next_status(STARTING, CHANGED, {"files": ""}),
    replace(QUIET, findings=CHANGED.findings, vendors=(MISMATCH,)),
    {"files": "", "uevents": "no permission"},
)
HOST = from_document(json.loads((REPOSITORY / "examples/hosts/debian13-8xh100.json").read_text()))
PROCESS = ServiceProcess(pid=1, started=1, namespace="pid:[1]")


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(files.document(STATUS, PROCESS)))
    return found


def changed(path: str, value: object) -> bytes:
    """Return a status with VALUE at PATH, such as ``specs.0.written``."""
    whole = document()
    *above, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place: Any = whole
    for part in above:
        place = place[part]
    place[last] = value
    return json.dumps(whole).encode()


def written(run_dir: Path, name: str) -> None:
    if name == rundir.STATUS_FILE:
        rundir.save_status(str(run_dir), files.document(STATUS, this_process()))
    else:
        files.save_inventory(str(run_dir), HOST)
