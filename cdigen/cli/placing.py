"""Put what belongs to cdigen's code and lies elsewhere onto the host, and take it away.

What goes where is known to etc/install alone, which 'make install' runs as well; a wheel brings it in the
package.
"""

from __future__ import annotations

import os
import sys
import sysconfig

from cdigen.host.root import reason, shown
from cdigen.host.trust import untrusted
from cdigen.model.errors import CdigenError, ConfigError, StoreError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# In a wheel it lies inside the package, in a checkout beside it (pyproject.toml, force-include).
_IN_A_WHEEL = f"{PACKAGE}/etc"
ETC = _IN_A_WHEEL if os.path.isdir(_IN_A_WHEEL) else f"{os.path.dirname(PACKAGE)}/etc"
COMMAND = f"{sysconfig.get_path('scripts')}/cdigen"
# Below others systemd looks for no units (systemd.unit(5), "Unit File Load Path").
_WITH_UNITS = ("/usr", "/usr/local")
# What units with ProtectHome= do not see (systemd.exec(5)).
_HOMES = ("/home/", "/root/", "/run/user/")
# As a plain pipx of root does not: its folders are /root's.
_FOR_ALL = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install FILE.whl"
# What etc/install is told.
_PUT, _TAKE_AWAY = "install-service", "remove-service"
_OPENRC = "/sbin/openrc-run"
# Of a file with byte code: its magic number, flags and the hash of its source (PEP 552). What follows need
# not be the same twice.
_BYTECODE_HEADER = 16


@frozen
class Placement:
    """Where everything goes: below ``prefix``, all of that below ``destdir``, which is empty for this host.

    ``hook_python`` runs the start-up hook.
    """

    prefix: str
    destdir: str
    hook_python: str

    @property
    def hook(self) -> str:
        """The start-up hook, as the host names it."""
        return f"{self.prefix}/libexec/cdigen/cdigen-hook"

    @property
    def record(self) -> str:
        """The list of what was put where."""
        return f"{self.destdir}{self.prefix}/libexec/cdigen/installed"

    @property
    def is_there(self) -> bool:
        """Whether there is anything that could be taken away."""
        return os.path.exists(self.record)


@frozen
class PlacedFile:
    """A file, as the host names it, and what became of it: written, changed, unchanged or removed."""

    path: str
    result: str


def require_installed() -> None:
    """Make sure that root's services can run the code that runs now; raises ConfigError.

    They have to find it, and nobody else may change it.
    """
    if ETC != _IN_A_WHEEL:
        raise ConfigError(
            f"this cdigen runs from its sources in {shown(os.path.dirname(PACKAGE))}",
            hint="'make install' there puts all of it onto the host",
        )
    if not os.access(COMMAND, os.X_OK):
        raise ConfigError(
            f"{shown(COMMAND)}, which the services would start, is not there",
            hint="install cdigen with pipx, or with pip into a virtual environment",
        )
    hint = f"install it for the whole host: {_FOR_ALL}"
    for path in (COMMAND, sys.executable, sys.prefix, sys.base_prefix, PACKAGE):
        at_home = next((way for way in (path, os.path.realpath(path)) if way.startswith(_HOMES)), "")
        if at_home:
            raise ConfigError(
                f"this cdigen needs {shown(at_home)}, and its services see no homes (ProtectHome=)", hint=hint
            )
    for path in (COMMAND, sys.executable, f"{PACKAGE}/__init__.py", f"{ETC}/install"):
        if problem := untrusted(path):
            raise ConfigError(f"root's services cannot run this cdigen: {problem}", hint=hint)


def require_writable(placement: Placement) -> None:
    """Make sure that files can be made below the prefix; raises StoreError."""
    for name in ("lib", "libexec", "share"):
        place = f"{placement.destdir}{placement.prefix}/{name}"
        while not os.path.isdir(place):
            place = os.path.dirname(place)
        try:
            is_read_only = bool(os.statvfs(place).f_flag & os.ST_RDONLY)
        except OSError as error:
            raise StoreError(f"{shown(place)} cannot be examined: {reason(error)}") from error
        if is_read_only:
            elsewhere = "/usr/local" if placement.prefix == "/usr" else "/etc/cdigen/installed"
            raise StoreError(
                f"{shown(place)} is read-only, so nothing was installed",
                hint=f"'cdigen install-service --prefix {elsewhere}' puts it there",
            )


