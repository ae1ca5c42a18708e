"""A session without a socket: its other end is a double of a runtime, or the test itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from support.nri.runtime import PLUGIN, Runtime

from cdigen.nri.pods import Adjustment
from cdigen.nri.wire import mux, ttrpc
from cdigen.nri.wire.messages import CLASSES, read_response
from cdigen.nri.wire.session import Configure, CreateContainer, Session, ValidateAdjustment

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.wire.session import SessionEvent

T = TypeVar("T")
GPU = Adjustment(cdi_devices=("nvidia.com/gpu=0",))


class Directly:
    """A transport to SESSION, which receives STEP bytes at a time; RESPOND responds to its events."""

    def __init__(
        self, session: Session, respond: Callable[[Session, SessionEvent], bytes], *, step: int = 1 << 30
    ) -> None:
        self.session = session
        self.events: list[SessionEvent] = []
        self.is_closed = False
        self._respond = respond
        self._step = step
        self._sent = session.start()

    def send(self, data: bytes) -> None:
        for at in range(0, len(data), self._step):
            sent, events = self.session.feed(data[at : at + self._step])
            self.events += events
            self.answer(sent, *[self._respond(self.session, event) for event in events])

    def answer(self, *answers: bytes) -> None:
        """Send a response later than its event."""
        self._sent += b"".join(answers)

    def receive(self, timeout_s: float) -> bytes:
        if not self._sent:
            raise TimeoutError(timeout_s)
        sent, self._sent = self._sent, b""
        return sent

    def close(self) -> None:
        self.is_closed = True


def gives_gpu(session: Session, event: SessionEvent) -> bytes:
    """Respond as a plugin that injects a GPU into each container."""
    match event:
        case Configure(call=call):
            return session.subscribe(call, 0x0008)
        case CreateContainer(call=call):
            return session.adjust(call, GPU)
        case ValidateAdjustment(call=call):
            return session.validate(call)
        case _:
            return b""


def ignores_requests(session: Session, event: SessionEvent) -> bytes:
    """Respond to the configuration, and to nothing else."""
    return session.subscribe(event.call, 0x0008) if isinstance(event, Configure) else b""


def connected(
    respond: Callable[[Session, SessionEvent], bytes] = gives_gpu,
    *,
    step: int = 1 << 30,
    nri: tuple[int, int] = (0, 8),
) -> tuple[Runtime, Directly]:
    """Return a runtime on which a session is registered, and the transport between the two."""
    ends = Directly(Session("cdigen", "20"), respond, step=step)
    runtime = Runtime(ends, nri=nri)
    runtime.start()
    return runtime, ends


def on(kind: type[T], respond: Callable[[Session, T], bytes]) -> Callable[[Session, SessionEvent], bytes]:
    """Return a function that responds to events of KIND by RESPOND, to other events as `gives_gpu`."""
    return lambda session, event: (
        respond(session, event) if isinstance(event, kind) else gives_gpu(session, event)
    )


def only(events: list[SessionEvent], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


def request_frames(
    stream: int, payload: bytes = b"", method: str = "CreateContainer", **fields: object
) -> bytes:
    """Return the frames of a request."""
    request = {"service": "nri.pkg.api.v1alpha1.Plugin", "method": method, "payload": payload, **fields}
    data = CLASSES["Request"](**request).SerializeToString()
    return mux.frames(PLUGIN, ttrpc.encode(ttrpc.REQUEST, stream, data))


def codes(sent: bytes) -> list[tuple[int, int]]:
    """Return the streams and codes of the responses in SENT."""
    decoder = ttrpc.Decoder()
    got = [one for _, piece in mux.Mux().feed(sent) for one in decoder.feed(piece)]
    return [(one.stream, read_response(one.data).code) for one in got]


def configured() -> Session:
    """Return a session whose next stream is 3."""
    session = Session("cdigen", "20")
    session.feed(request_frames(1, method="Configure"))
    session.subscribe(1, 8)
    return session
