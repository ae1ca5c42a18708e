"""Checks whether a part still has the files that its recipe made.

`record` writes a stamp with the recipe's digest and a line for each file, link and folder of the part. A line
has the mode, for a file also size and modification time, for a link its target. `fault` compares the part
with its stamp. It finds a partly deleted tree, an emptied folder, a truncated archive and a file that was
changed through a hard link.

`fault` reads no contents, because `--check` runs at the start of each test run: reading 4.5 GB takes a
minute, and lstat of all 159,000 entries takes 1.1 s of CPU time. A line of a folder has no time, because a
temporary file in the folder does no harm. A line of a lock file of podman has no size and time, because
podman writes into it.
"""

import os
import stat
from pathlib import Path

from support.own_trees import UnsafePathError
from support.provisioning.parts import Part, digest

# The folders of the cache that are not parts.
OWN_FOLDERS = ("logs", "stamps")
SHOWN = 3


def require_no_links(cache: Path, parts: tuple[Part, ...]) -> None:
    """Raise UnsafePathError if a part, or a folder of the cache itself, is a symbolic link.

    A recipe or a test that replaces a file in such a part would replace the file of another cache. The path
    of CACHE itself may have links.
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
    """Return the reason to make a part, such as "missing" or "damaged: FILE ..."; "" if it is complete."""
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
    """Return a line for each entry of the file or tree TOP, sorted by name within each folder."""
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
