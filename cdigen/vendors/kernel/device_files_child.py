"""Program that reads files of devices, and prints one line of JSON per device.

The program reads each device in a separate thread. device_files starts the program as ``python -I -S THIS``.
Standard input contains the list of files as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

# In bytes. A file in /sys has at most one page.
_LIMIT = 1 << 16
# The seconds between the two reads of a counter.
APART_S = 0.2
_output_lock = threading.Lock()


def main() -> None:
    """Read the files in the list on standard input. The parent process enforces the deadline."""
    requests = json.load(sys.stdin)
    threads = [threading.Thread(target=_read_device, args=entry) for entry in requests.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _read_device(device: str, request: dict[str, list[str]]) -> None:
    files = {path: text for path in request["files"] if (text := _text(path)) is not None}
    line = json.dumps({"device": device, "files": files, "counters": _read_counters(request["counters"])})
    with _output_lock:
        os.write(1, line.encode() + b"\n")


def _read_counters(paths: list[str]) -> dict[str, tuple[int, int, float]]:
    """Return two values of each counter, and the seconds between the two reads."""
    first = {path: (number, time.monotonic()) for path in paths if (number := _number(path)) is not None}
    if first:
        time.sleep(APART_S)
    counters = {}
    for path, (number, at_s) in first.items():
        again = _number(path)
        if again is not None:
            counters[path] = (number, again, time.monotonic() - at_s)
    return counters


def _number(path: str) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def _text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(_LIMIT).decode("utf-8", "replace")
    except OSError:
        return None


if __name__ == "__main__":
    main()
