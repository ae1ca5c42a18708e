"""``RuntimeLink``: the connection to a runtime, in a thread that does no disk I/O.

After the end of a connection, the thread connects again until ``stop`` is called. The delays between failed
attempts grow. A process that the runtime launched has only the connection that the runtime passed to it.
"""

from __future__ import annotations

import select
import socket
import threading
import time

from cdigen.host.confinement import refusal
from cdigen.host.root import reason, shown
from cdigen.model.times.backoff import Backoff
from cdigen.nri.decision.result.compat import is_rejected
from cdigen.nri.events import ConnectionLost
from cdigen.nri.handover import Deregistration
from cdigen.nri.serving import SessionServer
from cdigen.nri.wire.session import Session, SessionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.plugin_config import Endpoint
    from cdigen.nri.shared_state import SharedState

# A runtime creates its socket within a second after its restart, and starts containers soon after.
BACKOFF = Backoff(first_s=0.1, factor=1.6, most_s=5.0)
# Seconds to wait for the end of the thread. The limit for the whole process is longer
# (cdigen.service.process.signals.LEAVE_WITHIN_S).
_STOP_S = 1.5
# After this number of rejections in a row, the plugin no longer subscribes to validations. A restart of the
# runtime can cause a single rejection.
_MAX_REJECTIONS = 2
_BEAT_S = 5.0


class RuntimeLink:
    """A thread that serves the runtime at ENDPOINT as the plugin NAME.

    INDEX is the NRI index of the plugin (two digits). SHARED is the state that both threads use.
    """

    def __init__(self, endpoint: Endpoint, name: str, index: str, shared: SharedState) -> None:
        self._endpoint = endpoint
        self._name, self._index = name, index
        self._shared = shared
        # The number of connections in a row that the runtime closed after the subscription. A runtime closes
        # the connection if it does not support a subscribed event.
        self._rejections = 0
        self._thread = threading.Thread(target=self._work, name="cdigen-nri", daemon=True)

    def start(self, wait_s: float) -> None:
        """Start the thread, and wait at most WAIT_S seconds for Configure or a failed connection.

        Without this wait, the next steps of the caller would delay the registration.
        """
        self._thread.start()
        self._shared.attempted.wait(wait_s)

    def stop(self) -> None:
        """End the connection and the thread, within two seconds."""
        self._shared.stopping.set()
        self._shared.wake()
        self._thread.join(_STOP_S)

    def is_running(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def _work(self) -> None:
        failures = 0
        while not self._shared.stopping.is_set():
            started_s = time.monotonic()
            was_active, why = self._once()
            self._shared.attempted.set()
            if self._shared.stopping.is_set():
                return
            self._shared.add_event(ConnectionLost(reason=why, was_active=was_active))
            if self._endpoint.fd is not None:
                return
            if was_active and time.monotonic() - started_s > BACKOFF.most_s:
                # The runtime may have restarted already, and may start containers. Reconnect without a delay.
                failures = 0
                continue
            failures = 0 if self._is_woken(BACKOFF.delay(failures)) else failures + 1

    def _is_woken(self, delay_s: float) -> bool:
        """Wait for DELAY_S seconds or a wakeup; return whether there was a wakeup."""
        poll = select.poll()
        poll.register(self._shared.wakeup, select.POLLIN)
        until_s = time.monotonic() + delay_s
        while not self._shared.stopping.is_set() and (left_s := until_s - time.monotonic()) > 0:
            self._shared.liveness.beat()
            if poll.poll(min(left_s, _BEAT_S) * 1000):
                self._shared.clear_wakeup()
                return True
        return False

    def _once(self) -> tuple[bool, str]:
        """Serve one connection until its end.

        Return whether the plugin became active, and the reason for the end of the connection.
        """
        try:
            connection = self._connected()
        except BlockingIOError:
            return False, f"cannot connect to {shown(self._endpoint.path)}: the socket's queue is full"
        except OSError as error:
            where = shown(self._endpoint.path) or "the runtime through the passed socket"
            return False, f"cannot connect to {where}: {refusal(error)}"
        with connection:
            serving = SessionServer(
                connection,
                Session(self._name, self._index),
                self._shared,
                is_launched=self._endpoint.fd is not None,
                may_validate=self._rejections < _MAX_REJECTIONS,
                deregister=self._deregistration if self._endpoint.path else None,
            )
            why = _why_ended(serving)
        if is_rejected(serving.abilities, was_synchronized=serving.was_synchronized):
            self._rejections += 1
        elif self._rejections < _MAX_REJECTIONS:
            self._rejections = 0
        return serving.is_accepted, why

    def _deregistration(self, poll: select.poll) -> Deregistration:
        connection = self._connected()
        try:
            return Deregistration(connection, self._name, self._index, poll)
        except BaseException:
            connection.close()
            raise

    def _connected(self) -> socket.socket:
        if self._endpoint.fd is not None:
            connection = socket.socket(fileno=self._endpoint.fd)
        else:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            connection.setblocking(False)  # noqa: FBT003 - the argument of setblocking is positional
            try:
                # The call does not block, because ``stop`` could not interrupt a blocked call. If the queue
                # of the socket is full, the call fails, and cdigen tries again.
                connection.connect(self._endpoint.path)
            except OSError:
                connection.close()
                raise
        connection.setblocking(False)  # noqa: FBT003 - the argument of setblocking is positional
        return connection


def _why_ended(serving: SessionServer) -> str:
    """Serve until the end of the connection; return the reason for the end."""
    try:
        serving.run()
    except SessionError as error:
        return str(error)
    except OSError as error:
        return f"the connection failed: {reason(error)}"
    except Exception as error:  # noqa: BLE001 - the thread must continue, or containers start without GPUs
        return f"cdigen has a defect: {type(error).__name__}: {error}"
    return "the runtime has closed the connection"
