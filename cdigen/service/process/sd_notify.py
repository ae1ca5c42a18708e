"""``Notifier``: reports the state of a service to the service manager, by the protocol of sd_notify(3).

``Watchdog`` pings the watchdog of the service manager while the process works. No method raises, because a
service that cannot report its state must continue. If ``$NOTIFY_SOCKET`` is not set, every message is
dropped. Sources: systemd's sd_notify(3) and sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Seconds to wait for a service manager that does not read. Its socket buffers messages.
_TIMEOUT_S = 0.5
_MAX_STATUS = 300


class Notifier:
    """Sends messages to the service manager in ENVIRON.

    If the manager gets no ping for ``watchdog_s`` seconds, it kills this process. 0 means no limit. The
    caller sends a ping after at most half of this time.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_s = _watchdog(environ)
        # Whether the manager waits for READY, after the start and after ``reloading``.
        self._is_awaited = True

    def report(self, text: str) -> bool:
        """Report the service's state in one line, with READY after the start and after ``reloading``."""
        is_awaited, self._is_awaited = self._is_awaited, False
        return self.ready(text) if is_awaited else self.status(text)

    def ready(self, status: str) -> bool:
        """Report that the service has started or reloaded; return whether the message was sent."""
        return self._send("READY=1", _status(status))

    def status(self, text: str) -> bool:
        """Report the service's state in one line; return whether the message was sent."""
        return self._send(_status(text))

    def ping(self) -> bool:
        """Report that the service is alive; return whether the message was sent."""
        return self._send("WATCHDOG=1")

    def reloading(self) -> bool:
        """Report that the configuration is read again, until ``ready``; return whether the message was sent.

        Type=notify-reload (systemd 253) also requires the time.
        """
        self._is_awaited = True
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> bool:
        """Report that the service ends; return whether the message was sent."""
        return self._send("STOPPING=1")

    def _send(self, *lines: str) -> bool:
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_TIMEOUT_S)
                sender.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except (OSError, ValueError):  # no reader, or an invalid address
            return False
        return True


class Watchdog:
    """The pings through NOTIFIER. TURN_S returns the maximum seconds that a turn of the loop may wait.

    PROBLEM returns the reason why the process does not work, or "". If PROBLEM is None, the process works if
    its loop runs.
    """

    def __init__(
        self, notifier: Notifier, turn_s: Callable[[], float], problem: Callable[[], str] | None
    ) -> None:
        self.problem = problem or self._is_turning
        self._notifier = notifier
        self._turn_s = turn_s
        self._turned_s = time.monotonic()

    @property
    def interval_s(self) -> float:
        """The maximum seconds between two turns. Some service managers expect more frequent pings."""
        return self._notifier.watchdog_s / 3 if self._notifier.watchdog_s else self._turn_s()

    def turn(self) -> float:
        """Record that the loop runs, and ping the watchdog; return the monotonic time."""
        self._turned_s = time.monotonic()
        if self._notifier.watchdog_s and not self.problem():
            self._notifier.ping()
        return self._turned_s

    def _is_turning(self) -> str:
        idle_s = time.monotonic() - self._turned_s
        limit_s = max(60.0, 2 * self.interval_s)
        return f"the loop has not run for {idle_s:.0f} s" if idle_s > limit_s else ""


def _address(path: str) -> str:
    """Return PATH in Python's notation (@ means an abstract socket), or "" for other address families."""
    if path.startswith("@"):
        return "\0" + path[1:]
    return path if path.startswith("/") else ""


def _watchdog(environ: Mapping[str, str]) -> float:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / 1_000_000 if text.isascii() and text.isdigit() else 0.0


def _status(text: str) -> str:
    # A line break would start another message.
    return f"STATUS={' '.join(text.split())[:_MAX_STATUS]}"
