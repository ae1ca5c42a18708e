"""Find the state directory of a user without root's rights: ``own_state_dir``."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def own_state_dir(configured: str, spec_dir: str, environment: Mapping[str, str]) -> str:
    """Return CONFIGURED, the host's state directory, or the user's own where only SPEC_DIR may be written.

    That is ``cdigen`` in XDG_STATE_HOME, by default ~/.local/state (XDG Base Directory Specification 0.8).
    """
    if os.geteuid() == 0 or _may_write(configured) or not _may_write(os.path.abspath(spec_dir)):
        return configured
    given, home = environment.get("XDG_STATE_HOME", ""), _home(environment)
    if given.startswith("/"):
        return f"{given}/cdigen"
    return f"{home}/.local/state/cdigen" if home.startswith("/") else configured


def _home(environment: Mapping[str, str]) -> str:
    import pwd  # noqa: PLC0415 - users alone come here

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir.rstrip("/")
    except KeyError:
        # A container that gives its processes any number.
        return environment.get("HOME", "").rstrip("/")


def _may_write(path: str) -> bool:
    """Return whether the folder PATH may be written to, or made."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)
