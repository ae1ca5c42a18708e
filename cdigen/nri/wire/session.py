"""One registration with a runtime, from RegisterPlugin to the end of the connection: ``Session``.

Bytes from the socket go in, events and bytes for the socket come out. What has a ``call`` is a question: each
is answered once, by ``subscribe``, ``adjust``, ``validate`` or ``refuse``, in any order and before its time
is over. A call that is not answered in time counts as one that has nothing to change, and the container
starts without its GPU; a refusal fails it. Whatever else the runtime calls is answered here.
"""

from __future__ import annotations

from functools import partial

from cdigen.nri.pods import shorten
from cdigen.nri.wire import messages, mux, ttrpc
from cdigen.nri.wire.messages import TtrpcRequest
from cdigen.nri.wire.protobuf import MessageError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.pods import Adjustment, Container, Owners, Pod
    from cdigen.nri.wire.messages import RuntimeInfo, SynchronizePart

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"

# How long the runtime may take with the registration. It begins to count on its side only when it accepts,
# which a busy one does late: the 5 s of NRI's own stub were too short for some (nri#292).
REGISTER_TIMEOUT_S = 30
_REGISTER_STREAM = 1

# gRPC's codes. Never 4 or 14: they are what Go's own faults look like, of which some end the connection.
UNKNOWN = 2
INVALID_ARGUMENT = 3
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
UNIMPLEMENTED = 12  # what newer runtimes take for "too old": they then call StateChange

# Calls about one container, which come after Configure was answered.
_QUESTIONS = ("CreateContainer", "ValidateContainerAdjustment")
# Calls that ask for nothing: events, each a method since NRI 0.12 and most of them StateChange before, and
# the end of the runtime. A runtime sends only events that were subscribed to.
NOTIFICATIONS = (
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "UpdateContainer",
    "PostUpdateContainer",
    "StopContainer",
    "RemoveContainer",
    "UpdatePodSandbox",
    "PostUpdatePodSandbox",
    "StateChange",
    "Shutdown",
)


class SessionError(ValueError):
    """Report in one line why the connection cannot go on; close it, and begin anew."""


@frozen
class Registered:
    """The runtime has accepted the registration; its ``Configure`` may have come before."""


@frozen
class Configure:
    """The runtime introduces itself: ``subscribe`` to events."""

    call: int
    timeout_s: float | None
    configuration: RuntimeInfo


@frozen
class Synchronize:
    """Pods and containers that were there already, all or a part of them; answered here.

    A container's pod may come in another part. The runtime waits 2 s for the answers to all parts, so that
    what is to be sent goes first, and then the part is looked at.
    """

    part: SynchronizePart


@frozen
class CreateContainer:
    """A container is about to be created: ``adjust`` it."""

    call: int
    timeout_s: float | None
    pod: Pod
    container: Container


@frozen
class ValidateAdjustment:
    """What all ``plugins`` have done to a container (``20-cdigen``) is to be judged: ``validate`` it.

    ``container`` is as it was asked for; ``owners`` reads whose part is whose.
    """

    call: int
    timeout_s: float | None
    pod: Pod
    container: Container
    adjustment: Adjustment
    plugins: tuple[str, ...]
    owners: Callable[[], Owners]


@frozen
class ContainerRemoved:
    """The runtime has removed the ``container`` of this id."""

    container: str


@frozen
class InvalidCall:
    """A call that was answered here with an error, since it cannot be read or is not known; texts are cut."""

    method: str
    code: int
    message: str


SessionEvent = (
    Registered
    | Configure
    | Synchronize
    | CreateContainer
    | ValidateAdjustment
    | ContainerRemoved
    | InvalidCall
)


