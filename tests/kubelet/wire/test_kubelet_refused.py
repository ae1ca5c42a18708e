"""The system refuses the connection to the kubelet's socket, as SELinux does in a container."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Root has access only to its own files, as in a container.
AS_CONTAINER = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
REGISTER = """
import asyncio, sys
from cdigen.kubelet.wire.clients import KubeletError, register
try:
    asyncio.run(register(sys.argv[1], "nvidia.com/gpu", "x.sock"))
except KubeletError as error:
    print(error.message, error.was_reached)
"""


@pytest.mark.needs_root
def test_a_refused_connection_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(path))
        kubelet.listen()
        os.chown(path, 1000, 1000)
        path.chmod(0o600)
        command = [*AS_CONTAINER, sys.executable, "-c", REGISTER, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(f"cannot connect to {path}: Permission denied")
    assert done.stdout.endswith(" False\n")
