"""Find who has device nodes open: one line of JSON.

Started by open_nodes as ``python -I -S THIS PROC NUMBERS...``: the folder of processes, and the numbers of
the nodes (``195:0``). A file system that hangs may hold it up.
"""

from __future__ import annotations

import json
import os
import sys

# More than there are of any devices' users; the answer stays below 100 kB.
_MOST = 4096


def main() -> None:
    """Print pairs of a process and a number, and how many processes could not be looked at."""
    proc, *numbers = sys.argv[1:]
    processes = [name for name in os.listdir(proc) if name.isdigit()]
    # Without any, whose are they? This is one itself.
    wanted, found, unread = set(numbers), set(), int(not processes)
    for name in processes:
        try:
            found |= {(int(name), number) for number in _open(f"{proc}/{name}/fd") & wanted}
        except PermissionError:
            unread += 1
        except OSError:
            continue
    print(json.dumps({"open": sorted(found)[:_MOST], "unread": unread}))


def _open(folder: str) -> set[str]:
    """Return the numbers of the files in FOLDER that look like device nodes; others are not looked at."""
    found = set()
    for descriptor in os.listdir(folder):
        path = f"{folder}/{descriptor}"
        try:
            if "/dev/" not in os.readlink(path):
                continue
        except FileNotFoundError:
            continue
        try:
            device = os.stat(path).st_rdev
        except OSError:
            # In a user's file system, which may refuse root as well: no node of the host's.
            continue
        found.add(f"{os.major(device)}:{os.minor(device)}")
    return found


if __name__ == "__main__":
    main()
