"""Read files of devices, each device in a thread of its own: a line of JSON for each that has answered.

Started by device_files as ``python -I -S THIS``; what to read comes on standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

# A file of /sys has a page at the most.
_LIMIT = 1 << 16
_speaking = threading.Lock()


def main() -> None:
    """Read what standard input asks for, and wait for every device; whoever started this has a deadline."""
    wanted = json.load(sys.stdin)
    threads = [threading.Thread(target=_tell, args=entry) for entry in wanted.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _tell(device: str, wanted: dict[str, list[str]]) -> None:
    files = {path: text for path in wanted["files"] if (text := _text(path)) is not None}
    counters = _counted(wanted["counters"], float(wanted["apart_s"]))  # type: ignore[arg-type]  # from JSON
    line = json.dumps({"device": device, "files": files, "counters": counters})
    with _speaking:
        os.write(1, line.encode() + b"\n")


def _counted(paths: list[str], apart_s: float) -> dict[str, tuple[int, int, float]]:
    """Return each counter twice, and the seconds between."""
    first = {path: (number, time.monotonic()) for path in paths if (number := _number(path)) is not None}
    if first:
        time.sleep(apart_s)
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
