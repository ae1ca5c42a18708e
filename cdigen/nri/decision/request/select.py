"""``choose``: pure functions that resolve requests to CDI devices.

``DeviceNames`` contains the devices that the runtime finds in the spec directories.
"""

from __future__ import annotations

import re

from cdigen.model.names import NONE, NameSet
from cdigen.nri.decision.request.device_request import MAX_DEVICES, is_nvidia_gpu
from cdigen.nri.decision.request.host_gpus import ALL, canonical, is_uuid_prefix
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.nri.decision.request.device_request import DeviceRequest
    from cdigen.nri.decision.request.host_gpus import HostGpu, HostGpus

_INDEX = re.compile(r"[0-9]+(:[0-9]+)?", re.ASCII)
_SHOWN = 6
_NONE = NameSet(())


@frozen
class Choice:
    """The fully qualified CDI name ``device`` for a request.

    ``token`` is the requested name. ``origin`` is the variable, annotation or mount with the request.
    """

    device: str
    token: str
    origin: str

    @property
    def kind(self) -> str:
        """The kind of the device."""
        return self.device.partition("=")[0]

    @property
    def name(self) -> str:
        """The name of the device within its kind."""
        return self.device.partition("=")[2]


class DeviceNames:
    """The fully qualified names of the devices that the runtime can resolve.

    KINDS maps each kind to its device names. EXPLAIN returns the reason why the runtime cannot resolve a
    name.
    """

    def __init__(self, kinds: Mapping[str, NameSet], explain: Callable[[str], str]) -> None:
        self._kinds = {kind: names for kind, names in kinds.items() if names}
        self._explain = explain

    def has_kind(self, kind: str) -> bool:
        """Return whether a device of KIND exists."""
        return kind in self._kinds

    def find(self, kind: str, name: str, *, in_any_case: bool = True) -> str:
        """Return the fully qualified name of the device NAME of KIND, or "" if there is no such device.

        If IN_ANY_CASE is true, upper and lower case are equal. The result has the spelling of the spec.
        """
        names = self._kinds.get(kind, _NONE)
        found = names.find(name) if in_any_case else name if name in names else ""
        return found and f"{kind}={found}"

    def uuids_with_prefix(self, kind: str, text: str) -> tuple[str, ...]:
        """Return the device names of KIND that start with TEXT; upper and lower case are equal."""
        return tuple(name for name in self.of(kind) if name.lower().startswith(text.lower()))

    def of(self, kind: str) -> tuple[str, ...]:
        """Return the names of the devices of KIND."""
        names = self._kinds.get(kind)
        return names.sorted if names else ()

    def reason(self, kind: str, name: str) -> str:
        """Return the reason why no device NAME of KIND exists."""
        text = self._explain(f"{kind}={name}")
        if text:
            return text
        if not self.has_kind(kind):
            return f"no spec of {kind}"
        names = self.of(kind)
        more = len(names) - _SHOWN
        return f"{kind} has {', '.join(names[:_SHOWN])}" + (f" and {more} more" if more > 0 else "")


def choose(
    items: tuple[DeviceRequest, ...],
    *,
    gpu_kinds: tuple[str, ...],
    names: DeviceNames,
    host_gpus: HostGpus,
    other_kinds: tuple[str, ...] = (),
) -> tuple[Choice, ...]:
    """Return the devices for ITEMS in the order of ITEMS, without repetitions.

    All items without a kind get devices of the same kind. This kind is the first of GPU_KINDS that has all
    requested devices. OTHER_KINDS are kinds of other vendors in which the device ``all`` includes all
    devices. Raise InjectionRefusal for an unknown device.
    """
    gpus = [item for item in items if not item.kind]
    found = iter(_gpus(gpus, gpu_kinds, names, host_gpus))
    choices: list[Choice] = []
    for item in items:
        if item.alias:
            choices += _gpu(item, item.kind, names, host_gpus)
        else:
            choices += _named(item, names) if item.kind else next(found)
    return _deduplicated(choices, host_gpus, other_kinds)


def _named(item: DeviceRequest, names: DeviceNames) -> list[Choice]:
    """Return the devices for ITEM, which has a kind."""
    if item.token == ALL and not item.qualified:
        return _all_devices(item, item.kind, names)
    # A qualified name is a CDI name, which is case-sensitive.
    device = names.find(item.kind, item.token, in_any_case=not item.qualified)
    if not device:
        raise _unknown(item, names.reason(item.kind, item.token))
    return [_choice(device, item)]


