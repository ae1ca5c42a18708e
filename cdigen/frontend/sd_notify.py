"""``Notifier``: report a service's state to the service manager, by the protocol of sd_notify(3).

Nothing here raises: a service that cannot report its state goes on. Without ``$NOTIFY_SOCKET`` every
message is dropped. Sources: systemd's sd_notify(3) and sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# A manager that does not read for so long is not waited for: its socket buffers messages.
_TIMEOUT_S = 0.5
_MAX_STATUS = 300


class Notifier:
    """The way to the service manager that ENVIRON names.

    ``watchdog_s`` is how long the manager waits for a ping before it kills this process, 0 if it never does:
    ping at half of that.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_s = _watchdog(environ)

    def ready(self, status: str) -> bool:
        """Report that the service has started, or has reloaded; returns whether that was sent."""
        return self._send("READY=1", _status(status))

    def status(self, text: str) -> bool:
        """Report the service's state in one line; returns whether that was sent."""
        return self._send(_status(text))

    def ping(self) -> bool:
        """Report that the service is alive; returns whether that was sent."""
        return self._send("WATCHDOG=1")

    def reloading(self) -> bool:
        """Report that the configuration is being read again, until ``ready``; returns whether that was sent.

        Type=notify-reload (systemd 253) needs the time as well.
        """
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> bool:
        """Report that the service ends; returns whether that was sent."""
        return self._send("STOPPING=1")

    def _send(self, *lines: str) -> bool:
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_TIMEOUT_S)
                sender.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except (OSError, ValueError):  # dead, or not an address
            return False
        return True


def _address(path: str) -> str:
    """Return PATH as Python takes it: @ means an abstract socket; other families are not supported."""
    if path.startswith("@"):
        return "\0" + path[1:]
    return path if path.startswith("/") else ""


def _watchdog(environ: Mapping[str, str]) -> float:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / 1_000_000 if text.isascii() and text.isdigit() else 0.0


def _status(text: str) -> str:
    # A line break would begin a message of its own.
    return f"STATUS={' '.join(text.split())[:_MAX_STATUS]}"
