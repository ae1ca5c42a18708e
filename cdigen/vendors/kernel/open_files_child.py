"""Print the processes that have device nodes open, as a single line of JSON.

open_files starts this program as ``python -I -S THIS MODE PROC NUMBERS...``. PROC is the folder of the
processes (``/proc``). NUMBERS are the numbers of the nodes (``195:0``). If MODE is ``fdinfo``, the program
also reads the fdinfo of each open file, and the driver may query its device. A driver or a file system that
hangs may block this program.
"""

from __future__ import annotations

import json
import os
import sys

_LIMIT = 1 << 14
# MODE -> maximum number of pairs. Devices have fewer users, and the output is usually below a megabyte.
_MOST = {"numbers": 4096, "fdinfo": 256}


def main() -> None:
    """Print pairs of a process ID and a text, and the number of processes that could not be read.

    With the mode ``numbers``, each text is a device number. With ``fdinfo``, each text is the fdinfo of an
    open file, and omitted files have the same effect as an unreadable process.
    """
    mode, proc, *numbers = sys.argv[1:]
    processes = [name for name in os.listdir(proc) if name.isdigit()]
    # PROC is unreadable if it has no process, because this process is in PROC.
    found: list[tuple[int, str]] = []
    unread = int(not processes)
    for name in processes:
        try:
            opened = _open(f"{proc}/{name}/fd", set(numbers))
            texts = _fdinfo(f"{proc}/{name}/fdinfo", opened) if mode == "fdinfo" else set(opened.values())
            found += [(int(name), text) for text in texts]
        except PermissionError:
            unread += 1
        except OSError:
            continue
    unread += mode == "fdinfo" and len(found) > _MOST[mode]
    print(json.dumps({"found": found[: _MOST[mode]], "unread": unread}))


def _open(folder: str, numbers: set[str]) -> dict[str, str]:
    """Return the descriptors in FOLDER of device nodes with NUMBERS, each with its device number."""
    found = {}
    for descriptor in os.listdir(folder):
        path = f"{folder}/{descriptor}"
        try:
            # The entry of an open file is a link to a path below the root of that process. The program does
            # not call stat() for paths without /dev/, because stat() hangs for a file on an unreachable
            # server.
            if "/dev/" not in os.readlink(path):
                continue
        except FileNotFoundError:
            continue
        try:
            device = os.stat(path).st_rdev
        except OSError:
            # The file is in a user's file system, which may also refuse root. It is not a node of the host.
            continue
        number = f"{os.major(device)}:{os.minor(device)}"
        if number in numbers:
            found[descriptor] = number
    return found


def _fdinfo(folder: str, descriptors: dict[str, str]) -> list[str]:
    found = []
    for descriptor in descriptors:
        try:
            with open(f"{folder}/{descriptor}", "rb") as file:
                found.append(file.read(_LIMIT).decode("utf-8", "replace"))
        except FileNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
