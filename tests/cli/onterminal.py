"""A command on a real terminal of so many columns."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path


def on_terminal(columns: int, *arguments: str | Path, **environment: str) -> str:
    """Return what `cdigen ARGUMENTS` prints on a terminal of COLUMNS, standard error included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-m", "cdigen", *map(str, arguments)]
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "NO_COLOR": "1", **environment}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            text += chunk
    except OSError:  # Linux reports the end of a terminal so
        pass
    process.wait(30)
    os.close(ours)
    return text.decode().replace("\r\n", "\n")
