"""A double of a runtime: the other end of an NRI plugin's connection, like containerd's adaptation.

``Runtime`` serves RegisterPlugin on connection 2, calls the plugin on connection 1, and enforces the same
rules as Go: the order of registration, valid events, streams, split Synchronize, and how Go reads. It shares
only nri.proto's classes with cdigen, and has its own code for frames and messages. Source: containerd/nri,
pkg/adaptation/plugin.go and pkg/net/multiplex/mux.go; containerd/ttrpc, channel.go.
"""

from __future__ import annotations

import random
import struct
import time
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from support.nri.go_reader import BUFFER, GoReader
from support.nri.synchronization import parts
from support.waiting import PATIENCE_S

from cdigen.nri.wire.messages import CLASSES

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

PLUGIN, RUNTIME = 1, 2
MAX_DATA = 4 << 20
QUEUE = 256  # the maximum number of unread frames of a connection
REQUEST, RESPONSE = 1, 2
UNIMPLEMENTED = 12
SERVICES = {PLUGIN: "nri.pkg.api.v1alpha1.Plugin", RUNTIME: "nri.pkg.api.v1alpha1.Runtime"}

# The metadata that containerd 2.1 and later sends with every request (field 5 of Request).
_PAIR = b"\x0a\x1acontainerd-namespace-ttrpc\x12\x06k8s.io"
METADATA = b"\x2a" + bytes([len(_PAIR)]) + _PAIR

# Event -> its number in StateChange, before NRI 0.12. (Events that are not listed always have a method.)
STATE_CHANGES = {
    "RunPodSandbox": 1,
    "StopPodSandbox": 2,
    "RemovePodSandbox": 3,
    "PostCreateContainer": 5,
    "StartContainer": 6,
    "PostStartContainer": 7,
    "PostUpdateContainer": 9,
    "RemoveContainer": 11,
    "PostUpdatePodSandbox": 13,
}


class Dropped(Exception):
    """The runtime has closed the connection. From now on, containers start without the plugin."""


class Rejected(Exception):
    """The plugin has responded with an error. The container is not created."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message


class Transport(Protocol):
    """The source and target of bytes: a socket, or a session directly."""

    def send(self, data: bytes) -> None: ...

    def receive(self, timeout_s: float) -> bytes:
        """Return some bytes, or none if the connection has ended; raise TimeoutError after TIMEOUT_S."""

    def close(self) -> None: ...


class SocketTransport:
    """A connected socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, data: bytes) -> None:
        self._connection.settimeout(PATIENCE_S)
        self._connection.sendall(data)

    def receive(self, timeout_s: float) -> bytes:
        self._connection.settimeout(max(timeout_s, 0.001))
        try:
            return self._connection.recv(1 << 16)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self._connection.close()


