"""The end of a connection that the plugin ends: ``leave``."""

from __future__ import annotations

import time
from contextlib import suppress

from cdigen.host.root import reason
from cdigen.nri.wire.session import SessionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.connection import Connection
    from cdigen.nri.withdrawal import Withdrawal

    # Waits for so many seconds at most, and answers; returns what has come where, None at the end.
    Turn = Callable[[float], dict[int, int] | None]

# All of it together ends before a process has to (cdigen.frontend.signals.LEAVE_WITHIN_S).
_WITHDRAW_S = 0.9
_LEAVE_S = 0.2
_GONE_S = 0.2
# Go may lose what came just before the end of a connection (pkg/net/multiplex/mux.go: Read takes either).
_QUIET_S = 0.03


def leave(turn: Turn, connection: Connection, withdraw: Callable[[], Withdrawal] | None) -> str:
    """End CONNECTION, which TURN serves, when all is answered; returns why the runtime may call once more.

    An open question would start a container without its GPU. WITHDRAW begins what makes the runtime forget
    the plugin, None where that calls nobody whose connection has ended.
    """
    if withdraw is None:
        _answer(turn, connection)
        return ""
    try:
        withdrawal = withdraw()
    except (OSError, SessionError) as error:
        _answer(turn, connection)
        return _why(error)
    try:
        why = _begin(turn, withdrawal)
        _answer(turn, connection)
        if not why:
            _end(turn, connection)
            withdrawal.finish()
            time.sleep(_QUIET_S)
    finally:
        withdrawal.close()
    return why


def _answer(turn: Turn, connection: Connection) -> None:
    """Answer until nothing comes any more, and all is sent."""
    until_s = time.monotonic() + _LEAVE_S
    quiet_s = time.monotonic() + _QUIET_S
    while (now := time.monotonic()) < until_s and (now < quiet_s or connection.has_unsent()):
        ready = turn(max(quiet_s, now + 0.001) - now)
        if ready is None:
            return
        if connection.fileno() in ready:
            quiet_s = time.monotonic() + _QUIET_S


def _begin(turn: Turn, withdrawal: Withdrawal) -> str:
    """Serve until WITHDRAWAL is due; returns why it will not be."""
    until_s = time.monotonic() + _WITHDRAW_S
    while not withdrawal.is_due:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return f"the runtime has not come to it within {_WITHDRAW_S:g} s"
        ready = turn(left_s)
        if ready is None:
            return "the runtime has closed the connection"
        if withdrawal.fileno() in ready:
            try:
                withdrawal.receive()
            except (OSError, SessionError) as error:
                return _why(error)
    return ""


def _end(turn: Turn, connection: Connection) -> None:
    """End CONNECTION, and wait until the runtime has noticed."""
    connection.finish()
    until_s = time.monotonic() + _GONE_S
    with suppress(OSError):
        while (left_s := until_s - time.monotonic()) > 0 and turn(left_s) is not None:
            pass
    # It closes its end just before it takes the plugin for closed (pkg/adaptation/plugin.go: connect).
    time.sleep(_QUIET_S)


def _why(error: OSError | SessionError) -> str:
    return f"cannot connect once more: {reason(error)}" if isinstance(error, OSError) else str(error)
