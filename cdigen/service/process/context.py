"""``service_process``: what a long-running process has from its first to its last moment."""

from __future__ import annotations

import gc
from contextlib import contextmanager

from cdigen.service.process.buffered_log import BufferedLogger
from cdigen.service.process.sd_notify import Notifier
from cdigen.service.process.signals import listen
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.service.process.signals import Signals


@frozen
class ProcessContext:
    """The service manager, the log and the signals of a process."""

    notifier: Notifier
    log: BufferedLogger
    signals: Signals


@contextmanager
def service_process(*, verbose: bool | None = None) -> Iterator[ProcessContext]:
    """Receive signals from now on, and yield the context of this process; then ignore signals until the exit.

    If VERBOSE is None, the caller opens the log later. Until then, the log keeps its lines.
    """
    # cli.main turns garbage collection off for short commands.
    gc.enable()
    log = BufferedLogger()
    if verbose is not None:
        log.open(verbose=verbose)
    signals = listen()
    try:
        yield ProcessContext(notifier=Notifier(), log=log, signals=signals)
    finally:
        signals.ignore()
