"""Commands of this machine whose output a test reads: `captured`, `succeeded`."""

import os
import subprocess
from collections.abc import Sequence
from typing import Any

Word = str | os.PathLike[str]


def captured(command: Sequence[Word], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run COMMAND with OPTIONS of subprocess.run; return its exit status, and its output as text."""
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def succeeded(command: Sequence[Word], **options: Any) -> str:
    """Run COMMAND, which must succeed, and return its standard output; a failure shows all output."""
    done = captured(command, **options)
    assert done.returncode == 0, f"exit {done.returncode}: {command}\n{done.stdout}{done.stderr}"
    return done.stdout
