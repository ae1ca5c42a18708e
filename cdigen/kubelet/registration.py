"""When a resource is served and registered: ``Registration``, a state machine without I/O.

Events (``occurrences``) go in with the time, actions come out; whoever carries them out reports what became
of them as events. A registration is: a server on a socket with a fresh name, then Register, during which the
kubelet connects back, then its ListAndWatch. It counts as long as that stream lasts, and the kubelet shows
our devices where it can tell (pod resources API).

Two things of the kubelet rule the order and the delays. At its start it empties the folder of sockets, so a
new kubelet.sock means that nothing of ours is known any more. And kubelets up to 1.35 know an endpoint by its
resource's name alone: the late end of an old connection removes the endpoint of the new one
(kubernetes/kubernetes#121994). So the old server is stopped first, the kubelet is given MOMENT_S to notice,
and there is never more than one Register within that time. Another kubelet.sock is mostly another kubelet's,
whom old connections do not concern: then it is given ANEW_S.

Another plugin that has registered the resource is not fought. The kubelet takes whoever comes last, and keeps
asking the former for its list as well, so it is asked what it shows before Register: where it runs already
when we begin, and after it has ended our stream. Whose ids these are does not matter, as other plugins use
the same; while no server of ours is registered, they are another's, or a former process's of ours, whose end
the kubelet has not handled yet: so it is asked until it shows none, for 3 s at most.
"""

from __future__ import annotations

