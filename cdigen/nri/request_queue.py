"""``RequestQueue``: the runtime's requests on one connection, and one response to each request.

If the host has changed since cdigen read its state, a request waits for the new state. The request waits at
most half of the runtime's timeout. Then the plugin refuses the request. If the runtime got no response, it
would start the container without its GPU.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from cdigen.nri import events
from cdigen.nri.decision.decide import IgnoredRequest
from cdigen.nri.decision.limits.policy import needs_decision, requests_devices
from cdigen.nri.decision.result import handover, injection
from cdigen.nri.decision.result.adjustments import apply_adjustment, find_conflicting_plugin
from cdigen.nri.injected_containers import MAX_DEVICES, InjectedContainer
from cdigen.nri.pods import Adjustment, container_name, shorten
from cdigen.nri.wire.session import CreateContainer, SessionError, ValidateAdjustment
from cdigen.service.descriptors import MessageError
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.decision.result.compat import Abilities
    from cdigen.nri.decision.result.injection import AdjustmentValidation, InjectionResult
    from cdigen.nri.shared_state import SharedState
    from cdigen.nri.wire.session import Session

    Request = CreateContainer | ValidateAdjustment

# Seconds. The default of plugin_request_timeout, for runtimes that do not report this value (NRI up to 0.6).
REQUEST_TIMEOUT_S = 2.0
# A request waits at most for this part of the runtime's timeout. The transport needs some of the rest.
WAIT_FRACTION = 0.5
# The maximum number of waiting requests. A request has up to 4 MiB. A runtime sends one request at a time,
# because pkg/adaptation holds a lock.
_MAX_WAITING = 256
# A new spec can remove these causes of ignored requests.
_SPEC_CAUSES = frozenset(("none", "no_spec"))
# A standby instance counts only these outcomes. The active instance counts the other outcomes.
_OWN_OUTCOMES = frozenset(("inject", "refuse"))
_BY_OTHER_INSTANCE = IgnoredRequest(
    cause="served", text="another instance of cdigen has injected the devices of the container"
)
_NOTHING = injection.InjectionResult(outcome="nothing")
_REMOVED = "the container would start without {}, which another instance of cdigen has injected"
_STOPPING = "the plugin is stopping"
_LATE = "the devices of this host could not be read within {:.2g} s"


@frozen
class _PendingRequest:
    """A request, the time of its arrival and the time when its response is due (time.monotonic)."""

    request: Request
    received_s: float
    due_s: float


class RequestQueue:
    """Responds to the requests of SESSION.

    SHARED contains the inputs of the responses. SEND sends bytes to the runtime.
    """

    def __init__(self, session: Session, shared: SharedState, send: Callable[[bytes], None]) -> None:
        self._session, self._shared, self._send = session, shared, send
        self._pending: deque[_PendingRequest] = deque()
        # The last context that was too old for a decision about the pending requests.
        self._outdated: DecisionContext | None = None
        self._abilities: Abilities | None = None
        self._plugins: tuple[str, ...] = ()
        self._limit_s = REQUEST_TIMEOUT_S
        self._is_closed = False

    def configure(self, abilities: Abilities, limit_s: float) -> None:
        """Set the ABILITIES of the runtime, and LIMIT_S, its timeout for a request."""
        self._abilities, self._limit_s = abilities, limit_s

    def next_due_s(self) -> float | None:
        """Return the time when the next response is due, or None if no request is pending.

        The time is a value of time.monotonic.
        """
        return min((pending.due_s for pending in self._pending), default=None)

    def close(self) -> None:
        """Refuse the pending requests, and all later requests that need a new host state."""
        self._is_closed = True
        while self._pending:
            self._refuse(self._pending.popleft(), _STOPPING)

    def add(self, request: Request) -> None:
        """Respond to REQUEST now, or later if the decision needs a new host state."""
        now = time.monotonic()
        limit_s = self._limit_s if request.timeout_s is None else min(self._limit_s, request.timeout_s)
        pending = _PendingRequest(request=request, received_s=now, due_s=now + WAIT_FRACTION * limit_s)
        try:
            is_answered = self._is_soon_answered(pending)
        except Exception as error:  # noqa: BLE001 - a defect must not start a container without its GPU
            self._refuse(pending, _defect(error), cause="defect")
            return
        if not is_answered:
            self._wait(pending)

    def process(self) -> None:
        """Respond to the pending requests if there is a new context, and refuse overdue requests."""
        context = self._shared.context
        is_new = context is not self._outdated
        self._outdated = context
        for _ in range(len(self._pending)):
            pending = self._pending.popleft()
            if is_new and context is not None and self._is_answered(pending, context):
                continue
            if time.monotonic() >= pending.due_s:
                self._refuse(pending, _LATE.format(pending.due_s - pending.received_s))
            else:
                self._pending.append(pending)

    def _is_soon_answered(self, pending: _PendingRequest) -> bool:
        """Respond to the request if no wait is necessary; return whether a response was sent."""
        request, shared = pending.request, self._shared
        pod, container = request.pod, request.container
        if self._is_handled_by_other(request):
            return True
        if isinstance(request, ValidateAdjustment):
            container = apply_adjustment(container, request.adjustment)
        if shared.problem:
            if requests_devices(pod, container):
                self._refuse(pending, shared.problem, cause="configuration")
            else:
                self._respond(pending, _NOTHING)
            return True
        context = shared.context
        if (
            context is None
            and shared.policy is not None
            and not needs_decision(pod, container, shared.policy)
        ):
            self._respond(pending, _NOTHING)
            return True
        return context is not None and self._is_answered(pending, context)

    def _is_handled_by_other(self, request: Request) -> bool:
        """Respond to REQUEST if another instance has injected devices into the container.

        Return whether a response was sent.
        """
        shared = self._shared
        if isinstance(request, CreateContainer):
            # A valid marker comes only from an instance that the runtime called before this instance.
            devices = handover.verified_markers(request.container)
            if devices is not None:
                self._leave_to_other_instance(request, devices)
            return devices is not None
        adjustment = request.adjustment
        devices = handover.by_other_instance(request.container, adjustment, instance=shared.instance)
        if devices is None:
            return False
        # The other instance compares these devices with the request, according to its own configuration.
        removed = [name for name in devices if name not in adjustment.cdi_devices]
        self._note_plugins(request)
        is_incomplete = removed and self._runtime_abilities().cdi == "injects"
        self._send_validation(request, _REMOVED.format(removed[0]) if is_incomplete else "")
        return True

    def _leave_to_other_instance(self, request: CreateContainer, devices: tuple[str, ...]) -> None:
        """Respond without changes, because another instance injected DEVICES and counted the container."""
        self._send(self._session.adjust(request.call, Adjustment()))
        self._note_injected(request, devices)
        result = injection.InjectionResult(
            outcome="served", devices=devices, ignored_requests=(_BY_OTHER_INSTANCE,)
        )
        self._report(request, result, 0.0)

    def _respond(self, pending: _PendingRequest, result: InjectionResult) -> None:
        """Respond with RESULT, which depends on no context."""
        if isinstance(pending.request, ValidateAdjustment):
            self._send_validation(pending.request, result.reason)
        else:
            self._finish(pending.request, pending, result)

    def _wait(self, pending: _PendingRequest) -> None:
        if self._is_closed:
            self._refuse(pending, _STOPPING)
        elif len(self._pending) >= _MAX_WAITING:
            self._refuse(pending, "too many containers wait for the devices of this host")
        else:
            self._pending.append(pending)
            self._shared.request_context()

    def _is_answered(self, pending: _PendingRequest, context: DecisionContext) -> bool:
        """Respond according to CONTEXT; return whether a response was sent.

        There is no response if the host has changed since CONTEXT was read.
        """
        request = pending.request
        if isinstance(request, ValidateAdjustment):
            return self._is_validated(request, pending, context)
        return self._is_created(request, pending, context)

    def _is_created(
        self, request: CreateContainer, pending: _PendingRequest, context: DecisionContext
    ) -> bool:
        try:
            result = injection.adjust_container(
                request.pod, request.container, context, self._runtime_abilities()
            )
            if _depends_on_host(result) and not _is_new(context, pending):
                return False
        except Exception as error:  # noqa: BLE001 - a defect must not start a container without its GPU
            result = injection.refuse_container("defect", _defect(error))
        self._finish(request, pending, result)
        return True

    def _finish(self, request: CreateContainer, pending: _PendingRequest, result: InjectionResult) -> None:
        """Count RESULT, send the response, and add the event.

        On standby, this instance counts and reports a container only if it injects devices or refuses the
        container. The active instance counts all other containers.
        """
        sent = b""
        if result.outcome != "refuse":
            try:
                sent = self._session.adjust(request.call, self._with_target(request, result))
            except MessageError as error:
                result = injection.refuse_container(
                    "too_much", f"the response for the container is too large: {error}"
                )
            except Exception as error:  # noqa: BLE001 - a defect must not start a container without its GPU
                result = injection.refuse_container("defect", _defect(error))
        duration_s = time.monotonic() - pending.received_s
        is_ours = not self._shared.is_standby or result.outcome in _OWN_OUTCOMES
        if is_ours:
            self._shared.metrics.count(result, duration_s)
        self._send(sent or self._session.refuse(request.call, _prefixed(result.reason)))
        if result.outcome == "inject":
            self._note_injected(request, result.devices)
        if is_ours and (result.outcome != "nothing" or result.ignored_requests):
            self._report(request, result, duration_s)

    def _report(self, request: CreateContainer, result: InjectionResult, duration_s: float) -> None:
        name = container_name(request.pod, request.container)
        self._shared.add_event(
            events.ContainerDecided(name=name, result=events.summarize(result), duration_s=duration_s)
        )

    def _with_target(self, request: CreateContainer, result: InjectionResult) -> Adjustment:
        """Return the adjustment of RESULT.

        If RESULT injects devices, the adjustment also has the annotation that other instances verify.
        """
        adjustment = result.adjustment
        if result.outcome != "inject":
            return adjustment
        target = handover.injected_into(request.container, self._shared.instance)
        return replace(
            adjustment, annotations={**adjustment.annotations, handover.INJECTED_INTO_ANNOTATION: target}
        )

    def _note_injected(self, request: CreateContainer, devices: tuple[str, ...]) -> None:
        self._shared.injected.add(
            InjectedContainer(
                id=request.container.id,
                name=container_name(request.pod, request.container),
                devices=devices[:MAX_DEVICES],
                at_s=time.time(),
            )
        )

    def _is_validated(
        self, request: ValidateAdjustment, pending: _PendingRequest, context: DecisionContext
    ) -> bool:
        self._note_plugins(request)
        try:
            validation = injection.validate_adjustment(
                request.pod, request.container, request.adjustment, context, self._runtime_abilities()
            )
        except Exception as error:  # noqa: BLE001 - a defect must not start a container without its GPU
            validation = injection.AdjustmentValidation(reason=_defect(error))
        if validation.reason and not _is_new(context, pending):
            return False
        self._send_validation(request, *self._reason_with_plugin(request, validation, context))
        return True

    def _note_plugins(self, request: ValidateAdjustment) -> None:
        if request.plugins != self._plugins:
            self._plugins = request.plugins
            self._shared.add_event(events.PluginsChanged(plugins=request.plugins))

    def _reason_with_plugin(
        self, request: ValidateAdjustment, validation: AdjustmentValidation, context: DecisionContext
    ) -> tuple[str, str]:
        """Return the reason for a rejection, and the name of the plugin that caused the rejection.

        The reason also contains this name. Both values are "" if VALIDATION has no reason. The name is "" if
        the plugin is unknown.
        """
        if not validation.reason:
            return "", ""
        validate = partial(
            injection.validate_adjustment, request.pod, context=context, abilities=self._runtime_abilities()
        )
        try:
            container, adjustment = request.container, request.adjustment
            plugin, action = find_conflicting_plugin(
                validate, validation, container, adjustment, request.owners(), own=self._session.plugin
            )
        except Exception:  # noqa: BLE001 - the container is refused in any case
            plugin, action = "", ""
        return f"{validation.reason}: the plugin {plugin} {action}" if plugin else validation.reason, plugin

    def _send_validation(self, request: ValidateAdjustment, problem: str, plugin: str = "") -> None:
        if problem or not self._shared.is_standby:
            self._shared.metrics.validations["rejected" if problem else "passed"] += 1
        self._send(self._session.validate(request.call, _prefixed(problem) if problem else ""))
        if problem:
            self._shared.add_event(
                events.ContainerRejected(
                    name=container_name(request.pod, request.container),
                    reason=shorten(problem),
                    plugin=plugin,
                )
            )

    def _refuse(self, pending: _PendingRequest, reason: str, cause: str = "late") -> None:
        self._respond(pending, injection.refuse_container(cause, reason))

    def _runtime_abilities(self) -> Abilities:
        # This error cannot occur, because the session refuses every request before Configure.
        if self._abilities is None:
            raise SessionError("the runtime sent a request before Configure")
        return self._abilities


def _depends_on_host(result: InjectionResult) -> bool:
    """Return whether a new state of the host can change RESULT."""
    return result.outcome in {"inject", "refuse"} or any(
        ignored.cause in _SPEC_CAUSES for ignored in result.ignored_requests
    )


def _is_new(context: DecisionContext, pending: _PendingRequest) -> bool:
    """Return whether CONTEXT is newer than the request, or still matches the host."""
    return context.host.begun_s >= pending.received_s or context.host.is_current()


def _prefixed(text: str) -> str:
    # The text appears among messages of other programs, mainly in the events of the kubelet.
    return f"cdigen: {text}"


def _defect(error: Exception) -> str:
    return f"cdigen has a defect: {type(error).__name__}: {error}"
