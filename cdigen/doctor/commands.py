"""The commands of remedies: commands of cdigen, and commands that rename files or change modes.

No command renames a file over another file. No command renames a file in a folder that another user controls.
"""

from __future__ import annotations

import os
import shlex
from itertools import count

from cdigen.config import MAX_SIZE, read
from cdigen.doctor.remedy_safety import may_rename
from cdigen.doctor.result import Remedy
from cdigen.host.root import is_plain, shown
from cdigen.host.trust import untrusted
from cdigen.model.findings import errors
from cdigen.runtimes.settings.generated import generated_file
from cdigen.runtimes.targets import target_key
from cdigen.vendors.registry import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.doctor.context import Context
    from cdigen.doctor.examined import ExaminedRuntime
    from cdigen.runtimes.users import User


def run_cdigen(context: Context, *words: str, why: str, as_root: bool = True) -> Remedy:
    """Return the command ``cdigen WORDS``, with the doctor's own options that this command accepts."""
    discovers = words[0] == "generate"
    options = (*context.request.options, *(context.request.discovery_options if discovers else ()))
    return Remedy(argv=("cdigen", *words, *options), why=why, as_root=as_root)


def set_target(context: Context, releases: tuple[str, ...], kind: str) -> tuple[str, tuple[Remedy, ...]]:
    """Return an instruction or commands that set the key ``target``, so that RELEASES can read specs of KIND.

    The result is an instruction in two cases: a target exists already, or cdigen must not append to the
    configuration file. Otherwise, the instruction is empty.
    """
    settings, file = context.configuration, context.request.configuration_file
    own = [one for one in settings.profiles if one.device_class == kind.partition("/")[2] and one.target]
    present = own[0].target if own else settings.target
    line = target_key((*present, *releases))
    added = f"\n{line}\n"
    if present or not _may_add(file, added):
        where = f"the profile {own[0].name!r} in {shown(file)}" if own else shown(file)
        return f"; set '{line}' in {where}, then run 'cdigen generate --write'", ()
    why = "make cdigen write specs that the runtime reads"
    script = f'printf "\\n{line}\\n" >>{shlex.quote(file)}'
    folder = os.path.dirname(file)
    made = () if os.path.isdir(folder) else (file_command("create the folder", "mkdir", "-p", folder),)
    return "", (*made, Remedy(argv=("sh", "-c", script), why=why, as_root=needs_root(file)))


def _may_add(file: str, text: str) -> bool:
    """Return true if FILE is valid after TEXT is appended, and only root may change FILE."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_SIZE + 1)
    except FileNotFoundError:
        data = b""
    except OSError:
        return False
    _, found = read(data + text.encode(), file=file, vendors=NAMES)
    present = file
    while not os.path.lexists(present):
        present = os.path.dirname(present)
    return is_plain(file) and not errors(found) and not untrusted(present)


def write_specs(context: Context) -> tuple[Remedy, ...]:
    """Return the command that writes this host's specs, and renames foreign specs that prevent the write."""
    replacing = ("--replace-foreign",) if context.is_blocked else ()
    folder = context.request.spec_dirs[-1]
    command = ("generate", "--write", *replacing)
    return (run_cdigen(context, *command, why="write the specs again", as_root=needs_root(folder)),)


def configure(context: Context, runtime: ExaminedRuntime) -> tuple[Remedy, ...]:
    """Return the command that configures RUNTIME, and that restarts the runtime's daemon, if there is one.

    The result is empty if the configuration of the runtime belongs to another program, or is generated.
    """
    if runtime.is_foreign or generated_step(context, runtime):
        return ()
    if context.user is not None and runtime.settings.rootless and runtime.name == "docker":
        return _configure_rootless(context, context.user)
    restarting = ("--restart",) if context.is_live and context.request.restart(runtime.name) else ()
    why = f"configure {runtime.name} for CDI"
    return (run_cdigen(context, "configure", runtime.name, *restarting, why=why),)


def generated_step(context: Context, runtime: ExaminedRuntime) -> str:
    """Return the step that configures RUNTIME if its configuration file is generated, else ""."""
    found = generated_file(context.host, runtime.name, runtime.settings.edited_file)
    return f"{found.problem}: {found.step}" if found else ""


def _configure_rootless(context: Context, user: User) -> tuple[Remedy, ...]:
    """Return the commands that configure and restart the rootless Docker of USER."""
    own = run_cdigen(
        context, "configure", "docker", "--rootless", why="configure docker for CDI", as_root=False
    )
    why = "make docker read its configuration"
    if os.geteuid() == user.uid:
        return own, Remedy(argv=("systemctl", "--user", "restart", "docker"), why=why, as_root=False)
    # Root must not write to a folder of a user. With --root, the command is for the host itself.
    words = own.argv if context.is_live else ("cdigen", "configure", "docker", "--rootless")
    started = Remedy(argv=("runuser", "-u", user.name, "--", *words), why=own.why)
    service = ("systemctl", "--user", f"--machine={user.name}@", "restart", "docker")
    return started, Remedy(argv=service, why=why)


def restart(context: Context, name: str) -> tuple[Remedy, ...]:
    """Return the command that restarts the daemon of the runtime NAME; empty if there is no daemon."""
    argv = context.request.restart(name)
    return (Remedy(argv=argv, why=f"make {name} read its configuration"),) if argv else ()


def file_command(why: str, *argv: str) -> Remedy:
    """Return the command ARGV; its last word is a path on this machine, which the command changes."""
    return Remedy(argv=argv, why=why, as_root=needs_root(argv[-1]))


def needs_root(path: str) -> bool:
    """Return whether the present user needs root privileges to change PATH of this machine."""
    own = os.geteuid()
    while own and not os.path.lexists(path):
        path = os.path.dirname(path)
    return not own or os.lstat(path).st_uid != own


def free_path(context: Context, stem: str, ending: str) -> str:
    """Return the first unused path: STEM with ENDING, STEM-1 with ENDING, STEM-2 with ENDING, ..."""
    folder, _, name = stem.rpartition("/")
    used = set(context.host.names(folder or "/"))
    names = (f"{name}-{number}{ending}" if number else f"{name}{ending}" for number in count())
    return f"{folder}/{next(each for each in names if each not in used)}"


def move_aside(context: Context, *paths: str) -> tuple[Remedy, ...]:
    """Return the commands that give PATHS the ending ``.disabled``; empty if a path must not be renamed."""
    return rename(context, {path: free_path(context, path, ".disabled") for path in paths})


def rename(context: Context, targets: dict[str, str]) -> tuple[Remedy, ...]:
    """Return commands that rename each key of TARGETS to its value; empty if a key must not be renamed."""
    if not all(may_rename(context, path) for path in targets):
        return ()
    why = "runtimes ignore files with another ending"
    return tuple(
        file_command(why, "mv", context.outer(path), context.outer(target))
        for path, target in targets.items()
    )


def give_to_root(*paths: str) -> tuple[Remedy, ...]:
    """Return the commands that let only root change PATHS of this machine."""
    return (
        Remedy(argv=("chown", "root:root", *paths), why="make root the owner"),
        Remedy(argv=("chmod", "go-w", *paths), why="let only root write to it"),
    )


def open_to_all(context: Context, modes: dict[str, str]) -> tuple[Remedy, ...]:
    """Return the commands that add modes such as ``a+rx`` to paths of the host.

    MODES maps each path to its mode.
    """
    return tuple(
        file_command("let every user read it", "chmod", mode, context.outer(path))
        for path, mode in modes.items()
    )
