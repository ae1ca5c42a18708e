"""``Session``: one registration with a runtime, from RegisterPlugin to the end of the connection.

The input is bytes from the socket. The output is events, and bytes for the socket. The caller responds once
to each event that has a ``call``. The response comes from ``subscribe``, ``adjust``, ``validate`` or
``refuse``. The order of the responses is free, but each response must be sent before its timeout. Without a
response, the runtime starts the container without changes, and so without its GPU. After a refusal, the
runtime's call fails. The session itself responds to all other calls.
"""

from __future__ import annotations

from functools import partial

from cdigen.nri.pods import shorten
from cdigen.nri.wire import messages, mux, ttrpc
from cdigen.nri.wire.messages import TtrpcRequest
from cdigen.service.descriptors import MessageError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.pods import Adjustment, AdjustmentOwners, Container, Pod
    from cdigen.nri.wire.messages import RuntimeInfo, SynchronizePart

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"

# Seconds. The runtime has its own timeout, which starts when it accepts the connection. A busy runtime
# accepts late. The 5 s of NRI's own stub were too short on some hosts (nri#292).
REGISTER_TIMEOUT_S = 30
_REGISTER_STREAM = 1

# gRPC codes. cdigen does not use the codes 4 and 14, because Go's own errors have these codes, and some of
# these errors end the connection.
UNKNOWN = 2
INVALID_ARGUMENT = 3
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
UNIMPLEMENTED = 12  # after this code, newer runtimes call StateChange

# Calls about one container. They are valid only after the response to Configure.
_REQUESTS = ("CreateContainer", "ValidateContainerAdjustment")
# Calls without a result: the events, and the shutdown of the runtime. Since NRI 0.12, each event has its own
# method. Before NRI 0.12, most events use StateChange. A runtime sends only subscribed events.
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
    """The error for a connection that cannot continue; its text has one line.

    The caller must close the connection, and can connect again.
    """


@frozen
class Registered:
    """The runtime has accepted the registration; ``Configure`` can come before or after this event."""


@frozen
class Configure:
    """The runtime configures the plugin; respond with ``subscribe``."""

    call: int
    timeout_s: float | None
    configuration: RuntimeInfo


@frozen
class Synchronize:
    """The runtime has sent a part of the existing pods and containers.

    ``feed`` returns the response together with this event. The runtime waits 2 s for the responses to all
    parts, so the caller sends the response before it processes the part. A container and its pod can be in
    different parts.
    """

    part: SynchronizePart


@frozen
class CreateContainer:
    """The runtime is about to create a container; respond with ``adjust``."""

    call: int
    timeout_s: float | None
    pod: Pod
    container: Container


@frozen
class ValidateAdjustment:
    """The runtime requests the validation of an adjustment; respond with ``validate``.

    ``container`` is the original container. ``adjustment`` contains the changes of all ``plugins`` (such as
    ``20-cdigen``). ``owners`` returns the plugin of each change; the call decodes this part of the request.
    """

    call: int
    timeout_s: float | None
    pod: Pod
    container: Container
    adjustment: Adjustment
    plugins: tuple[str, ...]
    owners: Callable[[], AdjustmentOwners]


@frozen
class ContainerRemoved:
    """The runtime has removed a container; ``container`` is the id."""

    container: str


