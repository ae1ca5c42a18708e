"""The reader of the kernel log reports lost records; the test fills this machine's log."""

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
# The longest record of a program (printk.c, PRINTKRB_RECORD_MAX). No console prints level 7 (debug).
FILLER = f"<7>cdigen's test of a full kernel log{'.' * 900}"


def fill() -> int:
    """Fill the log; return the number of written records."""
    size: int = ctypes.CDLL(None).klogctl(SIZE_OF_THE_BUFFER, None, 0)
    if size <= 0:
        cannot_run("the kernel log has no buffer here")
    count = size // len(FILLER) + 10
    for _ in range(count):
        forge(FILLER)
    return count


def test_records_that_were_overwritten_while_the_reader_was_stopped_are_reported_as_lost() -> None:
    program = Program(subprocess.DEVNULL)
    try:
        first = written_by_the_kernel("NVRM: first")
        while not program.next_record()["text"].startswith(first):
            pass
        program.process.send_signal(signal.SIGSTOP)
        assert until(lambda: program.status()["State"].startswith("T"))
        overwritten = written_by_the_kernel("NVRM: lost")
        count = fill()
        last = written_by_the_kernel("NVRM: last")
        program.process.send_signal(signal.SIGCONT)
        output = [program.next_line()]
        while not output[-1].get("text", "").startswith(last):
            output.append(program.next_line())
        lost = sum(each.get("lost", 0) for each in output)
        # The kernel keeps some of the last records.
        assert 10 < lost < count + 100
        assert [each for each in output if each.get("text", "").startswith(overwritten)] == []
    finally:
        program.process.send_signal(signal.SIGCONT)
        program.end()
