"""NRI's messages as values: the functions ``read_...`` decode messages, and ``write_...`` encode messages.

The functions ``read_...`` raise MessageError for invalid bytes, such as text that is not UTF-8. The functions
``write_...`` raise MessageError for values that the message cannot contain.
"""

from __future__ import annotations

import os
from functools import partial

from cdigen.model.strict import as_json
from cdigen.nri.pods import (
    Adjustment,
    AdjustmentOwners,
    Container,
    ContainerDevice,
    ContainerHook,
    ContainerMount,
    Pod,
    shorten,
)
from cdigen.service.descriptors import MessageError, load, read, write
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")

DESCRIPTORS = os.path.join(os.path.dirname(__file__), "nri.binpb")
# The classes of the messages by name.
CLASSES = load(DESCRIPTORS, "nri.proto")
# The maximum number of characters of an error. Kubernetes shows 1,024 characters of an error in an event.
MAX_ERROR = 4096

# The field numbers for owners (api.proto: Field).
_ANNOTATIONS, _MOUNTS, _DEVICES, _ENV = 1, 2, 4, 6

# The number of the event for a removed container (api.proto: Event).
_REMOVED = 11

# The OCI names of the hook stages, and the fields of the message Hooks.
_STAGES = {
    "prestart": "prestart",
    "createRuntime": "create_runtime",
    "createContainer": "create_container",
    "startContainer": "start_container",
    "poststart": "poststart",
    "poststop": "poststop",
}
# The device types and the access in a cgroup rule for all devices.
_ALL_TYPES = ("", "a")
_READ_AND_WRITE = frozenset("rw")


@frozen
class TtrpcRequest:
    """A ttrpc call; ``timeout_ns`` is the remaining time in nanoseconds, or 0 if there is no limit."""

    service: str
    method: str
    payload: bytes
    timeout_ns: int


@frozen
class TtrpcResponse:
    """The response to a ttrpc call.

    ``code`` is a gRPC code. If ``code`` is not 0, the response is an error with ``message``.
    """

    code: int
    message: str
    payload: bytes


@frozen
class RuntimeInfo:
    """The contents of a Configure request; a missing time is 0, and a missing text is empty."""

    config: str
    runtime: str
    version: str
    nri_version: str
    request_timeout_ms: int


class SynchronizePart:
    """The pods and containers of one SynchronizeRequest.

    ``more`` is true if another part follows. The pods and containers are decoded on demand, because there can
    be thousands and the runtime waits for the response. ``unread`` is the number of invalid pods and
    containers that were found so far.
    """

    def __init__(self, message: Any) -> None:
        self._message = message
        self.more: bool = message.more
        self.unread = 0

    def pods(self) -> Iterator[Pod]:
        """Yield the valid pods."""
        return self._each(self._message.pods, CLASSES["Pod"], _pod)

    def containers(self) -> Iterator[Container]:
        """Yield the valid containers."""
        return self._each(self._message.containers, CLASSES["Container"], _container)

    def _each(self, rows: Iterable[bytes], kind: Any, convert: Callable[[Any], T]) -> Iterator[T]:
        for data in rows:
            try:
                yield convert(read(kind, data))
            except MessageError:
                self.unread += 1


def read_request(data: bytes) -> TtrpcRequest:
    """Return the call in a ttrpc message of type Request."""
    message = read(CLASSES["Request"], data)
    return TtrpcRequest(
        service=message.service,
        method=message.method,
        payload=message.payload,
        timeout_ns=message.timeout_nano,
    )


def write_request(request: TtrpcRequest) -> bytes:
    """Return the data of a ttrpc message of type Request."""
    return write(
        CLASSES["Request"],
        service=request.service,
        method=request.method,
        payload=request.payload,
        timeout_nano=request.timeout_ns,
    )


def read_response(data: bytes) -> TtrpcResponse:
    """Return the response in a ttrpc message of type Response."""
    message = read(CLASSES["Response"], data)
    return TtrpcResponse(code=message.status.code, message=message.status.message, payload=message.payload)


def write_response(payload: bytes) -> bytes:
    """Return the data of a ttrpc message of type Response with PAYLOAD."""
    return write(CLASSES["Response"], payload=payload)


