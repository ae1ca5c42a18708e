"""A log that is overwritten faster than it is read. It fills this machine's own with dots."""

import ctypes
import signal
import subprocess

import pytest
from support.abilities import cannot_run
from support.daemon.kernel_log_program import Program
from support.daemon.kernel_records import forge, written_by_the_kernel
from support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.needs_root]

SIZE_OF_THE_BUFFER = 10  # SYSLOG_ACTION_SIZE_BUFFER, syslog(2)
# The longest record of a user (printk.c, PRINTKRB_RECORD_MAX); 7 is for debugging, and reaches no console.
FILLER = f"<7>cdigen's test of a full kernel log{'.' * 900}"


def fill() -> int:
    """Write as much as the log holds, and return how many records that were."""
    size: int = ctypes.CDLL(None).klogctl(SIZE_OF_THE_BUFFER, None, 0)
    if size <= 0:
        cannot_run("the kernel's log has no buffer here")
    count = size // len(FILLER) + 10
    for _ in range(count):
        forge(FILLER)
    return count


def test_what_was_overwritten_while_the_reader_stood_still_is_counted_and_the_rest_is_read() -> None:
    program = Program(subprocess.DEVNULL)
    try:
        first = written_by_the_kernel("NVRM: first")
        while not program.hears()["text"].startswith(first):
            pass
        program.process.send_signal(signal.SIGSTOP)
        assert until(lambda: program.status()["State"].startswith("T"))
        overwritten = written_by_the_kernel("NVRM: lost")
        count = fill()
        last = written_by_the_kernel("NVRM: last")
        program.process.send_signal(signal.SIGCONT)
        said = [program.says()]
        while not said[-1].get("text", "").startswith(last):
            said.append(program.says())
        lost = sum(each.get("lost", 0) for each in said)
        # The kernel keeps something of what was written last.
        assert 10 < lost < count + 100
        assert [each for each in said if each.get("text", "").startswith(overwritten)] == []
    finally:
        program.process.send_signal(signal.SIGCONT)
        program.end()
