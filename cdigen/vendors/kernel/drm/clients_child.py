"""Program that reads the fdinfo of open files of DRM devices, and prints one line of JSON.

``clients`` starts the program as ``python -I -S THIS PROC NUMBERS...``. PROC is the folder of processes.
NUMBERS are the numbers of the devices' nodes (``226:128``). A driver may hang during a read.
"""

from __future__ import annotations

import json
import os
import sys

_LIMIT = 1 << 14
# The maximum number of files in the output. Devices have fewer users. With this limit, the output is usually
# smaller than a megabyte.
_MOST = 256


def main() -> None:
    """Print the fdinfo of the found files, and the number of processes that could not be read.

    Each fdinfo is printed as a pair of the process id and the text.
    """
    proc, *numbers = sys.argv[1:]
    files: list[tuple[int, str]] = []
    processes = [name for name in os.listdir(proc) if name.isdigit()]
    # If the list is empty, the folder is not from a running system. Else it has at least this process.
    unread = int(not processes)
    for name in processes:
        try:
            files += _files(f"{proc}/{name}", int(name), set(numbers))
        except PermissionError:
            unread += 1
        except OSError:
            continue
    print(json.dumps({"files": files[:_MOST], "unread": unread + (len(files) > _MOST)}))


def _files(folder: str, pid: int, numbers: set[str]) -> list[tuple[int, str]]:
    found = []
    for number in os.listdir(f"{folder}/fd"):
        try:
            # The entry of an open file is a link to a path below the root of that process. The program does
            # not call stat() for paths without /dev/, because stat() hangs for a file on an unreachable
            # server.
            file_of = f"{folder}/fd/{number}"
            if "/dev/" in os.readlink(file_of) and _numbers(file_of) in numbers:
                with open(f"{folder}/fdinfo/{number}", "rb") as file:
                    found.append((pid, file.read(_LIMIT).decode("utf-8", "replace")))
        except FileNotFoundError:
            continue
    return found


def _numbers(path: str) -> str:
    device = os.stat(path).st_rdev
    return f"{os.major(device)}:{os.minor(device)}"


if __name__ == "__main__":
    main()