def write_error(code: int, message: str) -> bytes:
    """Return the data of a ttrpc message of type Response for an error.

    In MESSAGE, unpaired surrogates become "?", and text after MAX_ERROR characters is removed. The function
    raises no errors.
    """
    text = message[:MAX_ERROR].encode("utf-8", "replace").decode()
    return write(CLASSES["Response"], status={"code": code, "message": text})


def write_register(name: str, index: str) -> bytes:
    """Return a RegisterPluginRequest for the plugin NAME with INDEX."""
    return write(CLASSES["RegisterPluginRequest"], plugin_name=name, plugin_idx=index)


def read_configure(payload: bytes) -> RuntimeInfo:
    """Return the contents of a ConfigureRequest."""
    message = read(CLASSES["ConfigureRequest"], payload)
    return RuntimeInfo(
        config=message.config,
        runtime=message.runtime_name,
        version=message.runtime_version,
        nri_version=message.nri_version,
        request_timeout_ms=message.request_timeout,
    )


def write_configured(events: int) -> bytes:
    """Return a ConfigureResponse that subscribes to EVENTS, a mask of events."""
    return write(CLASSES["ConfigureResponse"], events=events)


def read_synchronize(payload: bytes) -> SynchronizePart:
    """Return the contents of a SynchronizeRequest; the pods and containers are not decoded yet."""
    return SynchronizePart(read(CLASSES["SynchronizeRequest"], payload))


def write_synchronized(*, more: bool) -> bytes:
    """Return a SynchronizeResponse that updates no container."""
    return write(CLASSES["SynchronizeResponse"], more=more)


def read_create(payload: bytes) -> tuple[Pod, Container]:
    """Return the pod and the container in a CreateContainerRequest."""
    message = read(CLASSES["CreateContainerRequest"], payload)
    return _pod(message.pod), _container(message.container)


def write_created(adjustment: Adjustment) -> bytes:
    """Return a CreateContainerResponse with ADJUSTMENT."""
    return write(CLASSES["CreateContainerResponse"], adjust=_adjustment_fields(adjustment))


def read_remove(payload: bytes) -> str:
    """Return the id of the removed container in a RemoveContainerRequest."""
    removed: str = read(CLASSES["RemoveContainerRequest"], payload).container.id
    return removed


def read_change(payload: bytes) -> str:
    """Return the id of the removed container in a StateChangeEvent, or "" for other events."""
    message = read(CLASSES["StateChangeEvent"], payload)
    removed: str = message.container.id if message.event == _REMOVED else ""
    return removed


def read_validate(
    payload: bytes,
) -> tuple[Pod, Container, Adjustment, tuple[str, ...], Callable[[], AdjustmentOwners]]:
    """Return the contents of a ValidateContainerAdjustmentRequest.

    The result contains the pod, the original container, the adjustment of all plugins, and the names of these
    plugins (such as ``20-cdigen``). The last value is a function that decodes the owners of the changes.
    """
    message = read(CLASSES["ValidateContainerAdjustmentRequest"], payload)
    plugins = tuple([f"{plugin.index}-{plugin.name}" for plugin in message.plugins])
    owners = partial(_owners, message.owners, message.container.id)
    return _pod(message.pod), _container(message.container), _adjustment(message.adjust), plugins, owners


def _owners(data: bytes, container_id: str) -> AdjustmentOwners:
    fields = read(CLASSES["OwningPlugins"], data).owners[container_id].compound
    annotations, mounts, devices, env = (
        {key: shorten(plugin) for key, plugin in fields[number].owners.items()}
        for number in (_ANNOTATIONS, _MOUNTS, _DEVICES, _ENV)
    )
    return AdjustmentOwners(annotations=annotations, mounts=mounts, devices=devices, env=env)


def write_validated(reason: str) -> bytes:
    """Return a ValidateContainerAdjustmentResponse, which rejects the container if REASON is not empty."""
    return write(CLASSES["ValidateContainerAdjustmentResponse"], reject=bool(reason), reason=reason)


def _pod(message: Any) -> Pod:
    return Pod(
        id=message.id,
        name=message.name,
        namespace=message.namespace,
        runtime_handler=message.runtime_handler,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
    )


