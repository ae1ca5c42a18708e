"""``DeviceRequest``: a request for one device, and the common functions of the modules that read requests.

These modules are ``annotations``, ``mounts``, ``environment`` (NVIDIA's variables) and ``vendor_variables``
(variables of other vendors). The functions are pure. They do not depend on the host (see ``select``) or on
the policy (see ``policy``).
"""

from __future__ import annotations

from functools import lru_cache

from cdigen.model.names import is_device_name, is_kind
from cdigen.model.view import DEFAULT_KIND
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEVICES = 256
# Kubernetes limits all annotations of an object to 256 KiB. 256 device names with UUIDs have 14 kB.
MAX_TEXT = 64 << 10
# This kind of GPUs has no spec. NVIDIA's runtime computes the edits when a container starts
# (nvidia-container-toolkit 1.20, internal/modifier/cdi.go, automaticDeviceKind). The name of a device is an
# index, a UUID or "all".
RUNTIME_KIND = "runtime.nvidia.com/gpu"
# If a list contains one of these words, at any position, the word replaces the whole list. The first of these
# words has the highest priority (nvidia-container-toolkit 1.20, internal/config/image/devices.go,
# NewVisibleDevices).
DECISIVE = ("void", "none", "all")
# Device classes of NVIDIA that are not GPUs. In these classes, a device name such as "0" is not a GPU index.
_FAMILIES = frozenset(("gds", "gdrcopy", "imex-channel", "mig", "mofed", "nvswitch"))


@frozen
class DeviceRequest:
    """A request for the device ``token`` of ``kind``.

    ``origin`` is the variable, annotation or mount with the request. If ``kind`` is empty, ``token`` is the
    name of an NVIDIA GPU as in NVIDIA_VISIBLE_DEVICES, and the requested capabilities determine the kind.
    ``qualified`` is true if the container requested the device with its kind. ``alias`` is the requested
    kind if it differs from ``kind``. For a request with an alias, ``token`` can be any name of the GPU.
    """

    token: str
    kind: str
    origin: str
    qualified: bool = False
    alias: str = ""

    @property
    def text(self) -> str:
        """The name of the requested device, with the kind if the request has a kind."""
        kind = self.alias or self.kind
        return f"{kind}={self.token}" if kind else self.token


def is_nvidia(kind: str) -> bool:
    """Return whether KIND has a vendor name of NVIDIA, such as nvidia.com or k8s.gpu.nvidia.com."""
    vendor = kind.partition("/")[0]
    return vendor == "nvidia.com" or vendor.endswith(".nvidia.com")


@lru_cache(maxsize=64)
def is_nvidia_gpu(kind: str) -> bool:
    """Return whether KIND is a kind of NVIDIA GPUs."""
    return is_nvidia(kind) and kind.partition("/")[2] not in _FAMILIES


def is_qualified(text: str) -> bool:
    """Return whether TEXT is a fully qualified CDI device name."""
    kind, _, device = text.partition("=")
    return is_kind(kind) and is_device_name(device)


def qualified_request(text: str, origin: str) -> DeviceRequest:
    """Return the request for the fully qualified CDI device name TEXT.

    Raise InjectionRefusal if TEXT is not such a name.
    """
    if not is_qualified(text):
        raise InjectionRefusal(
            "annotation",
            f"the {origin} contains {quote(text)}, which is not of the form vendor/class=device",
        )
    kind, _, device = text.partition("=")
    alias = kind if kind == RUNTIME_KIND else ""
    return DeviceRequest(
        token=device, kind=DEFAULT_KIND if alias else kind, origin=origin, qualified=True, alias=alias
    )


def deduplicated(items: Iterable[DeviceRequest]) -> tuple[DeviceRequest, ...]:
    """Return ITEMS without repetitions; raise InjectionRefusal if there are more than MAX_DEVICES."""
    unique: dict[tuple[str, str], DeviceRequest] = {}
    for item in items:
        unique.setdefault((item.kind, item.token), item)
    if len(unique) > MAX_DEVICES:
        raise InjectionRefusal("too_much", f"too many devices requested ({len(unique)}, limit {MAX_DEVICES})")
    return tuple(unique.values())


def words_of(text: str, origin: str) -> list[str]:
    """Return the words between the commas of TEXT; raise InjectionRefusal if TEXT exceeds MAX_TEXT."""
    if len(text) > MAX_TEXT:
        raise InjectionRefusal("too_much", f"{origin} has more than {MAX_TEXT} characters")
    return comma_list(text)


def decisive_word(words: list[str]) -> str:
    """Return the first entry of DECISIVE that WORDS contain in upper or lower case, or ""."""
    lower = {word.lower() for word in words if len(word) < 5}
    return next((word for word in DECISIVE if word in lower), "")


def comma_list(text: str) -> list[str]:
    """Return the words between the commas of TEXT, without surrounding blanks and without empty words."""
    return [word for part in text.split(",") if (word := part.strip())]
