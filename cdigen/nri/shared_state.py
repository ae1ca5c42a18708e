"""``SharedState``: the state that the link's thread and the main thread share."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress

from cdigen.nri.decision.decide import IGNORED_REQUEST_CAUSES
from cdigen.nri.decision.request.refusal import REFUSAL_CAUSES
from cdigen.nri.decision.result.handover import new_instance
from cdigen.nri.events import ConnectionLost, PluginActive, RuntimeConfigured, Synchronized
from cdigen.nri.injected_containers import InjectedContainers
from cdigen.service.durations import DurationCounts
from cdigen.service.liveness import Liveness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.decision.limits.policy import InjectionPolicy
    from cdigen.nri.decision.result.injection import InjectionResult
    from cdigen.nri.events import Event

# If there are this many unread events, new events are dropped, except the events in _OF_CONNECTION. The
# metrics also include containers whose events were dropped.
_MAX_EVENTS = 10_000
_OF_CONNECTION = (RuntimeConfigured, Synchronized, PluginActive, ConnectionLost)
# The values with which SharedState calls NOTIFY.
REQUEST, LINK = "request", "link"
OUTCOMES = ("nothing", "served", "inject", "refuse")
VALIDATION_RESULTS = ("passed", "rejected")
# Upper bounds of the histogram of response times, in seconds. Most responses take less than a millisecond. A
# response takes longer if the request waits for changed specs.
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1)


class NriMetrics:
    """Counters since the start of the process.

    Each series starts with 0, because Prometheus needs a first value to compute a rate.
    """

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.refusals = dict.fromkeys(REFUSAL_CAUSES, 0)
        self.ignored_requests = dict.fromkeys((*IGNORED_REQUEST_CAUSES, *REFUSAL_CAUSES), 0)
        self.validations = dict.fromkeys(VALIDATION_RESULTS, 0)
        self.connections = 0
        self.durations = DurationCounts(BUCKETS)

    def count(self, result: InjectionResult, duration_s: float) -> None:
        """Count RESULT, a response to CreateContainer that took DURATION_S seconds."""
        self.outcomes[result.outcome] += 1
        if result.outcome == "refuse":
            self.refusals[result.cause] += 1
        for ignored in result.ignored_requests:
            self.ignored_requests[ignored.cause] += 1
        self.durations.add(duration_s)


class SharedState:
    """The inputs for the link's responses, and the events and metrics that the link sends to the main thread.

    The link's thread calls NOTIFY. The argument is REQUEST when a container waits for a newer state of the
    host, and LINK after a new event.

    ``policy`` contains the rules for permitted requests. ``context`` resolves requests to devices. If
    ``problem`` is not empty, the link refuses every container that requests devices, with ``problem`` as the
    reason. ``attempted`` is set after the first attempt to register. ``context_requested`` is set while a
    container waits for a newer state. ``liveness`` has the beats of the link's thread. ``instance``
    identifies this process among instances of cdigen (``nri.decision.result.handover``). ``is_standby`` is
    true if another instance holds the run directory.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.metrics = NriMetrics()
        self.injected = InjectedContainers()
        self.events: deque[Event] = deque()
        self.liveness = Liveness("the runtime")
        self.policy: InjectionPolicy | None = None
        self.context: DecisionContext | None = None
        self.problem = ""
        self.instance = new_instance()
        self.is_standby = False
        self.attempted = threading.Event()
        self.context_requested = threading.Event()
        self.stopping = threading.Event()
        self.wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._notify = notify

    # For the main thread.

    def set_context(self, context: DecisionContext) -> None:
        """Set the context of the link's decisions, and wake the link to decide about waiting containers."""
        self.policy, self.context = context.policy, context
        self.wake()

    def wake(self) -> None:
        """Wake the link's thread, which then reads the changes or connects without a further delay."""
        with suppress(OSError):
            os.eventfd_write(self.wakeup, 1)

    # For the link.

    def clear_wakeup(self) -> None:
        """Reset the wakeup before the link reads the changes."""
        with suppress(OSError):
            os.eventfd_read(self.wakeup)

    def add_event(self, event: Event) -> None:
        """Add EVENT; events of the connection are never dropped."""
        if len(self.events) < _MAX_EVENTS or isinstance(event, _OF_CONNECTION):
            self.events.append(event)
        self._notify(LINK)

    def request_context(self) -> None:
        """Request a context with the current state of the host."""
        self.context_requested.set()
        self._notify(REQUEST)
