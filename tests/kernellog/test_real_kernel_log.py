"""This machine's own log: what the kernel wrote is heard, old and new, and what users wrote is not."""

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
    """Require that the kernel's log of this machine can be read."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY))
    except OSError as error:
        cannot_run(f"/dev/kmsg cannot be opened ({error.strerror})")


@pytest.fixture
def program() -> Iterator[Program]:
    """Return the program, which opens the log by itself."""
    program = Program(subprocess.DEVNULL)
    yield program
    program.end()


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_what_the_kernel_wrote_before_and_what_it_writes_is_heard_with_its_time() -> None:
    begun_s = now_s()
    earlier = written_by_the_kernel("NVRM: earlier")
    done_s = now_s()
    program = Program(subprocess.DEVNULL)
    try:
        said = program.hears()
        while not said["text"].startswith(earlier):
            said = program.hears()
        # printk's clock is not the machine's, but near it.
        assert begun_s - 30 < said["at"] < done_s + 30
        later = written_by_the_kernel("NVRM: later")
        again = program.hears()
        assert again["text"].startswith(later)
        assert again["seq"] > said["seq"]
        assert done_s < again["at"] <= now_s()
    finally:
        program.end()


def test_what_a_user_writes_is_not_believed_whatever_it_claims_to_be(program: Program) -> None:
    for prefix in ("<3>", "<0>", "<7>", ""):
        forge(f"{prefix}{FORGED.removeprefix('<3>')}")
    forge(f"{FORGED}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:65:00.0\n")
    marker = written_by_the_kernel("NVRM: marker")
    texts = [program.hears()["text"]]
    while not texts[-1].startswith(marker):
        texts.append(program.hears()["text"])
    assert [text for text in texts if "fallen off the bus" in text] == []


def test_a_user_with_the_one_privilege_may_read_it_and_one_without_is_told_so() -> None:
    if RESTRICTED.read_text().strip() != "1":
        cannot_run("here everybody may read the kernel's log (kernel.dmesg_restrict)")
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


def test_when_the_log_is_quiet_it_takes_no_time(program: Program) -> None:
    marker = written_by_the_kernel("NVRM: quiet")
    deadline = time.monotonic() + PATIENCE_S
    while not program.hears()["text"].startswith(marker):
        assert time.monotonic() < deadline
    before = program.cpu_s()
    pause(0.3)
    # Others may write meanwhile; one that does not wait would have taken all of it.
    assert program.cpu_s() - before < 0.1
