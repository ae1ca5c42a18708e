"""Names of processes. A process can set its name to any bytes, and can end at any time."""

import ctypes
import os
from pathlib import Path

import pytest
from support.hosts.driver_files import put

from cdigen.host.procfs import MAX_NAME, process_name
from cdigen.host.root import Root

PR_SET_NAME = 15


def test_a_process_of_this_machine_has_the_name_that_it_set() -> None:
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"gpu\x1b[31m\nx\xff", 0, 0, 0)
        os.kill(os.getpid(), 19)
        os._exit(0)
    try:
        os.waitpid(pid, os.WUNTRACED)
        assert process_name(Root("/"), pid) == "gpu?[31m?x�"
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert process_name(Root("/"), pid) == ""


@pytest.mark.parametrize("content", [b"x" * 1000, b"y" * 300 + b"\n"])
def test_the_name_of_a_process_is_limited(tmp_path: Path, content: bytes) -> None:
    put(tmp_path / "proc/7/comm", content)
    assert len(process_name(Root(str(tmp_path)), 7)) <= MAX_NAME
