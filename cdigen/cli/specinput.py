"""Read the spec files that a command line names: files, folders, standard input; each read once.

Only regular files are opened. A FIFO or a device in a spec directory would hold a runtime for ever, and
us; what the shell hands over by descriptor (``-``, ``/dev/stdin``, ``/dev/fd/63``) is read as it comes.
"""

from __future__ import annotations

import os
import stat

from cdigen.cdi.reader import MAX_SIZE
from cdigen.host.root import reason
from cdigen.model.errors import ConfigError
from cdigen.runtimes.spec_directories import spec_names
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STANDARD_INPUT = "-"

_BY_DESCRIPTOR = ("/dev/fd/", "/proc/self/fd/")
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_PIECE = 1 << 20
_TOO_LARGE = f"is larger than {MAX_SIZE} bytes and is not judged"


@frozen
class SpecInput:
    """A file: its name as given, and its content; or the problem, and the rule it is told under.

    A folder without spec files is not a fault: it has a problem and no rule.
    """

    name: str
    data: bytes = b""
    rule: str = ""
    problem: str = ""


def read_inputs(names: Iterable[str]) -> Iterator[SpecInput]:
    """Yield what NAMES stand for, in their order; a folder stands for the files that runtimes load from it.

    Raises ConfigError where standard input is named twice.
    """
    listed = tuple(names)
    if listed.count(STANDARD_INPUT) > 1:
        raise ConfigError("standard input was named twice, and can be read once", hint="name '-' once")
    for name in listed:
        if name != STANDARD_INPUT and os.path.isdir(name):
            yield from _folder(name)
        else:
            yield _input(name)


def _folder(folder: str) -> Iterator[SpecInput]:
    try:
        names = spec_names(os.listdir(folder))
    except OSError as error:
        yield SpecInput(name=folder, rule="unreadable", problem=f"cannot be listed: {reason(error)}")
        return
    paths = [os.path.join(folder, name) for name in names]
    # Folders below are passed over by the loaders; a link to a folder is a file that cannot be read.
    files = [path for path in paths if os.path.islink(path) or not os.path.isdir(path)]
    for path in files:
        yield _input(path)
    if not files:
        yield SpecInput(name=folder, problem="holds no .json and no .yaml file")


class _UnreadError(Exception):
    """Says that a file is not read: the rule, and why."""


def _input(name: str) -> SpecInput:
    try:
        return SpecInput(name=name, data=_content(name))
    except _UnreadError as error:
        rule, problem = error.args
    except OSError as error:
        rule, problem = "unreadable", f"cannot be read: {reason(error)}"
    return SpecInput(name=name, rule=rule, problem=problem)


def _content(name: str) -> bytes:
    if name == STANDARD_INPUT:
        return _read(0)
    is_ours = name == "/dev/stdin" or name.startswith(_BY_DESCRIPTOR)
    _refuse(os.stat(name), is_ours=is_ours)
    # A pipe that we were given may still have to be written; anything else may turn into one until here.
    descriptor = os.open(name, _READ_FLAGS & ~os.O_NONBLOCK if is_ours else _READ_FLAGS)
    try:
        _refuse(os.fstat(descriptor), is_ours=is_ours)
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _refuse(status: os.stat_result, *, is_ours: bool) -> None:
    if not stat.S_ISREG(status.st_mode) and not is_ours:
        raise _UnreadError("unreadable", f"is not a regular file but {_kind(status.st_mode)}")
    if status.st_size > MAX_SIZE:
        raise _UnreadError("too-large", _TOO_LARGE)


def _read(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(descriptor, _PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_SIZE:
            raise _UnreadError("too-large", _TOO_LARGE)
    return b"".join(pieces)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO: a runtime that reads it waits until somebody writes",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
