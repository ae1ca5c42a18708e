"""Find the standard library of the Python that runs the start-up hook, and the original if it is a copy.

A copy that users may execute but not read keeps containers from spying on the hook (docs/hook.md). A
``pyvenv.cfg`` beside it tells Python, and us, the folder of the original.
"""

from __future__ import annotations

import posixpath

from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

SETTINGS = "pyvenv.cfg"
# Debian 13's has 7 MB.
MAX_SIZE = 64 << 20


def standard_library(host: Root | None, python: str) -> tuple[str, ...]:
    """Return the folder of PYTHON's standard library on HOST, if it is where Python looks first."""
    if host is None or not host.exists(python):
        return ()
    real = host.resolve(python)
    prefix, name = posixpath.dirname(posixpath.dirname(real)), posixpath.basename(real)
    folder = f"{prefix}/lib/{name}"
    return (folder, f"{folder}/os.py") if host.exists(f"{folder}/os.py") else ()


def settings_of(python: str) -> str:
    """Return the path of the file that names the original of PYTHON, should it be a copy."""
    return f"{posixpath.dirname(python)}/{SETTINGS}"


def copied_from(host: Root | None, python: str) -> str:
    """Return the interpreter that PYTHON is a copy of; empty if it is not a copy. Never raises."""
    try:
        text = host.read(settings_of(python), limit=4096).decode("utf-8", "replace") if host else ""
    except OSError:
        return ""
    rows = (line.partition("=") for line in text.splitlines())
    home = next((value.strip() for key, _, value in rows if key.strip() == "home"), "")
    return f"{home.rstrip('/')}/{posixpath.basename(python)}" if home.startswith("/") else ""


def outdated(host: Root, python: str, original: str) -> str:
    """Return why PYTHON is not a copy of the present ORIGINAL; empty if it is one, or cannot be read."""
    try:
        present = host.read(original, limit=MAX_SIZE)
    except OSError:
        return f"{shown(original)} is not there"
    try:
        same = host.read(python, limit=MAX_SIZE) == present
    except PermissionError:
        return ""
    except OSError:
        return f"{shown(python)} is not there"
    return "" if same else f"{shown(original)} has been changed since"
