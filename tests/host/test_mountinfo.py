"""Huge mount tables: real mounts, as any user can make them in a namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdigen.host.mountinfo import MAX_ROW, rows

REPOSITORY = Path(__file__).parents[2]
VIEW = "nvidia-0123456789abcdef"
# An overlay with 16 layers has a row of 4 KB. 5,000 overlays make a table of 20 MB. The last mount is a view.
PROGRAM = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def mount(*arguments):
    if libc.mount(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
os.chdir(sys.argv[1])
mount(b"tmpfs", b".", b"tmpfs", 0, None)
os.chdir(sys.argv[1])
layers = [f"{{number:02}}" + "x" * 230 for number in range(16)]
for name in (*layers, "overlay", "many", "{VIEW}", "here"):
    os.mkdir(name)
mount(b"overlay", b"overlay", b"overlay", 0, ("lowerdir=" + ":".join(layers)).encode())
for number in range(5000):
    os.mkdir(f"many/{{number}}")
    mount(b"overlay", f"many/{{number}}".encode(), None, 4096, None)
mount(b"{VIEW}", b"here", None, 4096, None)
size = sum(len(piece) for piece in open("/proc/self/mountinfo", "rb"))
assert size > 18 << 20, size

from cdigen.doctor.checks.other_tools import remount
from cdigen.hook.container import mount_of
from cdigen.hook.device_params import _mountinfo
from cdigen.store.views.pruning import mounted_views
def peak():
    # Not getrusage(2), because its value includes the peak of the parent process.
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) >> 10
before = peak()
"""


def in_namespace(tmp_path: Path, program: str) -> str:
    """Make the mounts in a new mount namespace, run PROGRAM there, and return the output."""
    command = ["unshare", "--mount", "--propagation", "private"]
    done = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM + program, tmp_path],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (f"mounted_views(['{VIEW}'], '/proc').processes.keys()", f"dict_keys(['{VIEW}'])"),
        ("remount('here/x')", "('mount', '-o', 'remount,rw', '{here}/here')"),
        ("_mountinfo(mount_of(os.open('here', os.O_PATH)))", "([], b'tmpfs')"),
    ],
)
def test_a_huge_mount_table_is_read_completely_in_bounded_memory(
    question: str, answer: str, tmp_path: Path
) -> None:
    printed = in_namespace(tmp_path, f"print({question})\nprint(peak() - before)")
    assert printed.splitlines()[0] == answer.format(here=tmp_path)
    assert int(printed.splitlines()[1]) < 5, "MiB more than before"


def test_a_long_row_is_cut_and_its_remainder_is_not_a_row(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(b"1 a\n" + b"2 " + b"x" * 3 * MAX_ROW + b"\n3 c\n4 d")
    found = list(rows(str(table)))
    assert [row[:3] for row in found] == [b"1 a", b"2 x", b"3 c", b"4 d"]
    assert max(map(len, found)) == MAX_ROW
