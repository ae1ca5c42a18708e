"""The CDI devices that requests mean: ``choose``. Pure.

``DeviceNames`` are the devices that the runtime finds in the spec directories (``runtimes.scan``).
"""

from __future__ import annotations

import re

from cdigen.model.names import NONE, NameSet
from cdigen.nri.decision.machine import ALL, canonical, starts_uuid
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.nri.decision.request import MAX_DEVICES, is_nvidia_gpu
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdigen.nri.decision.machine import Gpu, Machine
    from cdigen.nri.decision.request import DeviceRequest

_INDEX = re.compile(r"[0-9]+(:[0-9]+)?", re.ASCII)
_SHOWN = 6
_NONE = NameSet(())


@frozen
class Choice:
    """A device and what asked for it: ``token`` as it was written, ``origin`` where."""

    device: str
    token: str
    origin: str

    @property
    def kind(self) -> str:
        """The kind of the device."""
        return self.device.partition("=")[0]

    @property
    def name(self) -> str:
        """Its name within the kind."""
        return self.device.partition("=")[2]


class DeviceNames:
    """The qualified names that resolve; EXPLAIN says of another why it does not."""

    def __init__(self, devices: Iterable[str], explain: Callable[[str], str] = lambda _: "") -> None:
        kinds: dict[str, set[str]] = {}
        for device in devices:
            kind, _, name = device.partition("=")
            kinds.setdefault(kind, set()).add(name)
        self._kinds = {kind: NameSet(names) for kind, names in kinds.items()}
        self._explain = explain

    @classmethod
    def by_kind(cls, kinds: Mapping[str, NameSet], explain: Callable[[str], str]) -> DeviceNames:
        """Return those of KINDS; thousands take no longer than one."""
        made = cls((), explain)
        made._kinds = {kind: names for kind, names in kinds.items() if names}
        return made

    def has_kind(self, kind: str) -> bool:
        """Return whether any device of KIND is there."""
        return kind in self._kinds

    def find(self, kind: str, name: str, *, in_any_case: bool = True) -> str:
        """Return the device NAME of KIND as its spec writes it; empty: there is none."""
        names = self._kinds.get(kind, _NONE)
        found = names.find(name) if in_any_case else name if name in names else ""
        return found and f"{kind}={found}"

    def starting(self, kind: str, text: str) -> tuple[str, ...]:
        """Return the UUIDs among the devices of KIND that begin with TEXT, the beginning of one."""
        return tuple(name for name in self.of(kind) if name.lower().startswith(text.lower()))

    def of(self, kind: str) -> tuple[str, ...]:
        """Return the names of the devices of KIND."""
        names = self._kinds.get(kind)
        return names.sorted if names else ()

    def reason(self, kind: str, name: str) -> str:
        """Return why there is no device NAME of KIND."""
        text = self._explain(f"{kind}={name}")
        if text:
            return text
        if not self.has_kind(kind):
            return f"there is no spec of {kind}"
        names = self.of(kind)
        more = len(names) - _SHOWN
        return f"{kind} has {', '.join(names[:_SHOWN])}" + (f" and {more} more" if more > 0 else "")


def choose(
    items: tuple[DeviceRequest, ...],
    *,
    gpu_kinds: tuple[str, ...],
    names: DeviceNames,
    machine: Machine,
    other_kinds: tuple[str, ...] = (),
) -> tuple[Choice, ...]:
    """Return the device of each of ITEMS, in their order, none twice under two names; raises Refusal.

    Items without a kind are all taken from the first of GPU_KINDS that has them. OTHER_KINDS are those of
    other makers' devices, where ``all`` means all of them as well.
    """
    gpus = [item for item in items if not item.kind]
    found = iter(_gpus(gpus, gpu_kinds, names, machine))
    choices: list[Choice] = []
    for item in items:
        if item.alias:
            choices += _gpu(item, item.kind, names, machine)
        else:
            choices += _named(item, names) if item.kind else next(found)
    return _different(choices, machine, other_kinds)


def _named(item: DeviceRequest, names: DeviceNames) -> list[Choice]:
    """Return the device of an item that names its kind."""
    if item.token == ALL and not item.qualified:
        return _every(item, item.kind, names)
    # What was named in full is a name of CDI, which tells cases apart.
    device = names.find(item.kind, item.token, in_any_case=not item.qualified)
    if not device:
        raise _unknown(item, names.reason(item.kind, item.token))
    return [_choice(device, item)]


