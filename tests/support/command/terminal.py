"""A command on a real terminal of so many columns."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from support.command.in_process import needs_process, run_on


def on_terminal(columns: int, *arguments: str | Path, **environment: str) -> str:
    """Return what `cdigen ARGUMENTS` prints on a terminal of COLUMNS, standard error included."""
    words = tuple(map(str, arguments))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "NO_COLOR": "1", **environment}
    with ThreadPoolExecutor(1) as pool:
        # A terminal holds 4 KiB: it is read while the command writes.
        text = pool.submit(_read, ours)
        try:
            if needs_process(words):
                subprocess.run(
                    [sys.executable, "-m", "cdigen", *words],
                    check=False,
                    stdin=theirs,
                    stdout=theirs,
                    stderr=theirs,
                    env=env,
                    timeout=60,
                )
            else:
                run_on([theirs] * 3, words, env)
        finally:
            os.close(theirs)
        return text.result().decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """Return all that arrives at TERMINAL until its other end is closed, and close it."""
    text = b""
    # Linux reports the end of a terminal as an error.
    with suppress(OSError):
        while chunk := os.read(terminal, 1 << 16):
            text += chunk
    os.close(terminal)
    return text