from cdigen.kubelet.occurrences import (
    Accepted,
    AskShown,
    KubeletSeen,
    NeighboursSeen,
    Register,
    RegisterFailed,
    Serve,
    Served,
    ServeFailed,
    ShownBy,
    SocketGone,
    Stop,
    StreamEnded,
    StreamOpened,
    Tick,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.kubelet.occurrences import Action, Event, Identity, Shown

    # waiting: there is no kubelet.sock; paused: for the next try; serving: the socket is being made;
    # registering: Register is under way; unproven: ListAndWatch has not been asked for yet; registered;
    # taken: another plugin has the resource.
    State = Literal["waiting", "paused", "serving", "registering", "unproven", "registered", "taken"]

MOMENT_S = 1.0
# The same kubelet makes its socket anew after its server has failed (pkg/kubelet/cm/devicemanager/plugin/
# v1beta1, server.go).
ANEW_S = 0.3
# The kubelet asks for the list right after it has connected, which it does before Register is answered.
PROVE_S = 5.0
# What is carried out reports within its own deadlines; this is for what is lost nevertheless.
LOST_S = 20.0
# After a stream that the kubelet has ended: if it is on its way down, its next socket is the better sign.
ENDED_S = 2.0
LONGEST_PAUSE_S = 15.0
# Whether a socket can be made now costs no one else anything to try, and a folder that was full tells nobody.
LONGEST_SERVE_PAUSE_S = 5.0
# A registration that has lasted so long, or was shown, was none of those that fail again and again.
STEADY_S = 10.0
# When a kubelet is asked what it shows, after the stream began; then each RECHECK_S.
FIRST_CHECKS_S = (2.0, 10.0)
RECHECK_S = 60.0
# The same while another plugin has the resource: pods have none of it from its end until then.
TAKEN_RECHECK_S = 5.0
# How often, and how many times, a kubelet is asked anew that still shows what was there before Register.
_ASK_AGAIN_S = 0.25
_STILL_SHOWN = 12
# The same for one that is too busy to answer: each time takes as long as it is given (clients.ASK_S).
_STILL_LATE = 3
_PATIENCE = {"ours": _STILL_SHOWN, "others": _STILL_SHOWN, "late": _STILL_LATE}
# A kubelet that is asked while it takes a new list shows the old one: what it shows twice counts.
_TWICE = 2
_CONFIRM_S = 2.0


class Registration:
    """The registration of one resource. ``state`` and ``reason`` are for status and log.

    ``due_s`` is when a ``Tick`` is wanted at the latest, None: not at all. ``is_confirmed``: the kubelet has
    shown our devices. Servers are numbered from 1; ``server`` is the present one, 0: none.
    """

    def __init__(self) -> None:
        self.state: State = "waiting"
        self.reason = ""
        self.server = 0
        self.is_confirmed = False
        self.due_s: float | None = None
        self._servers = 0
        self._kubelet: Identity | None = None
        self._streams = 0
        # The present server listens; the kubelet may know it, so that another registration needs another.
        self._is_served = False
        self._is_known = False
        self._failures = 0
        self._opened_s = 0.0
        # The kubelet needs until then to notice the end of what it was connected to, and so long after each.
        self._quiet_s = 0.0
        self._moment_s = MOMENT_S
        # The last Register, and the one before, which counts where no kubelet can have seen the last one.
        self._registered_s = -MOMENT_S
        self._registered_before_s = -MOMENT_S
        self._checks = 0
        self._doubts = 0
        self._doubt: Shown = "ours"
        self._has_looked = False
        # Another plugin may have the resource: the kubelet is asked before Register.
        self._must_ask = False
        # Without another socket there is no other plugin, whatever the kubelet has not forgotten.
        self._neighbours: frozenset[str] = frozenset()
        self._actions: list[Action] = []

    def take(self, event: Event, now: float) -> tuple[Action, ...]:
        """Return what has to be done, in this order, as EVENT has happened at NOW (monotonic)."""
        self._actions = []
        match event:
            case KubeletSeen():
                self._see(event.identity, now)
            case ShownBy():
                self._compare(event.shown, now)
            case NeighboursSeen():
                self._look_around(event.names, now)
            case Tick():
                if self.due_s is not None and self.due_s <= now:
                    self._wake(now)
            case StreamEnded() if event.server != self.server:
                # The kubelet notices about now, too, that the connection to a former server is over.
                self._keep_quiet(now)
            case _ if event.server == self.server and self.server:
                self._hear(event, now)
        return tuple(self._actions)

    def stop(self) -> tuple[Action, ...]:
        """Return what has to be done as the resource is no longer offered."""
        self._actions = []
        self._drop()
        self.state, self.due_s, self._kubelet = "waiting", None, None
        return tuple(self._actions)

    # Events.

    def _see(self, identity: Identity | None, now: float) -> None:
        # Of another kubelet.sock than the first nobody is a plugin yet.
        is_first, self._has_looked = not self._has_looked, True
        if identity == self._kubelet:
            return
        self._kubelet = identity
        if identity is None:
            # Without its socket a kubelet that watches the list still has it.
            if self.state not in {"registered", "waiting"}:
                self._set("waiting", "the kubelet's socket is gone", None)
            return
        self._failures, self._must_ask = 0, is_first
        # A kubelet that starts removes all sockets, also one that nobody has registered yet.
        self._is_known = True
        self._moment_s = ANEW_S
        self._quiet_s = min(self._quiet_s, now + ANEW_S)
        self._again("there is another kubelet.sock", now)

    def _look_around(self, names: frozenset[str], now: float) -> None:
        if names != self._neighbours and self.state in {"registered", "taken"} and self.due_s is not None:
            self.due_s = min(self.due_s, now + _CONFIRM_S)
        self._neighbours = names

    def _hear(self, event: Event, now: float) -> None:
        """Take an event of the present server."""
        match event:
            case Served() | ServeFailed():
                self._hear_server(event, now)
            case Accepted() | RegisterFailed():
                self._hear_register(event, now)
            case StreamOpened():
                self._open(now)
            case StreamEnded() if self._streams:
                self._streams -= 1
                if not self._streams:
                    self._end(now)
            case SocketGone() if self._is_served and self.state != "taken":
                self._is_known = True
                self._again("its socket was removed", now)

    def _hear_server(self, event: Served | ServeFailed, now: float) -> None:
        if isinstance(event, Served):
            self._is_served = True
            if self.state == "serving":
                self._register(now)
        elif not self._is_served:
            self.server = 0
            if self.state == "serving":
                self._fail(event.reason, now, at_most_s=LONGEST_SERVE_PAUSE_S)

    def _hear_register(self, event: Accepted | RegisterFailed, now: float) -> None:
        self._is_known = self._is_known or isinstance(event, Accepted) or event.was_reached
        if self.state != "registering":
            return
        if not self._is_known:
            self._registered_s = self._registered_before_s
        # Where it has asked for the list it knows us, whatever has become of the answer.
        if isinstance(event, Accepted) or self._streams:
            self._prove(now)
        else:
            self._fail(event.reason, now)

    def _open(self, now: float) -> None:
        self._streams += 1
        self._is_known = True
        if self._streams == 1:
            self._opened_s = now
        if self.state not in {"registering", "registered", "taken"}:
            self._prove(now)

    def _end(self, now: float) -> None:
        self._keep_quiet(now)
        if self.state == "registered":
            if now - self._opened_s >= STEADY_S:
                self._failures = 0
            # Somebody else may have registered the resource: then the kubelet ends our stream.
            self._must_ask, self._doubts = True, 0
            self._fail("the kubelet has ended the stream", now, at_least_s=ENDED_S)
        elif self.state == "taken":
            self._drop()

    def _compare(self, shown: Shown, now: float) -> None:
        if self.state == "taken":
            if shown == "none" or not self._neighbours:
                self._again("nobody else has it any more", now)
        elif self.state == "serving" and self._is_served:
            if self._doubts < _PATIENCE.get(shown, 0):
                # What a former process has left is not forgotten yet, or a busy kubelet may answer now.
                self._doubts, self.due_s = self._doubts + 1, now + _ASK_AGAIN_S
            elif shown in {"ours", "others"} and self._neighbours:
                self._leave(now)
            else:
                self._must_ask = False
                self._register(now)
        elif self.state == "registered":
            if shown in {"ours", "late", "unknown"}:
                self.is_confirmed, self._doubts = shown == "ours", 0
                self._failures = 0 if self.is_confirmed else self._failures
                return
            self._doubts = self._doubts + 1 if shown == self._doubt else 1
            self._doubt = shown
            if self._doubts < _TWICE:
                self.due_s = now + _CONFIRM_S
            elif shown == "others" and self._neighbours:
                self._leave(now)
            else:
                self._fail("the kubelet does not show its devices", now)

    def _wake(self, now: float) -> None:
        """Do what is due."""
        match self.state:
            case "paused":
                self._try(now)
            case "serving" if self._is_served:
                self._register(now)
            case "serving":
                self._fail("its socket was not made in time", now)
            case "registering":
                self._is_known = True
                self._fail("Register was not answered", now)
            case "unproven":
                self._fail(f"the kubelet has not asked for the devices within {PROVE_S:.0f} s", now)
            case "registered":
                self._plan_check(now)
                self._actions.append(AskShown())
            case "taken":
                self.due_s = now + TAKEN_RECHECK_S
                self._actions.append(AskShown())
            case "waiting":
                self.due_s = None

    # Transitions.

    def _try(self, now: float) -> None:
        """Register the present server if the kubelet does not know it yet, else another one."""
        if self._kubelet is None:
            self._set("waiting", self.reason, None)
        elif self._is_served and not self._is_known:
            self._register(now)
        else:
            self._drop()
            self._servers += 1
            self.server = self._servers
            self._set("serving", self.reason, now + LOST_S)
            self._actions.append(Serve(server=self.server))

    def _register(self, now: float) -> None:
        if now < (allowed_s := self._allowed_s()):
            self._set("paused", self.reason, allowed_s)
            return
        if self._must_ask:
            self._set("serving", self.reason, now + LOST_S)
            self._actions.append(AskShown())
            return
        self._registered_before_s, self._registered_s = self._registered_s, now
        self._moment_s = MOMENT_S
        self._set("registering", self.reason, now + LOST_S)
        self._actions.append(Register(server=self.server))

    def _prove(self, now: float) -> None:
        """Note that the kubelet knows the server; it counts once the list was asked for."""
        if not self._streams:
            self._set("unproven", self.reason, now + PROVE_S)
            return
        self.is_confirmed, self._checks, self._doubts = False, 0, 0
        self._set("registered", "", None)
        self._plan_check(self._opened_s)

    def _plan_check(self, now: float) -> None:
        checks = self._checks
        self._checks += 1
        self.due_s = (
            self._opened_s + FIRST_CHECKS_S[checks] if checks < len(FIRST_CHECKS_S) else now + RECHECK_S
        )

    def _fail(
        self, reason: str, now: float, *, at_least_s: float = 0.0, at_most_s: float = LONGEST_PAUSE_S
    ) -> None:
        """Try again after a while, which grows with each failure in a row."""
        pause_s = min(at_most_s, MOMENT_S * 2.0**self._failures)
        # Beyond the longest pause more failures change nothing, and 2.0**1024 is no number.
        self._failures = min(self._failures + 1, 16)
        self._again(reason, now, after_s=max(pause_s, at_least_s))

    def _again(self, reason: str, now: float, *, after_s: float = 0.0) -> None:
        """Register AFTER_S from now, or later if the kubelet needs a moment; at once if it may be now."""
        if self._is_known or not self._is_served:
            self._drop_at(now)
        self._set("paused", reason, max(now + after_s, self._allowed_s()))
        if self.due_s is not None and self.due_s <= now:
            self._try(now)

    def _leave(self, now: float) -> None:
        """Leave the resource to the other plugin.

        A stream that is still open stays: at its end kubelets up to 1.35 would take the other's for ours.
        """
        if not self._streams:
            self._drop()
        self.is_confirmed, self._must_ask, self._doubts = False, True, 0
        self._set("taken", "another device plugin has registered it", now + TAKEN_RECHECK_S)

    def _drop_at(self, now: float) -> None:
        if self._streams:
            # The kubelet is connected until now.
            self._keep_quiet(now)
        self._drop()

    def _drop(self) -> None:
        if self.server:
            self._actions.append(Stop(server=self.server))
        self.server, self._streams, self._is_served, self._is_known = 0, 0, False, False
        self.is_confirmed = False

    def _allowed_s(self) -> float:
        """Return when Register may be called next."""
        return max(self._quiet_s, self._registered_s + MOMENT_S)

    def _keep_quiet(self, now: float) -> None:
        self._quiet_s = max(self._quiet_s, now + self._moment_s)
        if self.state == "paused" and self.due_s is not None:
            self.due_s = max(self.due_s, self._quiet_s)

    def _set(self, state: State, reason: str, due_s: float | None) -> None:
        self.state, self.reason, self.due_s = state, reason, due_s


def compared(shown: dict[str, frozenset[str]], resource: str, healthy: frozenset[str]) -> Shown:
    """Return whose devices the kubelet shows for RESOURCE, of which we have offered the HEALTHY ones."""
    if not healthy:
        # Nothing of ours is to be seen; what others have is.
        return "others" if shown.get(resource) else "unknown"
    ids = shown.get(resource, frozenset())
    if not ids:
        return "none"
    return "ours" if ids & healthy else "others"
