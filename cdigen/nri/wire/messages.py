"""NRI's messages as values: ``read_...`` decodes the bytes of a message, ``write_...`` encodes one.

Readers raise MessageError where the bytes are not their message, as with text that is not UTF-8; writers
where values do not fit.
"""

from __future__ import annotations

from functools import partial

from cdigen.nri.pods import (
    Adjustment,
    Container,
    ContainerDevice,
    ContainerHook,
    ContainerMount,
    Owners,
    Pod,
    shorten,
)
from cdigen.nri.wire.protobuf import MessageError, message_class, read, write
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")

# Longer errors are cut off. Kubernetes shows 1,024 characters of them in an event.
MAX_ERROR = 4096

# NRI's numbers of what has owners (api.proto: Field).
_ANNOTATIONS, _MOUNTS, _DEVICES, _ENV = 1, 2, 4, 6

# NRI's number of the event (api.proto: Event).
_REMOVED = 11

# OCI's names of the stages at which hooks run, and the fields of Hooks.
_STAGES = {
    "prestart": "prestart",
    "createRuntime": "create_runtime",
    "createContainer": "create_container",
    "startContainer": "start_container",
    "poststart": "poststart",
    "poststop": "poststop",
}
# Of a rule of the cgroup: what it is about, and what it allows.
_ALL_TYPES = ("", "a")
_READ_AND_WRITE = frozenset("rw")


@frozen
class TtrpcRequest:
    """A call; ``timeout_ns`` is what is left of the caller's time, 0 where there is no limit."""

    service: str
    method: str
    payload: bytes
    timeout_ns: int


@frozen
class TtrpcResponse:
    """The answer to a call: an error where ``code`` (gRPC's) is not 0, else a payload."""

    code: int
    message: str
    payload: bytes


@frozen
class RuntimeInfo:
    """What the runtime says of itself; times that it does not tell are 0, and texts empty."""

    config: str
    runtime: str
    version: str
    nri_version: str
    request_timeout_ms: int


class SynchronizePart:
    """Pods and containers of one SynchronizeRequest, of which there is ``more`` or not.

    There may be thousands, and the runtime waits, so each is read in its turn; ``unread`` could not be.
    """

    def __init__(self, got: Any) -> None:
        self._got = got
        self.more: bool = got.more
        self.unread = 0

    def pods(self) -> Iterator[Pod]:
        """Yield those pods that can be read."""
        return self._each(self._got.pods, _POD, _pod)

    def containers(self) -> Iterator[Container]:
        """Yield those containers that can be read."""
        return self._each(self._got.containers, _CONTAINER, _container)

    def _each(self, rows: Iterable[bytes], kind: Any, made: Callable[[Any], T]) -> Iterator[T]:
        for data in rows:
            try:
                yield made(read(kind, data))
            except MessageError:
                self.unread += 1


_REQUEST = message_class("Request")
_RESPONSE = message_class("Response")
_REGISTER = message_class("RegisterPluginRequest")
_CONFIGURE = message_class("ConfigureRequest")
_CONFIGURED = message_class("ConfigureResponse")
_SYNCHRONIZE = message_class("SynchronizeRequest")
_SYNCHRONIZED = message_class("SynchronizeResponse")
_POD = message_class("Pod")
_CONTAINER = message_class("Container")
_CREATE = message_class("CreateContainerRequest")
_CREATED = message_class("CreateContainerResponse")
_VALIDATE = message_class("ValidateContainerAdjustmentRequest")
_REMOVE = message_class("RemoveContainerRequest")
_CHANGE = message_class("StateChangeEvent")
_OWNERS = message_class("OwningPlugins")
_VALIDATED = message_class("ValidateContainerAdjustmentResponse")


def read_request(data: bytes) -> TtrpcRequest:
    """Return the call that a ttrpc message of type Request carries."""
    got = read(_REQUEST, data)
    return TtrpcRequest(
        service=got.service, method=got.method, payload=got.payload, timeout_ns=got.timeout_nano
    )


