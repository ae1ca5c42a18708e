"""What is requested of a host: ``DeviceRequest``, and what its readers share. Pure.

Its readers are ``annotations``, ``mounts``, ``environment`` (NVIDIA's variables) and ``makers`` (those of
others). Nothing here knows what the host has or what is allowed: that is what ``select`` and ``policy`` are
for.
"""

from __future__ import annotations

from functools import lru_cache

from cdigen.model.names import is_device_name, is_kind
from cdigen.model.view import DEFAULT_KIND
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEVICES = 256
# Of all annotations of an object Kubernetes takes 256 KiB; 256 names of UUIDs are 14 kB.
MAX_TEXT = 64 << 10
# A name for GPUs of which no spec exists: NVIDIA's runtime makes their edits when a container starts
# (nvidia-container-toolkit 1.20, internal/modifier/cdi.go, automaticDeviceKind), by index, UUID or "all".
RUNTIME_KIND = "runtime.nvidia.com/gpu"
# Words of a variable that say all by themselves, wherever they stand: the first of these that is there
# (nvidia-container-toolkit 1.20, internal/config/image/devices.go, NewVisibleDevices).
DECISIVE = ("void", "none", "all")
# Classes of NVIDIA's kinds that are no GPUs: names such as "0" mean something else there.
_FAMILIES = frozenset(("gds", "gdrcopy", "imex-channel", "mig", "mofed", "nvswitch"))


@frozen
class DeviceRequest:
    """One thing asked for: ``token`` of ``kind``, by ``origin`` (a variable or an annotation).

    Without a kind it is an NVIDIA GPU as NVIDIA_VISIBLE_DEVICES names it; which kind it is taken from
    depends on the capabilities. ``qualified``: the kind was named, too; ``alias``: under this other name,
    beside which a GPU may have any of its names.
    """

    token: str
    kind: str
    origin: str
    qualified: bool = False
    alias: str = ""

    @property
    def text(self) -> str:
        """What was asked for, with its kind where it has one."""
        kind = self.alias or self.kind
        return f"{kind}={self.token}" if kind else self.token


def is_nvidia(kind: str) -> bool:
    """Return whether KIND is of NVIDIA's, under whichever vendor's name (k8s.gpu.nvidia.com)."""
    vendor = kind.partition("/")[0]
    return vendor == "nvidia.com" or vendor.endswith(".nvidia.com")


@lru_cache(maxsize=64)
def is_nvidia_gpu(kind: str) -> bool:
    """Return whether KIND is one of NVIDIA's GPUs."""
    return is_nvidia(kind) and kind.partition("/")[2] not in _FAMILIES


def is_qualified(text: str) -> bool:
    """Return whether TEXT is a device of CDI with its kind."""
    kind, _, device = text.partition("=")
    return is_kind(kind) and is_device_name(device)


def qualified_request(text: str, origin: str) -> DeviceRequest:
    """Return the request for the device of CDI that TEXT names in full; raises Refusal."""
    if not is_qualified(text):
        raise Refusal(
            "annotation",
            f"the {origin} holds {quote(text)}, which is not a device name of the form vendor/class=device",
        )
    kind, _, device = text.partition("=")
    alias = kind if kind == RUNTIME_KIND else ""
    return DeviceRequest(
        token=device, kind=DEFAULT_KIND if alias else kind, origin=origin, qualified=True, alias=alias
    )


def bounded(items: Iterable[DeviceRequest]) -> tuple[DeviceRequest, ...]:
    """Return ITEMS without repetitions; raises Refusal where they are too many."""
    unique: dict[tuple[str, str], DeviceRequest] = {}
    for item in items:
        unique.setdefault((item.kind, item.token), item)
    if len(unique) > MAX_DEVICES:
        raise Refusal("too_much", f"{len(unique)} devices are asked for; {MAX_DEVICES} are the most")
    return tuple(unique.values())


def words_of(text: str, origin: str) -> list[str]:
    """Return the words of TEXT between commas; raises Refusal where it is too long."""
    if len(text) > MAX_TEXT:
        raise Refusal("too_much", f"{origin} has more than {MAX_TEXT} characters")
    return comma_list(text)


def decisive_word(words: list[str]) -> str:
    """Return the one of WORDS that says all by itself, the first of DECISIVE that is there; else nothing."""
    there = {word.lower() for word in words if len(word) < 5}
    return next((word for word in DECISIVE if word in there), "")


def comma_list(text: str) -> list[str]:
    """Return what TEXT has between commas, without blanks and what is empty."""
    return [word for part in text.split(",") if (word := part.strip())]
