"""Runs a command on a pseudoterminal with a given number of columns."""

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
    """Return standard output and error of `cdigen ARGUMENTS` on a terminal with COLUMNS columns."""
    words = tuple(map(str, arguments))
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "NO_COLOR": "1", **environment}
    with ThreadPoolExecutor(1) as pool:
        # The buffer of a terminal has only 4 KiB, so a thread reads it while the command writes.
        text = pool.submit(_read, controller)
        try:
            if needs_process(words):
                subprocess.run(
                    [sys.executable, "-m", "cdigen", *words],
                    check=False,
                    stdin=terminal,
                    stdout=terminal,
                    stderr=terminal,
                    env=env,
                    timeout=60,
                )
            else:
                run_on([terminal] * 3, words, env)
        finally:
            os.close(terminal)
        return text.result().decode().replace("\r\n", "\n")


def _read(controller: int) -> bytes:
    """Return the output of a terminal until it is closed, and close its CONTROLLER descriptor."""
    text = b""
    # Linux reports the end of a terminal as an error.
    with suppress(OSError):
        while chunk := os.read(controller, 1 << 16):
            text += chunk
    os.close(controller)
    return text