def _gpus(
    items: list[DeviceRequest], kinds: tuple[str, ...], names: DeviceNames, machine: Machine
) -> list[list[Choice]]:
    """Return the devices of each item, all of one kind."""
    # A kind of the configuration that no spec has yet is not a reason to fail.
    there = [kind for kind in kinds if names.has_kind(kind)] or kinds[:1]
    problem: Refusal | None = None
    for kind in there:
        try:
            found = [_gpu(item, kind, names, machine) for item in items]
        except Refusal as refusal:
            problem = problem or refusal
            continue
        # Of the kinds one may have the driver without a GPU, and another not.
        if any(found) or kind == there[-1]:
            return found
    if problem:
        raise problem
    return []


def _gpu(item: DeviceRequest, kind: str, names: DeviceNames, machine: Machine) -> list[Choice]:
    if item.token == ALL:
        return _every(item, kind, names)
    if item.token == NONE:
        # The driver's files without a GPU, where a spec offers that.
        device = names.find(kind, NONE)
        return [_choice(device, item)] if device else []
    device = names.find(kind, item.token)
    if device:
        return [_choice(device, item)]
    gpu = machine.find(item.token, begun=True)
    wanted = (canonical(item.token), *(gpu.names if gpu else ()))
    device = next((device for name in wanted if (device := names.find(kind, name))), "")
    if not device and starts_uuid(item.token):
        device = _begun(item, kind, names, machine)
    if not device:
        raise _unknown(item, _why(item, kind, gpu, names, machine))
    return [_choice(device, item)]


def _begun(item: DeviceRequest, kind: str, names: DeviceNames, machine: Machine) -> str:
    """Return the device of KIND whose UUID begins as ITEM says, empty without one; Refusal: several do."""
    found = machine.starting(item.token) or names.starting(kind, item.token)
    if len(found) > 1:
        raise _unknown(item, f"so begin {', '.join(found[:_SHOWN])}; write more of it")
    return names.find(kind, found[0]) if found else ""


def _every(item: DeviceRequest, kind: str, names: DeviceNames) -> list[Choice]:
    """Return all devices of KIND: the one called so, else each under one of its names."""
    device = names.find(kind, ALL)
    if device:
        return [_choice(device, item)]
    every = names.of(kind)
    # A device may have an index and a UUID.
    found = [name for name in every if _INDEX.fullmatch(name)] or [name for name in every if name != NONE]
    if not found:
        raise _unknown(item, names.reason(kind, ALL))
    if len(found) > MAX_DEVICES:
        raise Refusal("too_much", f"{kind} has {len(found)} devices; {MAX_DEVICES} are the most")
    return [_choice(f"{kind}={name}", item) for name in found]


def _why(item: DeviceRequest, kind: str, gpu: Gpu | None, names: DeviceNames, machine: Machine) -> str:
    if gpu and gpu.problem:
        return gpu.problem
    if gpu and gpu.is_partitioned:
        parts = f": it has {', '.join(gpu.parts[:_SHOWN])}" if gpu.parts else ", and it has no instances"
        return f"the GPU is in MIG mode, and its instances are asked for by themselves{parts}"
    text = names.reason(kind, canonical(item.token) if gpu else item.token)
    return text if gpu or machine.problem else f"{text}; the host has no such GPU"


def _unknown(item: DeviceRequest, reason: str) -> Refusal:
    return Refusal("unknown_device", f"{item.origin} asks for {quote(item.text)}: {reason}")


def _choice(device: str, item: DeviceRequest) -> Choice:
    return Choice(device=device, token=item.token, origin=item.origin)


def _different(choices: list[Choice], machine: Machine, other_kinds: tuple[str, ...]) -> tuple[Choice, ...]:
    """Return CHOICES without repetitions, the same GPU of a kind under another name being one.

    Beside all GPUs of a kind no single one counts. Two names of a GPU that the inventory does not have stay
    two: what a spec gives under each need not be the same.
    """
    every = (choice.kind for choice in choices if choice.name == ALL)
    whole = {kind for kind in every if is_nvidia_gpu(kind) or kind in other_kinds}
    unique: dict[tuple[str, str], Choice] = {}
    for choice in choices:
        if choice.kind in whole and choice.name != ALL:
            continue
        gpu = machine.find(choice.name) if is_nvidia_gpu(choice.kind) else None
        unique.setdefault((choice.kind, gpu.names[0] if gpu else choice.name), choice)
    return tuple(unique.values())
