"""The connection to a runtime, in a thread of its own that never waits for a disk: ``Link``.

It connects again after every end, later each time, until it is stopped.
"""

from __future__ import annotations

import select
import socket
import threading
import time

from cdigen.host.confinement import refusal
from cdigen.host.root import reason, shown
from cdigen.nri.decision.compat import is_rejected
from cdigen.nri.events import ConnectionLost
from cdigen.nri.serving import Serving
from cdigen.nri.wire.session import Session, SessionError
from cdigen.nri.withdrawal import Withdrawal
from cdigen.watch.debounce import Backoff

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.plugin_config import Endpoint
    from cdigen.nri.shared_state import SharedState

# A runtime that restarts has its socket back within a second, and starts containers soon after.
BACKOFF = Backoff(first_s=0.1, factor=1.6, most_s=5.0)
# Serving ends within so long, an own process within cdigen.frontend.signals.LEAVE_WITHIN_S.
_STOP_S = 1.5
# One end may be a restart of the runtime.
_MAX_REJECTIONS = 2
_BEAT_S = 5.0


class Link:
    """Serves the runtime at ENDPOINT as the plugin NAME with INDEX (two digits), by the SHARED state."""

    def __init__(self, endpoint: Endpoint, name: str, index: str, shared: SharedState) -> None:
        self._endpoint = endpoint
        self._name, self._index = name, index
        self._shared = shared
        # How often in a row the runtime has closed the connection at our subscription: so it does where it
        # does not know an event.
        self._rejections = 0
        self._thread = threading.Thread(target=self._work, name="cdigen-nri", daemon=True)

    def start(self, wait_s: float) -> None:
        """Start the thread, and wait, WAIT_S at most, for the runtime to introduce itself or not to be there.

        What the caller does next takes time that the registration would otherwise have to wait for.
        """
        self._thread.start()
        self._shared.tried.wait(wait_s)

    def stop(self) -> None:
        """End the connection and the thread, within two seconds."""
        self._shared.stopping.set()
        self._shared.wake()
        self._thread.join(_STOP_S)

    def is_running(self) -> bool:
        """Return whether the thread works."""
        return self._thread.is_alive()

    def _work(self) -> None:
        failures = 0
        while not self._shared.stopping.is_set():
            begun_s = time.monotonic()
            was_active, why = self._once()
            self._shared.tried.set()
            if self._shared.stopping.is_set():
                return
            self._shared.add_event(ConnectionLost(reason=why, was_active=was_active))
            if self._endpoint.fd is not None:
                return
            if was_active and time.monotonic() - begun_s > BACKOFF.most_s:
                # It may be back already, and starts containers.
                failures = 0
                continue
            failures = 0 if self._is_woken(BACKOFF.delay(failures)) else failures + 1

    def _is_woken(self, delay_s: float) -> bool:
        """Wait for DELAY_S, less if the wakeup is rung; returns whether it was."""
        poll = select.poll()
        poll.register(self._shared.wakeup, select.POLLIN)
        until_s = time.monotonic() + delay_s
        while not self._shared.stopping.is_set() and (left_s := until_s - time.monotonic()) > 0:
            self._shared.alive_s = time.monotonic()
            if poll.poll(min(left_s, _BEAT_S) * 1000):
                self._shared.clear_wakeup()
                return True
        return False

    def _once(self) -> tuple[bool, str]:
        """Be registered as long as it lasts; returns whether it came to that, and why it ended."""
        try:
            connection = self._connected()
        except BlockingIOError:
            return False, f"cannot connect to {shown(self._endpoint.path)}: too many others wait there"
        except OSError as error:
            where = shown(self._endpoint.path) or "the runtime by the socket that it gave"
            return False, f"cannot connect to {where}: {refusal(error)}"
        with connection:
            serving = Serving(
                connection,
                Session(self._name, self._index),
                self._shared,
                is_launched=self._endpoint.fd is not None,
                may_validate=self._rejections < _MAX_REJECTIONS,
                withdraw=self._withdrawal if self._endpoint.path else None,
            )
            why = _why_ended(serving)
        if is_rejected(serving.abilities, was_told=serving.was_told):
            self._rejections += 1
        elif self._rejections < _MAX_REJECTIONS:
            self._rejections = 0
        return serving.is_accepted, why

    def _withdrawal(self, poll: select.poll) -> Withdrawal:
        connection = self._connected()
        try:
            return Withdrawal(connection, self._name, self._index, poll)
        except BaseException:
            connection.close()
            raise

    def _connected(self) -> socket.socket:
        if self._endpoint.fd is not None:
            connection = socket.socket(fileno=self._endpoint.fd)
        else:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            connection.setblocking(False)  # noqa: FBT003 - the socket module's own signature
            try:
                # Nobody waits here, as nothing ends that: a queue that is full is tried again.
                connection.connect(self._endpoint.path)
            except OSError:
                connection.close()
                raise
        connection.setblocking(False)  # noqa: FBT003 - likewise
        return connection


def _why_ended(serving: Serving) -> str:
    """Serve, and return why that has ended."""
    try:
        serving.run()
    except SessionError as error:
        return str(error)
    except OSError as error:
        return f"the connection failed: {reason(error)}"
    except Exception as error:  # noqa: BLE001 - without this thread, containers start without GPUs
        return f"cdigen has a defect: {type(error).__name__}: {error}"
    return "the runtime has closed the connection"
