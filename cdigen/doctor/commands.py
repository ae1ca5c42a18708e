"""The commands that checks propose as remedies: cdigen's own, and those that move and open files.

A move never replaces another file, and nothing is moved out of a folder that another user controls.
"""

from __future__ import annotations

import os
from itertools import count

from cdigen.doctor.authority import may_rename
from cdigen.doctor.result import Remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.doctor.context import Context
    from cdigen.doctor.examined import ExaminedRuntime


def run_cdigen(context: Context, *words: str, why: str, as_root: bool = True) -> Remedy:
    """Return the command ``cdigen WORDS`` for this host."""
    return Remedy(argv=("cdigen", *words, *context.request.options), why=why, as_root=as_root)


def write_specs(context: Context, *words: str) -> tuple[Remedy, ...]:
    """Return the command that writes the specs of this host, moving aside what is in its way."""
    replacing = ("--replace-foreign",) if context.is_blocked else ()
    folder = context.request.spec_dirs[-1]
    command = ("generate", "--write", *replacing, *words)
    return (run_cdigen(context, *command, why="write the specs anew", as_root=needs_root(folder)),)


def configure(context: Context, runtime: ExaminedRuntime) -> tuple[Remedy, ...]:
    """Return the command that sets what RUNTIME needs, and restarts it if it has a daemon.

    Nothing where it is configured by files of another program.
    """
    if runtime.is_foreign:
        return ()
    restarting = ("--restart",) if context.is_live and context.request.restart(runtime.name) else ()
    why = f"set what {runtime.name} needs in its configuration"
    return (run_cdigen(context, "configure", runtime.name, *restarting, why=why),)


def restart(context: Context, name: str) -> tuple[Remedy, ...]:
    """Return the command that restarts the daemon of the runtime NAME; nothing where it has none."""
    argv = context.request.restart(name)
    return (Remedy(argv=argv, why=f"{name} reads its configuration anew"),) if argv else ()


def file_command(why: str, *argv: str) -> Remedy:
    """Return the command ARGV, whose last word is a path of this machine that it changes."""
    return Remedy(argv=argv, why=why, as_root=needs_root(argv[-1]))


def needs_root(path: str) -> bool:
    """Return whether whoever runs this needs root's rights to change PATH of this machine."""
    own = os.geteuid()
    while own and not os.path.lexists(path):
        path = os.path.dirname(path)
    return not own or os.lstat(path).st_uid != own


def free_path(context: Context, stem: str, ending: str) -> str:
    """Return STEM with ENDING, or STEM-1, STEM-2 and so on with ENDING: the first path that is free."""
    folder, _, name = stem.rpartition("/")
    taken = set(context.host.names(folder or "/"))
    names = (f"{name}-{number}{ending}" if number else f"{name}{ending}" for number in count())
    return f"{folder}/{next(each for each in names if each not in taken)}"


def move_aside(context: Context, *paths: str) -> tuple[Remedy, ...]:
    """Return the commands that rename PATHS to what no runtime loads; nothing unless all may be renamed."""
    return rename(context, {path: free_path(context, path, ".disabled") for path in paths})


def rename(context: Context, targets: dict[str, str]) -> tuple[Remedy, ...]:
    """Return the commands that rename the keys of TARGETS to its values; nothing unless all may be."""
    if not all(may_rename(context, path) for path in targets):
        return ()
    why = "no runtime loads what has another ending"
    return tuple(
        file_command(why, "mv", context.outer(path), context.outer(target))
        for path, target in targets.items()
    )


def give_to_root(*paths: str) -> tuple[Remedy, ...]:
    """Return the commands that let root alone change PATHS of this machine."""
    return (
        Remedy(argv=("chown", "root:root", *paths), why="nobody else owns it"),
        Remedy(argv=("chmod", "go-w", *paths), why="nobody else may write to it"),
    )


def open_to_all(context: Context, modes: dict[str, str]) -> tuple[Remedy, ...]:
    """Return the commands that add to each path of the host in MODES its mode, such as ``a+rx``."""
    return tuple(
        file_command("let everybody read it", "chmod", mode, context.outer(path))
        for path, mode in modes.items()
    )