class Session:
    """A registration of the plugin NAME, which is called in the order of INDEX, two digits."""

    def __init__(self, name: str, index: str) -> None:
        self._name = name
        self._index = index
        self._mux = mux.Mux()
        self._plugin = ttrpc.Decoder()
        self._runtime = ttrpc.Decoder()
        self._last_stream = 0
        self._open: set[int] = set()
        self._is_configured = False
        self._serve: dict[str, Callable[[int, TtrpcRequest], tuple[bytes, SessionEvent | None]]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create,
            "ValidateContainerAdjustment": self._validate,
            **dict.fromkeys(NOTIFICATIONS, self._acknowledge),
            "RemoveContainer": partial(self._removed, messages.read_remove),
            "StateChange": partial(self._removed, messages.read_change),
        }

    @property
    def plugin(self) -> str:
        """The plugin as the runtime names it to others: ``20-cdigen``."""
        return f"{self._index}-{self._name}"

    def start(self) -> bytes:
        """Return what to send first: the registration. Calls may come before its answer."""
        request = TtrpcRequest(
            service=RUNTIME_SERVICE,
            method="RegisterPlugin",
            payload=messages.write_register(self._name, self._index),
            timeout_ns=REGISTER_TIMEOUT_S * 1_000_000_000,
        )
        data = ttrpc.encode(ttrpc.REQUEST, _REGISTER_STREAM, messages.write_request(request))
        return mux.frames(mux.RUNTIME, data)

    def feed(self, data: bytes) -> tuple[bytes, list[SessionEvent]]:
        """Return what to send for DATA, the next bytes of the socket, and what they bring.

        SessionError: the bytes are not NRI, or the runtime refuses the registration.
        """
        sent: list[bytes] = []
        events: list[SessionEvent] = []
        try:
            for connection, piece in self._mux.feed(data):
                if connection == mux.RUNTIME:
                    events += [event for one in self._runtime.feed(piece) for event in _registered(one)]
                    continue
                for message in self._plugin.feed(piece):
                    if message.kind == ttrpc.REQUEST:
                        answer, event = self._called(message)
                        sent.append(answer)
                        if event is not None:
                            events.append(event)
        except (mux.MuxError, ttrpc.TtrpcError) as error:
            raise SessionError(f"the runtime's bytes are out of step: {error}") from None
        return b"".join(sent), events

    def subscribe(self, call: int, events: int) -> bytes:
        """Return what answers Configure with the mask EVENTS; a bit that the runtime does not know ends all.

        0 means all events there. Each answer is empty if the call has been answered before, and MessageError
        is raised if it does not fit into a message: then refuse the call.
        """
        self._is_configured = True
        return self._answer(call, messages.write_configured(events))

    def adjust(self, call: int, adjustment: Adjustment) -> bytes:
        """Return what answers CreateContainer with ADJUSTMENT, in which all names are different."""
        return self._answer(call, messages.write_created(adjustment))

    def validate(self, call: int, reason: str = "") -> bytes:
        """Return what answers ValidateContainerAdjustment: no, for REASON, or yes if that is empty."""
        return self._answer(call, messages.write_validated(reason))

    def refuse(self, call: int, message: str) -> bytes:
        """Return what fails any call with MESSAGE, which users see. Nothing is raised."""
        if call not in self._open:
            return b""
        self._open.discard(call)
        return _framed(call, messages.write_error(UNKNOWN, message))

    def _answer(self, call: int, payload: bytes) -> bytes:
        if call not in self._open:
            return b""
        try:
            answer = _framed(call, messages.write_response(payload))
        except ttrpc.TtrpcError as error:
            raise MessageError(f"the answer cannot be sent: {error}") from None
        self._open.discard(call)
        return answer

    def _called(self, message: ttrpc.Message) -> tuple[bytes, SessionEvent | None]:
        """Return the answer to MESSAGE, nothing where others give it, and what it brings."""
        stream = message.stream
        if problem := ttrpc.wrong_stream(stream, self._last_stream):
            return _refused(stream, "", INVALID_ARGUMENT, problem)
        self._last_stream = stream
        if message.is_too_long:
            problem = f"message length {message.length} exceed maximum message size of {ttrpc.MAX_DATA}"
            return _refused(stream, "", RESOURCE_EXHAUSTED, problem)
        method = ""
        try:
            request = messages.read_request(message.data)
            method = request.method
            if request.service != PLUGIN_SERVICE or method not in self._serve:
                return _refused(stream, method, UNIMPLEMENTED, f"method {request.service}/{method}")
            if method in _QUESTIONS and not self._is_configured:
                return _refused(stream, method, FAILED_PRECONDITION, "the plugin is not configured yet")
            return self._serve[method](stream, request)
        except MessageError as error:
            return _refused(stream, method, INVALID_ARGUMENT, str(error))

    def _configure(self, stream: int, request: TtrpcRequest) -> tuple[bytes, SessionEvent]:
        configuration = messages.read_configure(request.payload)
        self._open.add(stream)
        return b"", Configure(call=stream, timeout_s=_timeout_s(request), configuration=configuration)

    def _synchronize(self, stream: int, request: TtrpcRequest) -> tuple[bytes, SessionEvent]:
        part = messages.read_synchronize(request.payload)
        payload = messages.write_synchronized(more=part.more)
        return _framed(stream, messages.write_response(payload)), Synchronize(part=part)

    def _create(self, stream: int, request: TtrpcRequest) -> tuple[bytes, SessionEvent]:
        pod, container = messages.read_create(request.payload)
        self._open.add(stream)
        event = CreateContainer(call=stream, timeout_s=_timeout_s(request), pod=pod, container=container)
        return b"", event

    def _validate(self, stream: int, request: TtrpcRequest) -> tuple[bytes, SessionEvent]:
        pod, container, adjustment, plugins, owners = messages.read_validate(request.payload)
        self._open.add(stream)
        event = ValidateAdjustment(
            call=stream,
            timeout_s=_timeout_s(request),
            pod=pod,
            container=container,
            adjustment=adjustment,
            plugins=plugins,
            owners=owners,
        )
        return b"", event

    def _removed(
        self, read: Callable[[bytes], str], stream: int, request: TtrpcRequest
    ) -> tuple[bytes, SessionEvent | None]:
        """Acknowledge what READ may find to be a removal; who tells and does not ask is never refused."""
        answer = _framed(stream, messages.write_response(b""))
        try:
            container = read(request.payload)
        except MessageError:
            container = ""
        return answer, ContainerRemoved(container=container) if container else None

    def _acknowledge(self, stream: int, _: TtrpcRequest) -> tuple[bytes, None]:
        return _framed(stream, messages.write_response(b"")), None


def _registered(message: ttrpc.Message) -> list[SessionEvent]:
    """Return what MESSAGE says of the registration; SessionError where that is refused."""
    if message.kind != ttrpc.RESPONSE or message.stream != _REGISTER_STREAM:
        return []
    try:
        response = messages.read_response(message.data)
    except MessageError as error:
        raise SessionError(f"the runtime's answer to the registration cannot be read: {error}") from None
    if response.code:
        raise SessionError(f"the runtime refuses the plugin: {response.message} (code {response.code})")
    return [Registered()]


def _refused(stream: int, method: str, code: int, message: str) -> tuple[bytes, SessionEvent]:
    answer = _framed(stream, messages.write_error(code, message))
    return answer, InvalidCall(method=shorten(method), code=code, message=shorten(message))


def _framed(stream: int, response: bytes) -> bytes:
    return mux.frames(mux.PLUGIN, ttrpc.encode(ttrpc.RESPONSE, stream, response))


def _timeout_s(request: TtrpcRequest) -> float | None:
    """Return how many seconds are left for REQUEST; 0 where its time is over, None where it has all."""
    return max(0.0, request.timeout_ns / 1e9) if request.timeout_ns else None
