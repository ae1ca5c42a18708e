"""The processes of this machine: root's daemons, and the namespaces of containers."""

from __future__ import annotations

import os
import posixpath

from cdigen.runtimes.units import Command
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

# The maximum number of bytes that are read of a command line. Linux permits longer command lines, but the
# command lines of root's daemons are shorter.
_MAX_LINE = 1 << 17
_SERVICE = ".service"


@frozen
class HostProcess:
    """A process: its ``name`` (proc(5), comm) and its start time in seconds since 1970.

    ``line`` is the command line; ``line.file`` is the program. ``program`` is the path of the binary, and
    ``unit`` is the systemd service. Both are empty if unknown.
    """

    pid: int
    name: str
    began_s: float
    line: Command = Command()
    program: str = ""
    unit: str = ""


def roots_processes(names: Container[str]) -> tuple[HostProcess, ...]:
    """Return root's processes with one of NAMES outside of containers, with the oldest process first.

    Processes of other users are omitted, because any user can give a process any name.
    """
    found = (_process(pid, names) for pid in os.listdir("/proc") if pid.isdigit())
    return tuple(sorted((one for one in found if one), key=lambda one: (one.began_s, one.pid)))


def container_namespaces() -> frozenset[tuple[str, ...]]:
    """Return the namespaces of processes whose user namespace differs from cdigen's and maps several users.

    Each item has the user, PID and mount namespace, for example ``user:[4026531837]`` (namespaces(7)).
    A user namespace with a single user is ignored, because browsers create it for their sandboxes. Processes
    with unreadable namespaces are also ignored.
    """
    own = _namespaces("self")
    found = (_namespaces(pid) for pid in os.listdir("/proc") if pid.isdigit() and _has_several_users(pid))
    return frozenset(each for each in found if each and own and each[0] != own[0])


def _namespaces(pid: str) -> tuple[str, ...]:
    try:
        return tuple(os.readlink(f"/proc/{pid}/ns/{name}") for name in ("user", "pid", "mnt"))
    except OSError:
        return ()


def _has_several_users(pid: str) -> bool:
    """Return whether the user namespace of the process PID maps more than one user ID."""
    try:
        rows = [line.split() for line in _read(pid, "uid_map", 8192).splitlines()]
    except OSError:
        return False
    return sum(int(row[2]) for row in rows) > 1


def are_hidden() -> bool:
    """Return whether the present user cannot list processes of root (proc(5), hidepid)."""
    return not os.path.exists("/proc/1/stat")


def _process(pid: str, names: Container[str]) -> HostProcess | None:
    try:
        text = _read(pid, "stat", 4096)
        # Field 2 is the name in brackets. Field 22 is the start time in ticks since the boot (proc(5)).
        name, _, rest = text.partition(b"(")[2].rpartition(b")")
        shown = name.decode("utf-8", "replace")
        if shown not in names or not _is_roots(pid):
            return None
        began_s = _boot() + int(rest.split()[19]) / os.sysconf("SC_CLK_TCK")
        words = _read(pid, "cmdline", _MAX_LINE).decode("utf-8", "replace").split("\0")[:-1]
    except (OSError, IndexError, ValueError):
        return None
    program = _program(pid, words[0] if words else "")
    line = Command(words=tuple(words[1:]), file=program or shown)
    unit = next(_units(pid), "")
    return HostProcess(pid=int(pid), name=shown, began_s=began_s, line=line, program=program, unit=unit)


def _read(pid: str, name: str, limit: int) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(limit)


def _is_roots(pid: str) -> bool:
    """Return whether the process PID runs as root in this PID namespace (proc(5), status).

    The owner of the process folder in /proc is not sufficient, because root owns the folders of all
    undumpable processes.
    """
    rows = dict(line.split(b":", 1) for line in _read(pid, "status", 8192).splitlines() if b":" in line)
    users, numbers = rows.get(b"Uid", b"").split(), rows.get(b"NSpid", pid.encode()).split()
    return users[:3] == [b"0"] * 3 and len(numbers) == 1


def _program(pid: str, called: str) -> str:
    """Return the path of the binary of the process PID; empty if unknown.

    CALLED is the program in the command line. If CALLED is a path of the same binary, the result is CALLED. A
    binary with several names, such as hyperkube, thus has the name with which it was started.
    """
    exe = f"/proc/{pid}/exe"
    try:
        paths = (called if called.startswith("/") else "", os.readlink(exe))
    except OSError:
        return ""
    return next((path for path in paths if path and _is_same(path, exe)), "")


def _is_same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):
        return False


def _units(pid: str) -> Iterator[str]:
    """Yield the services whose cgroups contain the process PID (cgroups(7))."""
    try:
        lines = _read(pid, "cgroup", 1 << 16).decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        for part in reversed(posixpath.normpath(line.rpartition(":")[2]).split("/")):
            if part.endswith(_SERVICE) and part.isprintable():
                yield part


def _boot() -> float:
    try:
        with open("/proc/stat", "rb") as file:
            return float(file.read(1 << 20).partition(b"btime ")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return 0.0
