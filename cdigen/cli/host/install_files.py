"""Install the files of cdigen that are outside its Python package, and remove them.

The script etc/install has the list of the files and their folders. 'make install' runs the same script. A
wheel contains the script in the package.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import contextmanager, suppress

import cdigen
from cdigen.cli.shared.own_package import COMMAND
from cdigen.host.root import reason, shown
from cdigen.model.errors import CdigenError, ConfigError, StoreError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

PACKAGE = os.path.dirname(cdigen.__file__)
# In a wheel, etc is inside the package. In a checkout, etc is next to the package (pyproject.toml,
# force-include).
IN_A_WHEEL = f"{PACKAGE}/etc"
ETC = IN_A_WHEEL if os.path.isdir(IN_A_WHEEL) else f"{os.path.dirname(PACKAGE)}/etc"
# systemd does not load units from other prefixes (systemd.unit(5), "Unit File Load Path").
_WITH_UNITS = ("/usr", "/usr/local")
# The arguments of etc/install.
_INSTALL, _REMOVE = "install-service", "remove-service"
_OPENRC = "/sbin/openrc-run"
_FOLDERS = ("LIBDIR", "LIBEXECDIR", "MANDIR", "DATADIR", "ZSHDIR", "UNITDIR", "UDEVRULESDIR", "TMPFILESDIR")
# The command and its child processes hold the lock during an installation or a removal. If the command is
# killed, the child processes continue and keep the lock.
_LOCK = "/run/cdigen-install.lock"
# An installation takes 2 s. A removal waits up to 10 s for each of four services to stop.
_LOCK_TIMEOUT_S = 60.0
_POLL_S = 0.1
# The header of a bytecode file: magic number, flags and hash of the source (PEP 552). The rest of the file
# can differ between two compilations.
_BYTECODE_HEADER = 16
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen
class InstallLayout:
    """The folders of an installation.

    The files are installed below ``prefix`` in the tree ``destdir``. ``destdir`` is empty for this host. The
    interpreter ``hook_python`` runs the hook.
    """

    prefix: str
    destdir: str
    hook_python: str

    @property
    def hook(self) -> str:
        """The path of the hook on the host."""
        return f"{self.prefix}/libexec/cdigen/cdigen-hook"

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders on the host that contain the installed files."""
        variables = _variables(self)
        return (os.path.dirname(self.hook), *(variables[name] for name in _FOLDERS))

    @property
    def record(self) -> str:
        """The path of the list of the installed files."""
        return f"{self.destdir}{self.prefix}/libexec/cdigen/installed"

    @property
    def unfinished(self) -> str:
        """The remaining step of an unfinished installation: ``start``, ``restart`` or an empty text."""
        try:
            with open(self._marker, encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def finish(self) -> None:
        """Remove the marker of an unfinished installation, so that the next run repeats no step."""
        with suppress(FileNotFoundError):
            os.unlink(self._marker)

    @property
    def _marker(self) -> str:
        return f"{os.path.dirname(self.record)}/unfinished"

    @property
    def lists(self) -> tuple[str, ...]:
        """The paths of the record and the marker on the host. The installation writes both files."""
        return tuple(path[len(self.destdir) :] for path in (self.record, self._marker))

    @property
    def is_installed(self) -> bool:
        """Whether the host has an installation that can be removed."""
        return os.path.exists(self.record)


@frozen
class InstalledFile:
    """The path of a file on the host, and the result: written, changed, unchanged or removed."""

    path: str
    result: str


@contextmanager
def installation_lock() -> Iterator[tuple[int, ...]]:
    """Hold the lock of installations on this host; yield the descriptor of the lock file.

    The programs of the installation inherit the descriptor. Raises StoreError if the lock file cannot be
    opened, or if another installation holds the lock for more than 60 s.
    """
    try:
        fd = _acquire_lock()
    except OSError as error:
        raise StoreError(f"{_LOCK}: {reason(error)}") from error
    try:
        yield (fd,)
    finally:
        with suppress(OSError):
            os.unlink(_LOCK)
        os.close(fd)


def _acquire_lock() -> int:
    import fcntl  # noqa: PLC0415 - only here

    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        fd = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # If the previous holder has removed this file, the lock does not protect the installation.
            is_held = os.fstat(fd).st_nlink > 0
        except BlockingIOError:
            is_held = False
        if is_held:
            return fd
        os.close(fd)
        if time.monotonic() > deadline:
            raise StoreError(
                f"{_LOCK}: another installation or removal of cdigen is running",
                hint="wait for its end, then run the command again",
            )
        time.sleep(_POLL_S)


def install_files(layout: InstallLayout, lock: tuple[int, ...] = ()) -> tuple[InstalledFile, ...]:
    """Install all files, remove old files that this version does not have, and return the result per file.

    LOCK is the result of ``installation_lock``. The script etc/install checks the host before it changes a
    file. If the script finds a problem, the function raises ConfigError with the first problem.
    """
    before = _states(layout)
    _run(_INSTALL, layout, lock)
    return _compared(before, _states(layout))


def remove_files(
    layout: InstallLayout, lock: tuple[int, ...] = ()
) -> tuple[tuple[InstalledFile, ...], tuple[str, ...]]:
    """Stop the services, withdraw the specs, and remove the state, the views and the files.

    LOCK is the result of ``installation_lock``. Returns two tuples: the result for each file, and the specs
    of other programs that name the hook. These specs are not removed.
    """
    before = _states(layout)
    done = _run(_REMOVE, layout, lock)
    after = {path: state for path, state in before.items() if os.path.lexists(f"{layout.destdir}{path}")}
    return _compared(before, after), tuple(done.stdout.splitlines())


def _compared(before: dict[str, object], after: dict[str, object]) -> tuple[InstalledFile, ...]:
    def result(path: str) -> str:
        if path not in after:
            return "removed"
        if path not in before:
            return "written"
        return "unchanged" if before[path] == after[path] else "changed"

    return tuple(InstalledFile(path=path, result=result(path)) for path in sorted({*before, *after}))


def _run(verb: str, layout: InstallLayout, lock: tuple[int, ...]) -> CompletedProcess[str]:
    import subprocess  # noqa: PLC0415 - the import takes 8 ms; only an installation needs it

    done = subprocess.run(  # noqa: S603 - a script of this package
        ["/bin/sh", f"{ETC}/install", verb],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        cwd="/",
        env={"LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **_variables(layout)},
        pass_fds=lock,
    )
    *notes, last = done.stderr.strip().splitlines() or [""]
    if done.returncode == 0:
        notes.append(last)
    for note in filter(None, notes):
        sys.stderr.write(f"{shown(note)}\n")
    if done.returncode != 0:
        message = shown(last.removeprefix("etc/install: ")) or f"etc/install ended with {done.returncode}"
        if done.returncode == 2:
            raise ConfigError(message)
        raise CdigenError(message, hint="run the command again; it replaces the files of this run")
    return done


def _variables(layout: InstallLayout) -> dict[str, str]:
    """Return the variables that etc/install reads; the Makefile exports the same variables."""
    prefix, destdir = layout.prefix, layout.destdir
    data = f"{prefix}/share"
    has_vendor_completions = os.path.isdir(f"{destdir}{data}/zsh/vendor-completions")
    below = f"{prefix}/lib" if prefix in _WITH_UNITS else "/etc"
    return {
        "DESTDIR": destdir,
        "ETC": ETC,
        "PACKAGE": PACKAGE,
        "COMMAND": COMMAND,
        "HOST_PYTHON": sys.executable,
        "HOOK_PYTHON": layout.hook_python,
        "INIT": "systemd openrc" if os.path.exists(f"{destdir}{_OPENRC}") else "systemd",
        "BINDIR": f"{prefix}/bin",
        "LIBDIR": f"{prefix}/lib",
        "LIBEXECDIR": f"{prefix}/libexec",
        "DATADIR": data,
        "MANDIR": f"{data}/man",
        # Debian's zsh does not search site-functions below /usr; other distributions lack vendor-completions.
        "ZSHDIR": f"{data}/zsh/{'vendor-completions' if has_vendor_completions else 'site-functions'}",
        "SYSCONFDIR": "/etc",
        "UNITDIR": f"{below}/systemd/system",
        "UDEVRULESDIR": f"{below}/udev/rules.d",
        "TMPFILESDIR": f"{below}/tmpfiles.d",  # noqa: S108 - tmpfiles.d(5)
    }


def _states(layout: InstallLayout) -> dict[str, object]:
    """Return the mode, owner and content of each file of the record, by its path."""
    return {path: _state(f"{layout.destdir}{path}") for path in _recorded(layout)}


def _recorded(layout: InstallLayout) -> Iterator[str]:
    """Yield the paths in the record that exist. etc/install rejects a record with foreign paths."""
    content = _content(layout.record, -1) or b""
    for row in content.decode("utf-8", "replace").splitlines():
        kind, _, path = row.partition(" ")
        if kind == "f" and os.path.lexists(f"{layout.destdir}{path}"):
            yield path
        elif kind == "t" and path == os.path.dirname(layout.hook):
            for top, _, names in os.walk(f"{layout.destdir}{path}"):
                found = (os.path.join(top, name)[len(layout.destdir) :] for name in names)
                yield from (file for file in found if file not in layout.lists)


def _state(path: str) -> object:
    """Return the mode, owner and content of PATH, or the target of a link; None if PATH does not exist."""
    try:
        status = os.lstat(path)
        target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
    except OSError:
        return None
    content = _content(path, _BYTECODE_HEADER if path.endswith(".pyc") else -1)
    return status.st_mode, status.st_uid, status.st_gid, target, content


def _content(path: str, size: int) -> bytes | None:
    """Return the first SIZE bytes of PATH; None if PATH is not a readable regular file.

    A SIZE of -1 means all bytes.
    """
    try:
        with open(os.open(path, _REGULAR), "rb") as file:
            return file.read(size) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None
