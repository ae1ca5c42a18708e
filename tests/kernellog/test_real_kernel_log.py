"""Old and new lines of this machine's kernel are forwarded; lines of users are ignored."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.abilities import cannot_run, tool
from support.daemon.kernel_log_program import PROGRAM, Program
from support.daemon.kernel_records import FORGED, forge, written_by_the_kernel
from support.waiting import PATIENCE_S, pause

pytestmark = [pytest.mark.needs_root, pytest.mark.process]

RESTRICTED = Path("/proc/sys/kernel/dmesg_restrict")


@pytest.fixture(autouse=True)
def readable() -> None:
    """Require that the kernel log of this machine can be read."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY))
    except OSError as error:
        cannot_run(f"/dev/kmsg cannot be opened ({error.strerror})")


@pytest.fixture
def program() -> Iterator[Program]:
    """Yield the program, which opens the log itself."""
    program = Program(subprocess.DEVNULL)
    yield program
    program.end()


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_earlier_and_new_lines_of_the_kernel_are_forwarded_with_their_times() -> None:
    begun_s = now_s()
    earlier = written_by_the_kernel("NVRM: earlier")
    done_s = now_s()
    program = Program(subprocess.DEVNULL)
    try:
        first = program.next_record()
        while not first["text"].startswith(earlier):
            first = program.next_record()
        # printk's clock differs slightly from CLOCK_BOOTTIME.
        assert begun_s - 30 < first["at"] < done_s + 30
        later = written_by_the_kernel("NVRM: later")
        again = program.next_record()
        assert again["text"].startswith(later)
        assert again["seq"] > first["seq"]
        assert done_s < again["at"] <= now_s()
    finally:
        program.end()


def test_a_line_of_a_user_is_ignored_even_with_the_text_of_a_driver(program: Program) -> None:
    for prefix in ("<3>", "<0>", "<7>", ""):
        forge(f"{prefix}{FORGED.removeprefix('<3>')}")
    forge(f"{FORGED}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:65:00.0\n")
    marker = written_by_the_kernel("NVRM: marker")
    texts = [program.next_record()["text"]]
    while not texts[-1].startswith(marker):
        texts.append(program.next_record()["text"])
    assert [text for text in texts if "fallen off the bus" in text] == []


def test_a_user_needs_cap_syslog() -> None:
    if RESTRICTED.read_text().strip() != "1":
        cannot_run("every user may read the kernel log here (kernel.dmesg_restrict)")
    user = (tool("setpriv", "util-linux"), "--reuid=65534", "--regid=65534", "--clear-groups")
    syslog = ("--inh-caps=-all,+syslog", "--ambient-caps=-all,+syslog", "--bounding-set=-all,+syslog")
    program = [sys.executable, "-ISB", str(PROGRAM)]
    trial = [*user, sys.executable, "-ISBc", f"open('{PROGRAM}/main.py')"]
    if subprocess.run(trial, check=False, capture_output=True).returncode != 0:
        cannot_run("other users may not read this tree, or the Python that runs the tests")
    done = subprocess.run([*user, *program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, '{"problem": "/dev/kmsg: Operation not permitted"}\n')
    text = written_by_the_kernel("NVRM: for one")
    with subprocess.Popen([*user, *syslog, *program], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        try:
            assert any(text in line for line in reader.stdout)
        finally:
            reader.kill()


def test_an_idle_log_needs_no_processor_time(program: Program) -> None:
    marker = written_by_the_kernel("NVRM: quiet")
    deadline = time.monotonic() + PATIENCE_S
    while not program.next_record()["text"].startswith(marker):
        assert time.monotonic() < deadline
    before = program.cpu_s()
    pause(0.3)
    # Other lines may arrive during the pause. A program that polls would use the processor all the time.
    assert program.cpu_s() - before < 0.1
