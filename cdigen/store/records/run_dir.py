"""The run directory of the last daemon that was started with ``--run-dir``, for commands without this option.

    {"schema": 1, "run_dir": "/run/cdigen-try"}

The file is only a place to search for a daemon: its lock shows whether it runs.
"""

from __future__ import annotations

from cdigen.model.strict import string
from cdigen.store.records.state_file import StateFile

FILE = "run-dir.json"
_DOCUMENT = StateFile(FILE, {"run_dir": string}, is_own=True)


def save(state_dir: str, run_dir: str) -> None:
    """Write RUN_DIR, an absolute path of this machine, into STATE_DIR; raise StoreError if that fails."""
    _DOCUMENT.save(state_dir, run_dir=run_dir)


def read(state_dir: str) -> str:
    """Return the run directory in STATE_DIR, or "" if there is no valid file."""
    found: str = _DOCUMENT.read_valid(state_dir).get("run_dir", "")
    return found if found.startswith("/") else ""
