"""Find the standard library of the hook's Python interpreter, and the original of a copied interpreter.

A copy that users may execute but not read protects the hook against inspection by containers
(docs/how-to/start-up-hook.md). A ``pyvenv.cfg`` in the folder of the copy contains the folder of the
original. Python and cdigen read this file.
"""

from __future__ import annotations

import posixpath

from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

SETTINGS = "pyvenv.cfg"
# The size limit of an interpreter in bytes. The interpreter of Debian 13 has 7 MB.
MAX_SIZE = 64 << 20


def standard_library(host: Root | None, python: str) -> tuple[str, ...]:
    """Return the folder of PYTHON's standard library on HOST and the path of its os.py; empty if missing."""
    if host is None or not host.exists(python):
        return ()
    real = host.resolve(python)
    prefix, name = posixpath.dirname(posixpath.dirname(real)), posixpath.basename(real)
    folder = f"{prefix}/lib/{name}"
    return (folder, f"{folder}/os.py") if host.exists(f"{folder}/os.py") else ()


def settings_of(python: str) -> str:
    """Return the path of the ``pyvenv.cfg`` for PYTHON; this file exists if PYTHON is a copy."""
    return f"{posixpath.dirname(python)}/{SETTINGS}"


def copied_from(host: Root | None, python: str) -> str:
    """Return the original interpreter if PYTHON is a copy; "" if it is not a copy. Never raises."""
    try:
        text = host.read(settings_of(python), limit=4096).decode("utf-8", "replace") if host else ""
    except OSError:
        return ""
    rows = (line.partition("=") for line in text.splitlines())
    home = next((value.strip() for key, _, value in rows if key.strip() == "home"), "")
    return f"{home.rstrip('/')}/{posixpath.basename(python)}" if home.startswith("/") else ""


def outdated(host: Root, python: str, original: str) -> str:
    """Return the reason why PYTHON is no copy of ORIGINAL; "" for a copy or an unreadable PYTHON."""
    try:
        present = host.read(original, limit=MAX_SIZE)
    except OSError:
        return f"{shown(original)} does not exist"
    try:
        same = host.read(python, limit=MAX_SIZE) == present
    except PermissionError:
        return ""
    except OSError:
        return f"{shown(python)} does not exist"
    return "" if same else f"{shown(original)} has changed since the copy"
