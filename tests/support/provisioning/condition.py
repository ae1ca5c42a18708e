"""The condition of a part: whether it is as its recipe made it.

`record` writes a stamp: the recipe's digest, and a line for each file, link and folder of the part. `fault`
compares the part with its stamp. A line has the mode; for a file also size and modification time, for a
link its target. So `fault` finds a tree that was half deleted, a folder that was emptied, an archive that
was cut off and a file that was written into through a hard link. It reads no contents: `--check` runs at
the start of each test run, and lstat of all 159,000 entries costs 1.1 s of a processor, where reading 4.5
GB takes a minute. Times of folders are left out, since a file that is made there and removed again does no
harm; so are the lock files of podman's store, which podman writes into.
"""

import os
import stat
from pathlib import Path

from support.own_trees import UnsafePathError
from support.provisioning.parts import Part, digest

# What a run keeps in the cache beside the parts.
OWN_FOLDERS = ("logs", "stamps")
SHOWN = 3


def require_no_links(cache: Path, parts: tuple[Part, ...]) -> None:
    """Raise UnsafePathError if a part, or a folder of the cache itself, is a symbolic link.

    A recipe or a test that replaces something in such a part would do so in another cache. The path of CACHE
    itself may have links.
    """
    for name in (*OWN_FOLDERS, *(part.name for part in parts)):
        if (cache / name).is_symlink():
            target = os.readlink(cache / name)
            raise UnsafePathError(
                f"part {name} of the cache {cache} is a symbolic link to {target}: remove it"
            )


def record(cache: Path, part: Part) -> None:
    """Write the stamp of a part that has just been made."""
    stamp = cache / "stamps" / part.name
    new = stamp.with_name(f"{part.name}.new")
    text = "\n".join((digest(part), *entries(cache / part.name)))
    new.write_bytes(text.encode("utf-8", "surrogateescape"))
    new.replace(stamp)


def fault(cache: Path, part: Part) -> str:
    """Return why a part has to be made, such as "missing" or "damaged: FILE ..."; empty if it need not."""
    if not os.path.lexists(cache / part.name):
        return "missing"
    try:
        text = (cache / "stamps" / part.name).read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return "not completed"
    recipe, *recorded = text.split("\n")
    if recipe != digest(part):
        return "recipe changed"
    found = entries(cache / part.name)
    return "" if found == recorded else f"damaged: {_difference(recorded, found)}"


def entries(top: Path) -> list[str]:
    """Describe a file or all of a tree, a line each, sorted by name within each folder."""
    lines: list[str] = []
    pending = [(str(top), ".")]
    while pending:
        path, name = pending.pop()
        found = os.lstat(path)
        line = f"{found.st_mode:o}"
        if stat.S_ISDIR(found.st_mode):
            pending += [
                (f"{path}/{below}", f"{name}/{below}") for below in sorted(os.listdir(path), reverse=True)
            ]
        elif stat.S_ISLNK(found.st_mode):
            line += f" {os.readlink(path)}"
        elif stat.S_ISREG(found.st_mode) and not name.endswith(".lock"):
            line += f" {found.st_size} {found.st_mtime_ns}"
        lines.append(f"{name}\t{line}".replace("\n", "\\n"))
    return lines


def _difference(recorded: list[str], found: list[str]) -> str:
    before, now = (dict(line.split("\t", 1) for line in lines) for lines in (recorded, found))
    changes = [f"{name} is missing" for name in before if name not in now]
    changes += [f"{name} has changed" for name in before if now.get(name, before[name]) != before[name]]
    changes += [f"{name} is new" for name in now if name not in before]
    more = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return ", ".join(changes[:SHOWN]) + more
