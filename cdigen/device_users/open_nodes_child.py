"""Print the processes that have device nodes open, as a single line of JSON.

open_nodes starts this program as ``python -I -S THIS PROC NUMBERS...``. PROC is the folder of the processes
(``/proc``). NUMBERS are the numbers of the nodes (``195:0``). A file system that hangs may block this
program.
"""

from __future__ import annotations

import json
import os
import sys

# Maximum number of pairs. Devices have fewer users, and the output stays below 100 kB.
_MOST = 4096


def main() -> None:
    """Print pairs of a process ID and a device number, and the number of processes that could not be read."""
    proc, *numbers = sys.argv[1:]
    processes = [name for name in os.listdir(proc) if name.isdigit()]
    # PROC is unreadable if it has no process, because this process is in PROC.
    requested, found, unread = set(numbers), set(), int(not processes)
    for name in processes:
        try:
            found |= {(int(name), number) for number in _open(f"{proc}/{name}/fd") & requested}
        except PermissionError:
            unread += 1
        except OSError:
            continue
    print(json.dumps({"open": sorted(found)[:_MOST], "unread": unread}))


def _open(folder: str) -> set[str]:
    """Return the device numbers of the descriptors in FOLDER that lead to files in a folder /dev."""
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
            # The file is in a user's file system, which may also refuse root. It is not a node of the host.
            continue
        found.add(f"{os.major(device)}:{os.minor(device)}")
    return found


if __name__ == "__main__":
    main()
