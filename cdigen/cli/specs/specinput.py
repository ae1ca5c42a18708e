"""Read the spec files of a command line: files, folders and standard input.

cdigen opens only regular files, because a read of a FIFO or a device in a spec directory could block for
ever. Only a descriptor from the shell (``-``, ``/dev/stdin``, ``/dev/fd/63``) can have any file type.
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
_TOO_LARGE = f"is larger than {MAX_SIZE} bytes and is not checked"


@frozen
class SpecInput:
    """An input: its name on the command line, and its content or its problem.

    ``rule`` is the rule of the finding for the problem. For a folder without spec files, ``rule`` is empty,
    because such a folder is not a fault.
    """

    name: str
    data: bytes = b""
    rule: str = ""
    problem: str = ""


def read_inputs(names: Iterable[str]) -> Iterator[SpecInput]:
    """Yield the inputs of NAMES in order; for a folder, yield the files that runtimes load from it.

    Raises ConfigError if NAMES contain standard input twice.
    """
    listed = tuple(names)
    if listed.count(STANDARD_INPUT) > 1:
        raise ConfigError("standard input cannot be read twice", hint="use '-' once")
    for name in listed:
        if name != STANDARD_INPUT and os.path.isdir(name):
            yield from _read_folder(name)
        else:
            yield _read_input(name)


def _read_folder(folder: str) -> Iterator[SpecInput]:
    try:
        names = spec_names(os.listdir(folder))
    except OSError as error:
        yield SpecInput(name=folder, rule="unreadable", problem=f"cannot be listed: {reason(error)}")
        return
    paths = [os.path.join(folder, name) for name in names]
    # The loaders ignore folders in a spec directory. A link to a folder is a file that cannot be read.
    files = [path for path in paths if os.path.islink(path) or not os.path.isdir(path)]
    for path in files:
        yield _read_input(path)
    if not files:
        yield SpecInput(name=folder, problem="contains no .json or .yaml file")


class _UnreadError(Exception):
    """A file is not read. The arguments are the rule and the reason."""


def _read_input(name: str) -> SpecInput:
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
    is_descriptor = name == "/dev/stdin" or name.startswith(_BY_DESCRIPTOR)
    _refuse(os.stat(name), is_descriptor=is_descriptor)
    # A pipe from the shell may still be empty, and a non-blocking read would fail. Any other path is opened
    # without blocking, because the path may have become a FIFO since os.stat.
    descriptor = os.open(name, _READ_FLAGS & ~os.O_NONBLOCK if is_descriptor else _READ_FLAGS)
    try:
        _refuse(os.fstat(descriptor), is_descriptor=is_descriptor)
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _refuse(status: os.stat_result, *, is_descriptor: bool) -> None:
    if not stat.S_ISREG(status.st_mode) and not is_descriptor:
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
        stat.S_IFIFO: "a FIFO: a runtime that reads it blocks until a program writes to it",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