@frozen
class InvalidCall:
    """The session has rejected an invalid or unknown call; the texts are shortened."""

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
    """A registration of the plugin NAME.

    INDEX has two digits. The runtime calls plugins in the order of their indices.
    """

    def __init__(self, name: str, index: str) -> None:
        self._name = name
        self._index = index
        self._mux = mux.Mux()
        self._plugin = ttrpc.Decoder()
        self._runtime = ttrpc.Decoder()
        self._last_stream = 0
        self._open: set[int] = set()
        self._is_configured = False
        self._handlers: dict[str, Callable[[int, TtrpcRequest], tuple[bytes, SessionEvent | None]]] = {
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
        """The name of the plugin in the runtime, such as ``20-cdigen``."""
        return f"{self._index}-{self._name}"

    def start(self) -> bytes:
        """Return the bytes of the registration request.

        Calls of the runtime can arrive before the response to this request.
        """
        request = TtrpcRequest(
            service=RUNTIME_SERVICE,
            method="RegisterPlugin",
            payload=messages.write_register(self._name, self._index),
            timeout_ns=REGISTER_TIMEOUT_S * 1_000_000_000,
        )
        data = ttrpc.encode(ttrpc.REQUEST, _REGISTER_STREAM, messages.write_request(request))
        return mux.frames(mux.RUNTIME, data)

    def feed(self, data: bytes) -> tuple[bytes, list[SessionEvent]]:
        """Return the bytes to send, and the events in DATA.

        DATA are the next bytes from the socket. Raise SessionError if the bytes are not valid, or if the
        runtime refuses the registration.
        """
        sent: list[bytes] = []
        events: list[SessionEvent] = []
        try:
            for connection, piece in self._mux.feed(data):
                if connection == mux.RUNTIME:
                    for message in self._runtime.feed(piece):
                        events += _registration_events(message)
                    continue
                for message in self._plugin.feed(piece):
                    if message.kind == ttrpc.REQUEST:
                        response, event = self._handle(message)
                        sent.append(response)
                        if event is not None:
                            events.append(event)
        except (mux.MuxError, ttrpc.TtrpcError) as error:
            raise SessionError(f"the bytes from the runtime are invalid: {error}") from None
        return b"".join(sent), events

    def subscribe(self, call: int, events: int) -> bytes:
        """Return the response to Configure, which subscribes to EVENTS, a mask of events.

        The mask 0 means all events. The runtime disconnects if the mask has an unknown bit.

        ``subscribe``, ``adjust`` and ``validate`` return b"" if the call already has a response. They raise
        MessageError if the response is too long for a message. The caller then refuses the call.
        """
        self._is_configured = True
        return self._respond(call, messages.write_configured(events))

    def adjust(self, call: int, adjustment: Adjustment) -> bytes:
        """Return the response to CreateContainer with ADJUSTMENT; all names in ADJUSTMENT must differ."""
        return self._respond(call, messages.write_created(adjustment))

    def validate(self, call: int, reason: str = "") -> bytes:
        """Return the response to ValidateContainerAdjustment, a rejection if REASON is not empty."""
        return self._respond(call, messages.write_validated(reason))

    def refuse(self, call: int, message: str) -> bytes:
        """Return an error response with MESSAGE, which users see; raise no errors."""
        if call not in self._open:
            return b""
        self._open.discard(call)
        return _framed(call, messages.write_error(UNKNOWN, message))

    def _respond(self, call: int, payload: bytes) -> bytes:
        if call not in self._open:
            return b""
        try:
            response = _framed(call, messages.write_response(payload))
        except ttrpc.TtrpcError as error:
            raise MessageError(f"the response cannot be sent: {error}") from None
        self._open.discard(call)
        return response

    def _handle(self, message: ttrpc.Message) -> tuple[bytes, SessionEvent | None]:
        """Return the response to MESSAGE, and its event or None.

        The response is empty if the caller must respond.
        """
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
            if request.service != PLUGIN_SERVICE or method not in self._handlers:
                return _refused(stream, method, UNIMPLEMENTED, f"method {request.service}/{method}")
            if method in _REQUESTS and not self._is_configured:
                return _refused(stream, method, FAILED_PRECONDITION, "the plugin is not configured yet")
            return self._handlers[method](stream, request)
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
        """Return the response to a notification, and an event if the notification reports a removal.

        READ returns the id of the removed container, or "".
        """
        response = _framed(stream, messages.write_response(b""))
        try:
            container = read(request.payload)
        except MessageError:
            container = ""
        return response, ContainerRemoved(container=container) if container else None

    def _acknowledge(self, stream: int, _: TtrpcRequest) -> tuple[bytes, None]:
        return _framed(stream, messages.write_response(b"")), None


def _registration_events(message: ttrpc.Message) -> list[SessionEvent]:
    """Return the event for MESSAGE if MESSAGE is the response to the registration.

    Raise SessionError if the response is invalid, or if the runtime refuses the registration.
    """
    if message.kind != ttrpc.RESPONSE or message.stream != _REGISTER_STREAM:
        return []
    try:
        response = messages.read_response(message.data)
    except MessageError as error:
        raise SessionError(f"the runtime's response to the registration is invalid: {error}") from None
    if response.code:
        raise SessionError(f"the runtime refuses the plugin: {response.message} (code {response.code})")
    return [Registered()]


def _refused(stream: int, method: str, code: int, message: str) -> tuple[bytes, SessionEvent]:
    response = _framed(stream, messages.write_error(code, message))
    return response, InvalidCall(method=shorten(method), code=code, message=shorten(message))


def _framed(stream: int, response: bytes) -> bytes:
    return mux.frames(mux.PLUGIN, ttrpc.encode(ttrpc.RESPONSE, stream, response))


def _timeout_s(request: TtrpcRequest) -> float | None:
    """Return the remaining seconds for REQUEST, or None if there is no timeout.

    The result is 0 after the timeout.
    """
    return max(0.0, request.timeout_ns / 1e9) if request.timeout_ns else None