def write_request(request: TtrpcRequest) -> bytes:
    """Return what a ttrpc message of type Request carries."""
    return write(
        _REQUEST,
        service=request.service,
        method=request.method,
        payload=request.payload,
        timeout_nano=request.timeout_ns,
    )


def read_response(data: bytes) -> TtrpcResponse:
    """Return the answer that a ttrpc message of type Response carries."""
    got = read(_RESPONSE, data)
    return TtrpcResponse(code=got.status.code, message=got.status.message, payload=got.payload)


def write_response(payload: bytes) -> bytes:
    """Return what a ttrpc message of type Response carries."""
    return write(_RESPONSE, payload=payload)


def write_error(code: int, message: str) -> bytes:
    """Return what a ttrpc message of type Response carries for an error; this is always possible.

    Stray surrogates become "?", and a long text is cut off.
    """
    text = message[:MAX_ERROR].encode("utf-8", "replace").decode()
    return write(_RESPONSE, status={"code": code, "message": text})


def write_register(name: str, index: str) -> bytes:
    """Return a RegisterPluginRequest."""
    return write(_REGISTER, plugin_name=name, plugin_idx=index)


def read_configure(payload: bytes) -> RuntimeInfo:
    """Return what a ConfigureRequest holds."""
    got = read(_CONFIGURE, payload)
    return RuntimeInfo(
        config=got.config,
        runtime=got.runtime_name,
        version=got.runtime_version,
        nri_version=got.nri_version,
        request_timeout_ms=got.request_timeout,
    )


def write_configured(events: int) -> bytes:
    """Return a ConfigureResponse that subscribes to the mask EVENTS."""
    return write(_CONFIGURED, events=events)


def read_synchronize(payload: bytes) -> SynchronizePart:
    """Return what a SynchronizeRequest holds; only its outermost layer is read yet."""
    return SynchronizePart(read(_SYNCHRONIZE, payload))


def write_synchronized(*, more: bool) -> bytes:
    """Return a SynchronizeResponse that updates nothing."""
    return write(_SYNCHRONIZED, more=more)


def read_create(payload: bytes) -> tuple[Pod, Container]:
    """Return what a CreateContainerRequest holds."""
    got = read(_CREATE, payload)
    return _pod(got.pod), _container(got.container)


def write_created(adjustment: Adjustment) -> bytes:
    """Return a CreateContainerResponse."""
    return write(_CREATED, adjust=_adjustment_fields(adjustment))


def read_remove(payload: bytes) -> str:
    """Return the id of the container that a RemoveContainerRequest says was removed."""
    removed: str = read(_REMOVE, payload).container.id
    return removed


def read_change(payload: bytes) -> str:
    """Return the id of the container that a StateChangeEvent says was removed; empty if it says else."""
    got = read(_CHANGE, payload)
    removed: str = got.container.id if got.event == _REMOVED else ""
    return removed


def read_validate(
    payload: bytes,
) -> tuple[Pod, Container, Adjustment, tuple[str, ...], Callable[[], Owners]]:
    """Return what a ValidateContainerAdjustmentRequest holds.

    The container is as it was asked for, the adjustment that of all plugins; then come the names of the
    plugins that were asked, as ``20-cdigen``, and what reads whose part is whose.
    """
    got = read(_VALIDATE, payload)
    plugins = tuple([f"{plugin.index}-{plugin.name}" for plugin in got.plugins])
    owners = partial(_owners, got.owners, got.container.id)
    return _pod(got.pod), _container(got.container), _adjustment(got.adjust), plugins, owners


def _owners(data: bytes, container_id: str) -> Owners:
    fields = read(_OWNERS, data).owners[container_id].compound
    annotations, mounts, devices, env = (
        {key: shorten(plugin) for key, plugin in fields[number].owners.items()}
        for number in (_ANNOTATIONS, _MOUNTS, _DEVICES, _ENV)
    )
    return Owners(annotations=annotations, mounts=mounts, devices=devices, env=env)


