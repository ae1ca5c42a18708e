"""``RegisterTiming``: the earliest time of the next Register call, and the delay after failures. No I/O."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.times.backoff import Backoff

GRACE_S = 1.0
# The wait is not 0, because a running kubelet also makes a new kubelet.sock after a failure of its server
# (pkg/kubelet/cm/devicemanager/plugin/v1beta1, server.go).
NEW_SOCKET_GRACE_S = 0.3


class RegisterTiming:
    """Keeps GRACE_S between two Register calls, and between the end of a connection and a Register call."""

    def __init__(self) -> None:
        # The kubelet may need _grace_s to handle the end of a connection. The wait ends at _hold_until_s.
        self._grace_s = GRACE_S
        self._hold_until_s = 0.0
        # The times of the last two Register calls. If the last reached no kubelet, the earlier time applies.
        self._registered_s = self._registered_before_s = -GRACE_S
        # The number of consecutive failures.
        self._failures = 0

    @property
    def allowed_s(self) -> float:
        """The earliest time of the next Register call."""
        return max(self._hold_until_s, self._registered_s + GRACE_S)

    def connection_ended(self, now: float) -> float:
        """Wait for the kubelet to handle the end of a connection at NOW; return the end of the wait."""
        self._hold_until_s = max(self._hold_until_s, now + self._grace_s)
        return self._hold_until_s

    def socket_replaced(self, now: float) -> None:
        """Shorten the wait, because a new kubelet.sock usually belongs to a kubelet without connections."""
        self._grace_s = NEW_SOCKET_GRACE_S
        self._hold_until_s = min(self._hold_until_s, now + NEW_SOCKET_GRACE_S)

    def register_called(self, now: float) -> None:
        """Store the time NOW of a Register call."""
        self._registered_before_s, self._registered_s = self._registered_s, now
        self._grace_s = GRACE_S

    def register_not_received(self) -> None:
        """Ignore the last Register call, because no kubelet received it."""
        self._registered_s = self._registered_before_s

    def failed(self, backoff: Backoff) -> float:
        """Count a failure; return the time until the next attempt."""
        self._failures += 1
        return backoff.delay(self._failures - 1)

    def succeeded(self) -> None:
        """Reset the count of failures."""
        self._failures = 0
