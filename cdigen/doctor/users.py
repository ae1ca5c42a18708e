"""Find the user of a host whose rootless containers are examined: ``find_user``."""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.runtimes.users import User

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root

_LIMIT = 16 << 20


def find_user(host: Root, name: str, environment: Mapping[str, str]) -> User | None:
    """Return the user of HOST with the name or number NAME; None for root. ConfigError: there is none.

    ENVIRONMENT is what its XDG variables are read from: that of the user's own process, else an empty one.
    """
    if name in {"root", "0"}:
        return None
    found = _of_system(name) if host.is_this_machine else None
    found = found or _of_files(host, name)
    if found is None:
        raise ConfigError(
            f"--user {shown(name)!r}: the host has no such user", hint="name one of 'getent passwd'"
        )
    name, uid, gid, home, gids = found
    if uid == 0:
        return None
    return User(
        name=name,
        uid=uid,
        gid=gid,
        gids=tuple(dict.fromkeys((gid, *gids))),
        home=home,
        config_home=environment.get("XDG_CONFIG_HOME") or f"{home.rstrip('/')}/.config",
        runtime_dir=environment.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}",
    )


def _of_system(name: str) -> tuple[str, int, int, str, list[int]] | None:
    """Look NAME up in the system's user database, which may include LDAP and systemd-homed."""
    import os  # noqa: PLC0415 - for this alone
    import pwd  # noqa: PLC0415 - likewise

    try:
        row = pwd.getpwuid(int(name)) if name.isascii() and name.isdigit() else pwd.getpwnam(name)
        return row.pw_name, row.pw_uid, row.pw_gid, row.pw_dir, os.getgrouplist(row.pw_name, row.pw_gid)
    except (KeyError, OSError, OverflowError):
        return None


def _of_files(host: Root, name: str) -> tuple[str, int, int, str, list[int]] | None:
    for fields in _rows(host, "/etc/passwd", 6):
        if name in {fields[0], fields[2]} and fields[2].isdigit() and fields[3].isdigit():
            groups = [
                int(group[2])
                for group in _rows(host, "/etc/group", 4)
                if group[2].isdigit() and fields[0] in group[3].split(",")
            ]
            return fields[0], int(fields[2]), int(fields[3]), fields[5], groups
    return None


def _rows(host: Root, path: str, least: int) -> list[list[str]]:
    try:
        text = host.read(path, limit=_LIMIT).decode("utf-8", "replace")
    except OSError:
        return []
    rows = [line.split(":") for line in text.splitlines()]
    return [row for row in rows if len(row) >= least]