def write_validated(reason: str) -> bytes:
    """Return a ValidateContainerAdjustmentResponse that rejects for REASON, or accepts if that is empty."""
    return write(_VALIDATED, reject=bool(reason), reason=reason)


def _pod(got: Any) -> Pod:
    return Pod(
        id=got.id,
        name=got.name,
        namespace=got.namespace,
        runtime_handler=got.runtime_handler,
        labels=dict(got.labels),
        annotations=dict(got.annotations),
    )


def _container(got: Any) -> Container:
    return Container(
        id=got.id,
        pod_id=got.pod_sandbox_id,
        name=got.name,
        annotations=dict(got.annotations),
        env=tuple(got.env),
        mounts=_mounts(got.mounts),
        devices=tuple([device.path for device in got.linux.devices]),
        cdi_devices=tuple([device.name for device in got.cdi_devices]),
        may_use_all_devices=_allows_all_devices(got.linux.resources.devices),
    )


def _allows_all_devices(rules: Any) -> bool:
    """Return whether the last of the cgroup's RULES that is about all devices allows them."""
    about_all = [
        rule.allow and set(rule.access) >= _READ_AND_WRITE
        for rule in rules
        if rule.type in _ALL_TYPES and not rule.HasField("major") and not rule.HasField("minor")
    ]
    return bool(about_all) and about_all[-1]


def _mounts(got: Any) -> tuple[ContainerMount, ...]:
    return tuple(
        [
            ContainerMount(
                destination=mount.destination,
                source=mount.source,
                type=mount.type,
                options=tuple(mount.options),
            )
            for mount in got
        ]
    )


def _adjustment(got: Any) -> Adjustment:
    return Adjustment(
        annotations=dict(got.annotations),
        env={pair.key: pair.value for pair in got.env},
        mounts=_mounts(got.mounts),
        devices=tuple([_device(device) for device in got.linux.devices]),
        hooks=_hooks(got.hooks),
        cdi_devices=tuple([device.name for device in got.cdi_devices]),
    )


def _device(got: Any) -> ContainerDevice:
    return ContainerDevice(
        path=got.path,
        type=got.type,
        major=got.major,
        minor=got.minor,
        file_mode=_optional(got, "file_mode"),
        uid=_optional(got, "uid"),
        gid=_optional(got, "gid"),
    )


def _hooks(got: Any) -> tuple[ContainerHook, ...]:
    return tuple([_hook(stage, hook) for stage, field in _STAGES.items() for hook in getattr(got, field)])


def _hook(stage: str, got: Any) -> ContainerHook:
    return ContainerHook(
        stage=stage,
        path=got.path,
        args=tuple(got.args),
        env=tuple(got.env),
        timeout=_optional(got, "timeout"),
    )


def _optional(got: Any, field: str) -> int | None:
    return getattr(got, field).value if got.HasField(field) else None


def _adjustment_fields(adjustment: Adjustment) -> dict[str, object]:
    """Return the fields of an Adjustment; what is empty stays unset, so that nothing is claimed."""
    fields: dict[str, object] = {
        "annotations": adjustment.annotations,
        "env": [{"key": key, "value": value} for key, value in adjustment.env.items()],
        "mounts": [_mount_fields(mount) for mount in adjustment.mounts],
        "cdi_devices": [{"name": name} for name in adjustment.cdi_devices],
    }
    if adjustment.hooks:
        fields["hooks"] = _hooks_fields(adjustment.hooks)
    if adjustment.devices:
        fields["linux"] = {"devices": [_device_fields(device) for device in adjustment.devices]}
    return fields


def _mount_fields(mount: ContainerMount) -> dict[str, object]:
    return {
        "destination": mount.destination,
        "type": mount.type,
        "source": mount.source,
        "options": mount.options,
    }


def _hooks_fields(hooks: tuple[ContainerHook, ...]) -> dict[str, list[object]]:
    fields: dict[str, list[object]] = {}
    for hook in hooks:
        if hook.stage not in _STAGES:
            raise MessageError(f"there is no hook {hook.stage!r}; there are {', '.join(_STAGES)}")
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