def _gpus(
    items: list[DeviceRequest], kinds: tuple[str, ...], names: DeviceNames, host_gpus: HostGpus
) -> list[list[Choice]]:
    """Return the devices for each of ITEMS; all devices have the same kind, which is one of KINDS."""
    # A kind without a spec is skipped. If no kind has a spec, the first kind is used for the error.
    kinds_with_specs = [kind for kind in kinds if names.has_kind(kind)] or kinds[:1]
    problem: InjectionRefusal | None = None
    for kind in kinds_with_specs:
        try:
            found = [_gpu(item, kind, names, host_gpus) for item in items]
        except InjectionRefusal as refusal:
            problem = problem or refusal
            continue
        # The result is empty if only NONE is requested and the kind has no device NONE. The next kind can
        # have this device.
        if any(found) or kind == kinds_with_specs[-1]:
            return found
    if problem:
        raise problem
    return []


def _gpu(item: DeviceRequest, kind: str, names: DeviceNames, host_gpus: HostGpus) -> list[Choice]:
    if item.token == ALL:
        return _all_devices(item, kind, names)
    if item.token == NONE:
        # The device NONE has the driver's files and no GPU. Not every spec defines this device.
        device = names.find(kind, NONE)
        return [_choice(device, item)] if device else []
    device = names.find(kind, item.token)
    if device:
        return [_choice(device, item)]
    gpu = host_gpus.find(item.token, accepts_prefix=True)
    possible_names = (canonical(item.token), *(gpu.names if gpu else ()))
    device = next((device for name in possible_names if (device := names.find(kind, name))), "")
    if not device and is_uuid_prefix(item.token):
        device = _by_uuid_prefix(item, kind, names, host_gpus)
    if not device:
        raise _unknown(item, _reason_unknown(item, kind, gpu, names, host_gpus))
    return [_choice(device, item)]


def _by_uuid_prefix(item: DeviceRequest, kind: str, names: DeviceNames, host_gpus: HostGpus) -> str:
    """Return the device of KIND whose UUID starts with the name in ITEM, or "" if there is no such device.

    Raise InjectionRefusal if several UUIDs start with this name.
    """
    found = host_gpus.uuids_with_prefix(item.token) or names.uuids_with_prefix(kind, item.token)
    if len(found) > 1:
        raise _unknown(
            item, f"several UUIDs have this prefix ({', '.join(found[:_SHOWN])}); use a longer prefix"
        )
    return names.find(kind, found[0]) if found else ""


def _all_devices(item: DeviceRequest, kind: str, names: DeviceNames) -> list[Choice]:
    """Return the device ``all`` of KIND, or every device of KIND if there is no device ``all``."""
    device = names.find(kind, ALL)
    if device:
        return [_choice(device, item)]
    every = names.of(kind)
    # A spec can define a device twice, with its index and its UUID as names. Then only the index is used.
    found = [name for name in every if _INDEX.fullmatch(name)] or [name for name in every if name != NONE]
    if not found:
        raise _unknown(item, names.reason(kind, ALL))
    if len(found) > MAX_DEVICES:
        raise InjectionRefusal("too_much", f"{kind}: too many devices ({len(found)}, limit {MAX_DEVICES})")
    return [_choice(f"{kind}={name}", item) for name in found]


def _reason_unknown(
    item: DeviceRequest, kind: str, gpu: HostGpu | None, names: DeviceNames, host_gpus: HostGpus
) -> str:
    if gpu and gpu.problem:
        return gpu.problem
    if gpu and gpu.is_partitioned:
        shown = ", ".join(gpu.instances[:_SHOWN])
        instances = f": request a MIG instance ({shown})" if shown else " and has no instances"
        return f"the GPU is in MIG mode{instances}"
    text = names.reason(kind, canonical(item.token) if gpu else item.token)
    if gpu:
        return text
    if host_gpus.problem:
        return f"{text}; the other names of GPUs, such as PCI addresses, are unknown: {host_gpus.problem}"
    return f"{text}; the host has no such GPU"


def _unknown(item: DeviceRequest, reason: str) -> InjectionRefusal:
    return InjectionRefusal("unknown_device", f"{item.origin} requests {quote(item.text)}: {reason}")


def _choice(device: str, item: DeviceRequest) -> Choice:
    return Choice(device=device, token=item.token, origin=item.origin)


def _deduplicated(
    choices: list[Choice], host_gpus: HostGpus, other_kinds: tuple[str, ...]
) -> tuple[Choice, ...]:
    """Return CHOICES without repetitions.

    Two names for one GPU are a repetition if both devices have the same kind. The device ``all`` of a kind
    replaces all other devices of the kind. Two names of a GPU that is not in the inventory are no repetition,
    because a spec can define different edits for each name.
    """
    every = (choice.kind for choice in choices if choice.name == ALL)
    whole = {kind for kind in every if is_nvidia_gpu(kind) or kind in other_kinds}
    unique: dict[tuple[str, str], Choice] = {}
    for choice in choices:
        if choice.kind in whole and choice.name != ALL:
            continue
        gpu = host_gpus.find(choice.name) if is_nvidia_gpu(choice.kind) else None
        unique.setdefault((choice.kind, gpu.names[0] if gpu else choice.name), choice)
    return tuple(unique.values())