class Runtime:
    """A runtime on the connection of one plugin: the runtime's name and version, and its version of NRI.

    It reports ``request_timeout_s`` to the plugin. But it waits at least PATIENCE_S for a response before it
    drops the plugin, because the machine may be busy.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        name: str = "containerd",
        version: str = "2.1.9+unknown",
        nri: tuple[int, int] = (0, 8),
        request_timeout_s: float = 2.0,
        registration_timeout_s: float = 5.0,
    ) -> None:
        self.transport = transport
        self.name, self.version, self.nri = name, version, nri
        self.request_timeout_s = request_timeout_s
        self.registration_timeout_s = registration_timeout_s
        self.queues: dict[int, deque[bytes]] = {PLUGIN: deque(), RUNTIME: deque()}
        self.plugin_name = self.plugin_index = ""
        self.events = 0
        self.late = 0  # responses after their timeout
        self.is_closed = False
        self._unread = bytearray()
        self._readers = {number: GoReader(self, number) for number in self.queues}
        self._stream = -1
        self._waiting: set[int] = set()
        self._answers: dict[int, Any] = {}

    # Registration.

    def start(self, *, config: str = "", reply_first: bool = True) -> None:
        """Wait for RegisterPlugin, and respond to it before (or after) the plugin is configured."""
        deadline = time.monotonic() + self.registration_timeout_s
        stream, request = self._request(deadline)
        if request.service != SERVICES[RUNTIME] or request.method != "RegisterPlugin":
            self.drop(f"{request.service}/{request.method} came before RegisterPlugin")
        register = CLASSES["RegisterPluginRequest"].FromString(request.payload)
        self.plugin_name, self.plugin_index = register.plugin_name, register.plugin_idx
        if len(self.plugin_index) != 2 or not self.plugin_index.isdigit():
            self._answer(stream, code=2, message="invalid plugin index")
            self.drop(f"invalid plugin index {self.plugin_index!r}")
        if reply_first:
            self._answer(stream)
            self.configure(config)
            return
        call = self.begin("Configure", self._configure_request(config))
        self._answer(stream)
        self._configured(self.finish(call))

    def refuse_registration(self, message: str) -> None:
        """Wait for RegisterPlugin and respond with an error."""
        stream, _ = self._request(time.monotonic() + self.registration_timeout_s)
        self._answer(stream, code=2, message=message)

    def configure(self, config: str = "") -> None:
        """Call Configure, and store the events to which the plugin subscribes."""
        self._configured(self.call("Configure", self._configure_request(config)))

    def synchronize(
        self, pods: Sequence[Any] = (), containers: Sequence[Any] = (), *, shuffled: bool = False
    ) -> int:
        """Call Synchronize, in as many messages as are needed, and return their number.

        If SHUFFLED, the order is random, because runtimes report in any order; all runs have the same order.
        """
        if shuffled:
            chance = random.Random(len(pods))
            pods, containers = chance.sample(pods, len(pods)), chance.sample(containers, len(containers))
        requests = list(parts(pods, containers, limit=MAX_DATA if self.nri >= (0, 7) else 1 << 62))
        for request in requests:
            answer = CLASSES["SynchronizeResponse"].FromString(
                self.call("Synchronize", request.SerializeToString())
            )
            if request.more and not answer.more:
                self.drop("plugin does not handle split sync requests")
        return len(requests)

    # Events.

    def create(self, pod: Any, container: Any) -> Any:
        """Call CreateContainer, and return the adjustment."""
        return self.created(self.finish(self.begin_create(pod, container)))

    def begin_create(self, pod: Any, container: Any) -> int:
        """Send CreateContainer, and return its stream."""
        request = CLASSES["CreateContainerRequest"](pod=pod, container=container)
        return self.begin("CreateContainer", request.SerializeToString())

    def created(self, payload: bytes) -> Any:
        """Return the adjustment in a CreateContainerResponse."""
        return CLASSES["CreateContainerResponse"].FromString(payload).adjust

    def validate(
        self,
        pod: Any,
        container: Any,
        adjustment: Any,
        plugins: Sequence[str] = (),
        owners: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
    ) -> str:
        """Call ValidateContainerAdjustment, and return the reason of a rejection, or "".

        OWNERS has the owner of each item for each number of api.proto's Field (6: variables).
        """
        owning = CLASSES["OwningPlugins"]()
        owning.owners[container.id].SetInParent()
        for number, rows in owners.items():
            owning.owners[container.id].compound[number].owners.update(rows)
        request = CLASSES["ValidateContainerAdjustmentRequest"](
            pod=pod,
            container=container,
            adjust=adjustment,
            owners=owning.SerializeToString(),
            plugins=[{"index": name[:2], "name": name[3:]} for name in plugins],
        )
        answer = CLASSES["ValidateContainerAdjustmentResponse"].FromString(
            self.call("ValidateContainerAdjustment", request.SerializeToString())
        )
        return answer.reason or "rejected" if answer.reject else ""

    def notify(self, event: str, *, pod: str = "", container: str = "") -> str:
        """Send EVENT as the runtime's version of NRI does, and return the method of the request."""
        ids = {name: {"id": value} for name, value in (("pod", pod), ("container", container)) if value}
        if self.nri >= (0, 12) or event not in STATE_CHANGES:
            payload = CLASSES["CreateContainerRequest"](**ids).SerializeToString()
            try:
                self.call(event, payload)
            except Rejected as error:
                if error.code != UNIMPLEMENTED:
                    raise
            else:
                return event
        change = CLASSES["StateChangeEvent"](event=STATE_CHANGES[event], container=ids.get("container"))
        self.call("StateChange", change.SerializeToString())
        return "StateChange"

    # Calls.

    def call(self, method: str, payload: bytes) -> bytes:
        """Call METHOD of the plugin and return the payload of the response; raises Rejected, Dropped."""
        return self.finish(self.begin(method, payload))

    def begin(self, method: str, payload: bytes, *, service: str = SERVICES[PLUGIN]) -> int:
        """Send the request, and return its stream."""
        self._stream += 2
        request = CLASSES["Request"](
            service=service,
            method=method,
            payload=payload,
            timeout_nano=int(self.request_timeout_s * 1e9),
        )
        data = request.SerializeToString() + METADATA
        self._waiting.add(self._stream)
        self.send(PLUGIN, struct.pack(">IIBB", len(data), self._stream, REQUEST, 0) + data)
        return self._stream

    def finish(self, stream: int) -> bytes:
        """Wait for the response on STREAM, and return its payload; raises Rejected, Dropped."""
        deadline = time.monotonic() + max(self.request_timeout_s, PATIENCE_S)
        while stream not in self._answers:
            kind, number, data = self._message(PLUGIN, deadline)
            if kind != RESPONSE:
                self.drop(f"a message of type {kind} on the plugin's connection")
            if number not in self._waiting:
                self.late += 1
                continue
            self._waiting.discard(number)
            self._answers[number] = CLASSES["Response"].FromString(data)
        answer = self._answers.pop(stream)
        if answer.status.code:
            raise Rejected(answer.status.code, answer.status.message)
        payload: bytes = answer.payload
        return payload

    def send(self, connection: int, message: bytes) -> None:
        """Send MESSAGE in two frames, as Go does: the first BUFFER bytes, then the rest; raises Dropped."""
        for piece in (message[:BUFFER], message[BUFFER:]):
            if piece:
                try:
                    self.transport.send(struct.pack(">II", connection, len(piece)) + piece)
                except ConnectionError:
                    self.drop("the plugin has closed the connection")

    def drop(self, reason: str) -> NoReturn:
        """Close the connection, as the runtime does with a plugin that breaks a rule or is late."""
        self.close()
        raise Dropped(reason)

    def close(self) -> None:
        """Close the connection, like a runtime that ends."""
        self.is_closed = True
        self.transport.close()

    def pump(self, deadline: float) -> None:
        """Receive some bytes and queue the frames that they complete."""
        left = deadline - time.monotonic()
        try:
            data = self.transport.receive(left) if left > 0 else None
        except TimeoutError:
            data = None
        if data is None:
            self.drop("context deadline exceeded")
        if not data:
            self.drop("the plugin has closed the connection")
        self._unread += data
        while len(self._unread) >= 8:
            connection, length = struct.unpack_from(">II", self._unread)
            if len(self._unread) < 8 + length:
                break
            if connection in self.queues:
                self.queues[connection].append(bytes(self._unread[8 : 8 + length]))
                if len(self.queues[connection]) > QUEUE:
                    self.drop("failed to queue payload for reading")
            del self._unread[: 8 + length]

    def _message(self, connection: int, deadline: float) -> tuple[int, int, bytes]:
        reader = self._readers[connection]
        length, stream, kind, _ = struct.unpack(">IIBB", reader.read_full(10, deadline))
        if length > MAX_DATA:
            self.drop(f"message length {length} exceed maximum message size of {MAX_DATA}")
        return kind, stream, reader.read_full(length, deadline)

    def _request(self, deadline: float) -> tuple[int, Any]:
        kind, stream, data = self._message(RUNTIME, deadline)
        if kind != REQUEST or stream % 2 != 1:
            self.drop(f"a message of type {kind} and stream {stream} where a request is due")
        return stream, CLASSES["Request"].FromString(data)

    def _answer(self, stream: int, *, code: int = 0, message: str = "") -> None:
        response = CLASSES["Response"]()
        if code:
            response.status.code, response.status.message = code, message
        data = response.SerializeToString()
        self.send(RUNTIME, struct.pack(">IIBB", len(data), stream, RESPONSE, 0) + data)

    def _configure_request(self, config: str) -> bytes:
        request = CLASSES["ConfigureRequest"](
            config=config, runtime_name=self.name, runtime_version=self.version
        )
        if self.nri >= (0, 7):
            request.registration_timeout = int(self.registration_timeout_s * 1000)
            request.request_timeout = int(self.request_timeout_s * 1000)
        if self.nri >= (0, 12):
            request.nri_version = f"v{self.nri[0]}.{self.nri[1]}.0"
        payload: bytes = request.SerializeToString()
        return payload

    def _configured(self, payload: bytes) -> None:
        valid = 0x3FFF if self.nri >= (0, 10) else 0x07FF
        events = CLASSES["ConfigureResponse"].FromString(payload).events
        if events & ~valid:
            self.drop(f"invalid plugin events: 0x{events & ~valid:x}")
        self.events = events or valid


def pod(**fields: Any) -> Any:
    """Return a Pod."""
    return CLASSES["Pod"](**{"id": "p1", "name": "trainer", "namespace": "default", **fields})


def container(**fields: Any) -> Any:
    """Return a Container."""
    return CLASSES["Container"](
        **{"id": "c1", "pod_sandbox_id": "p1", "name": "main", "env": ["PATH=/usr/bin:/bin"], **fields}
    )


def there(number: int, *env: str, namespace: str = "ml", **fields: Any) -> tuple[Any, Any]:
    """Return the pod NUMBER and its container, which has the variables ENV and the fields FIELDS."""
    its_pod = pod(id=f"p{number}", name=f"pod-{number}", namespace=namespace)
    return its_pod, container(id=f"c{number}", pod_sandbox_id=f"p{number}", env=list(env), **fields)
