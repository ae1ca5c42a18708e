"""``disconnect``: responds to all requests on a connection, and then closes the connection."""

from __future__ import annotations

import time
from contextlib import suppress

from cdigen.host.root import reason
from cdigen.nri.wire.session import SessionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.connection import Connection
    from cdigen.nri.handover.deregistration import Deregistration

    # A function that waits at most the given seconds and responds to requests. It returns the poll events, or
    # None at the end of the connection.
    Turn = Callable[[float], dict[int, int] | None]

# Seconds. The sum of these limits must be less than the time limit of the shutdown
# (cdigen.service.process.signals.LEAVE_WITHIN_S).
_DEREGISTER_S = 0.9
_LEAVE_S = 0.2
_GONE_S = 0.2
# Seconds between the last data and the end of a connection. A Go runtime can lose data that arrives just
# before the end, because Read returns either the data or the end (pkg/net/multiplex/mux.go).
_QUIET_S = 0.03


def disconnect(turn: Turn, connection: Connection, deregister: Callable[[], Deregistration] | None) -> str:
    """Respond to all requests on CONNECTION, and close CONNECTION.

    Return the reason why the runtime may call the plugin once more, or "" if there is no such reason. If the
    runtime gets no response to a request, it starts the container without its GPU. TURN serves the
    connection. DEREGISTER starts the deregistration. DEREGISTER is None if the runtime does not call
    disconnected plugins.
    """
    if deregister is None:
        _drain(turn, connection)
        return ""
    try:
        deregistration = deregister()
    except (OSError, SessionError) as error:
        _drain(turn, connection)
        return _reason(error)
    try:
        why = _wait_until_due(turn, deregistration)
        _drain(turn, connection)
        if not why:
            _end(turn, connection)
            deregistration.finish()
            time.sleep(_QUIET_S)
    finally:
        deregistration.close()
    return why


def _drain(turn: Turn, connection: Connection) -> None:
    """Respond until no more requests arrive and all responses are sent, for _LEAVE_S at most."""
    until_s = time.monotonic() + _LEAVE_S
    quiet_s = time.monotonic() + _QUIET_S
    while (now := time.monotonic()) < until_s and (now < quiet_s or connection.has_unsent()):
        ready = turn(max(quiet_s, now + 0.001) - now)
        if ready is None:
            return
        if connection.fileno() in ready:
            quiet_s = time.monotonic() + _QUIET_S


def _wait_until_due(turn: Turn, deregistration: Deregistration) -> str:
    """Serve until DEREGISTRATION is due; return "", or the reason for a failure."""
    until_s = time.monotonic() + _DEREGISTER_S
    while not deregistration.is_due:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return f"the runtime did not synchronize the second plugin within {_DEREGISTER_S:g} s"
        ready = turn(left_s)
        if ready is None:
            return "the runtime has closed the connection"
        if deregistration.fileno() in ready:
            try:
                deregistration.receive()
            except (OSError, SessionError) as error:
                return _reason(error)
    return ""


def _end(turn: Turn, connection: Connection) -> None:
    """Close CONNECTION, and wait until the runtime has closed its end, for _GONE_S at most."""
    connection.finish()
    until_s = time.monotonic() + _GONE_S
    with suppress(OSError):
        while (left_s := until_s - time.monotonic()) > 0 and turn(left_s) is not None:
            pass
    # The runtime marks the plugin as closed just after it closes its end (pkg/adaptation/plugin.go: connect).
    time.sleep(_QUIET_S)


def _reason(error: OSError | SessionError) -> str:
    return f"cannot connect again: {reason(error)}" if isinstance(error, OSError) else str(error)
