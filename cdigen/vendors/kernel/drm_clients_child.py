"""Read what the open files of DRM devices say of themselves: one line of JSON.

Started by drm_clients as ``python -I -S THIS PROC NUMBERS...``: the folder of processes, and the numbers of
the devices' nodes (``226:128``). A driver may hang in there.
"""

from __future__ import annotations

import json
import os
import sys

_LIMIT = 1 << 14
# More than there are of any devices' users; the answer stays below a megabyte.
_MOST = 256


def main() -> None:
    """Print the files, as pairs of process and text, and how many processes could not be looked at."""
    proc, *numbers = sys.argv[1:]
    files: list[tuple[int, str]] = []
    processes = [name for name in os.listdir(proc) if name.isdigit()]
    # Without any, whose are they? This is one itself.
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
            # The path is one of the process's own root. Other files are not looked at: to ask for the
            # status of one on a server that is down takes for ever.
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