def put(placement: Placement) -> tuple[PlacedFile, ...]:
    """Put everything there, and remove what an earlier version had put and this one does not.

    Raises ConfigError with the first thing that etc/install refuses, before anything is done.
    """
    before = _states(placement)
    _install(_PUT, placement)
    return _compared(before, _states(placement))


def take_away(placement: Placement) -> tuple[tuple[PlacedFile, ...], tuple[str, ...]]:
    """Stop the services, withdraw the specs that name the hook, remove the files.

    Returns what became of the files, and the specs that name the hook and stay, because others wrote them.
    """
    before = _states(placement)
    done = _install(_TAKE_AWAY, placement)
    after = {path: state for path, state in before.items() if os.path.lexists(f"{placement.destdir}{path}")}
    return _compared(before, after), tuple(done.stdout.splitlines())


def _compared(before: dict[str, object], after: dict[str, object]) -> tuple[PlacedFile, ...]:
    def result(path: str) -> str:
        if path not in after:
            return "removed"
        if path not in before:
            return "written"
        return "unchanged" if before[path] == after[path] else "changed"

    return tuple(PlacedFile(path=path, result=result(path)) for path in sorted({*before, *after}))


def _install(verb: str, placement: Placement) -> CompletedProcess[str]:
    import subprocess  # noqa: PLC0415 - 8 ms, and only where something is to be done

    done = subprocess.run(  # noqa: S603 - a script of this package
        ["/bin/sh", f"{ETC}/install", verb],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        cwd="/",
        env={"LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **_variables(placement)},
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
        raise CdigenError(message, hint="what was put there until then is replaced by the next run")
    return done


def _variables(placement: Placement) -> dict[str, str]:
    """Return what the Makefile would export."""
    prefix, destdir = placement.prefix, placement.destdir
    data = f"{prefix}/share"
    has_vendor_completions = os.path.isdir(f"{destdir}{data}/zsh/vendor-completions")
    below = f"{prefix}/lib" if prefix in _WITH_UNITS else "/etc"
    return {
        "DESTDIR": destdir,
        "ETC": ETC,
        "PACKAGE": PACKAGE,
        "COMMAND": COMMAND,
        "HOST_PYTHON": sys.executable,
        "HOOK_PYTHON": placement.hook_python,
        "INIT": "systemd openrc" if os.path.exists(f"{destdir}{_OPENRC}") else "systemd",
        "BINDIR": f"{prefix}/bin",
        "LIBDIR": f"{prefix}/lib",
        "LIBEXECDIR": f"{prefix}/libexec",
        "DATADIR": data,
        "MANDIR": f"{data}/man",
        # Debian's zsh does not look into site-functions below /usr, others' have no vendor-completions.
        "ZSHDIR": f"{data}/zsh/{'vendor-completions' if has_vendor_completions else 'site-functions'}",
        "SYSCONFDIR": "/etc",
        "UNITDIR": f"{below}/systemd/system",
        "TMPFILESDIR": f"{below}/tmpfiles.d",  # noqa: S108 - tmpfiles.d(5)
    }


def _states(placement: Placement) -> dict[str, object]:
    """Return the files that the record names, each with its mode, its owner and what it holds."""
    return {path: _state(f"{placement.destdir}{path}") for path in _recorded(placement)}


def _recorded(placement: Placement) -> Iterator[str]:
    try:
        with open(placement.record, encoding="utf-8") as file:
            rows = [line.rstrip("\n").split(" ", 1) for line in file]
    except FileNotFoundError:
        return
    for what, path in rows:
        if what == "f" and os.path.lexists(f"{placement.destdir}{path}"):
            yield path
        elif what == "t":
            for top, _, names in os.walk(f"{placement.destdir}{path}"):
                found = (os.path.join(top, name)[len(placement.destdir) :] for name in names)
                yield from (file for file in found if file != placement.record[len(placement.destdir) :])


def _state(path: str) -> object:
    status = os.lstat(path)
    with open(path, "rb") as file:
        content = file.read(_BYTECODE_HEADER if path.endswith(".pyc") else -1)
    return status.st_mode, status.st_uid, status.st_gid, content