def _container(message: Any) -> Container:
    return Container(
        id=message.id,
        pod_id=message.pod_sandbox_id,
        name=message.name,
        annotations=dict(message.annotations),
        env=tuple(message.env),
        mounts=_mounts(message.mounts),
        devices=tuple([device.path for device in message.linux.devices]),
        cdi_devices=tuple([device.name for device in message.cdi_devices]),
        may_use_all_devices=_allows_all_devices(message.linux.resources.devices),
        has_user_namespace=any(namespace.type == "user" for namespace in message.linux.namespaces),
    )


def _allows_all_devices(rules: Any) -> bool:
    """Return whether the last cgroup rule for all devices in RULES permits all devices."""
    for_all = [
        rule.allow and set(rule.access) >= _READ_AND_WRITE
        for rule in rules
        if rule.type in _ALL_TYPES and not rule.HasField("major") and not rule.HasField("minor")
    ]
    return bool(for_all) and for_all[-1]


def _mounts(message: Any) -> tuple[ContainerMount, ...]:
    return tuple(
        [
            ContainerMount(
                destination=mount.destination,
                source=mount.source,
                type=mount.type,
                options=tuple(mount.options),
            )
            for mount in message
        ]
    )


def _adjustment(message: Any) -> Adjustment:
    return Adjustment(
        annotations=dict(message.annotations),
        env={pair.key: pair.value for pair in message.env},
        mounts=_mounts(message.mounts),
        devices=tuple([_device(device) for device in message.linux.devices]),
        hooks=_hooks(message.hooks),
        cdi_devices=tuple([device.name for device in message.cdi_devices]),
    )


def _device(message: Any) -> ContainerDevice:
    return ContainerDevice(
        path=message.path,
        type=message.type,
        major=message.major,
        minor=message.minor,
        file_mode=_optional(message, "file_mode"),
        uid=_optional(message, "uid"),
        gid=_optional(message, "gid"),
    )


def _hooks(message: Any) -> tuple[ContainerHook, ...]:
    return tuple([_hook(stage, hook) for stage, field in _STAGES.items() for hook in getattr(message, field)])


def _hook(stage: str, message: Any) -> ContainerHook:
    return ContainerHook(
        stage=stage,
        path=message.path,
        args=tuple(message.args),
        env=tuple(message.env),
        timeout=_optional(message, "timeout"),
    )


def _optional(message: Any, field: str) -> int | None:
    return getattr(message, field).value if message.HasField(field) else None


def _adjustment_fields(adjustment: Adjustment) -> dict[str, object]:
    """Return the fields of an Adjustment message.

    Empty fields stay unset, because NRI makes the plugin the owner of all fields that are set.
    """
    fields: dict[str, object] = {
        "annotations": adjustment.annotations,
        "env": [{"key": key, "value": value} for key, value in adjustment.env.items()],
        "mounts": as_json(adjustment.mounts),
        "cdi_devices": [{"name": name} for name in adjustment.cdi_devices],
    }
    if adjustment.hooks:
        fields["hooks"] = _hooks_fields(adjustment.hooks)
    if adjustment.devices:
        fields["linux"] = {"devices": [_device_fields(device) for device in adjustment.devices]}
    return fields


def _hooks_fields(hooks: tuple[ContainerHook, ...]) -> dict[str, list[object]]:
    fields: dict[str, list[object]] = {}
    for hook in hooks:
        if hook.stage not in _STAGES:
            raise MessageError(f"unknown hook stage {hook.stage!r} (known: {', '.join(_STAGES)})")
        row: dict[str, object] = {"path": hook.path, "args": hook.args, "env": hook.env}
        if hook.timeout is not None:
            row["timeout"] = {"value": hook.timeout}
        fields.setdefault(_STAGES[hook.stage], []).append(row)
    return fields


def _device_fields(device: ContainerDevice) -> dict[str, object]:
    fields: dict[str, object] = {
        "path": device.path,
        "type": device.type,
        "major": device.major,
        "minor": device.minor,
    }
    optional = {"file_mode": device.file_mode, "uid": device.uid, "gid": device.gid}
    return fields | {name: {"value": value} for name, value in optional.items() if value is not None}
