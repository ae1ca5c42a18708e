"""What a container requests by its pod's annotations and its environment, as ``DeviceRequest``s. Pure.

Nothing here knows what the host has or what is allowed: that is what ``select`` and ``policy`` are for.
Semantics of the variables: nvidia-container-toolkit 1.20 and libnvidia-container (docs/configuration.md,
"The NRI plugin"); annotations: NVIDIA's NRI plugin and the device injector of NRI's samples.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cdigen.model.names import is_device_name, is_kind
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Whose annotations -> their names, the preferred first, and whether the value may be a list with commas.
# Each stands for itself, for /pod and for /container.NAME. The second of the device injector is its older
# one (containerd/nri, plugins/device-injector); NVIDIA's is a list with commas only.
PREFIXES = {
    "cdigen": ("devices.cdigen.dev",),
    "nvidia": ("nvidia.cdi.k8s.io",),
    "noderesource": ("cdi-devices.noderesource.dev", "cdi-devices.nri.io"),
}
MAX_DEVICES = 256
# Of all annotations of an object Kubernetes takes 256 KiB; 256 names of UUIDs are 14 kB.
MAX_TEXT = 64 << 10
# All that NVIDIA_REQUIRE_* may hold; in NVIDIA's images that is some 2 kB.
MAX_REQUIREMENTS = 32 << 10

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
AMD_VISIBLE = "AMD_VISIBLE_DEVICES"
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
IMEX = "NVIDIA_IMEX_CHANNELS"
REQUIRE = "NVIDIA_REQUIRE_"
_NOT_REQUIRED = "NVIDIA_REQUIRE_JETPACK"  # selects files of Tegra, says nothing of the driver
_DISABLE = "NVIDIA_DISABLE_REQUIRE"
_LEGACY = "CUDA_VERSION"
# Variable -> its one value that asks, and for what.
SWITCHES = {
    "NVIDIA_GDS": ("enabled", "nvidia.com/gds", "all"),
    "NVIDIA_MOFED": ("enabled", "nvidia.com/mofed", "all"),
    "NVIDIA_GDRCOPY": ("enabled", "nvidia.com/gdrcopy", "all"),
    "NVIDIA_NVSWITCH": ("enabled", "nvidia.com/nvswitch", "all"),
}
ADMINISTRATION = {
    "NVIDIA_MIG_CONFIG_DEVICES": ("all", "nvidia.com/mig", "mig-config"),
    "NVIDIA_MIG_MONITOR_DEVICES": ("all", "nvidia.com/mig", "mig-monitor"),
}
AMD_KIND = "amd.com/gpu"
IMEX_KIND = "nvidia.com/imex-channel"
# Classes of NVIDIA's kinds that are no GPUs: names such as "0" mean something else there.
_FAMILIES = frozenset(("gds", "gdrcopy", "imex-channel", "mig", "mofed", "nvswitch"))
KNOWN_CAPABILITIES = ("compute", "utility", "graphics", "video", "display", "ngx", "compat32")
_BY_DEFAULT = ("utility", "compute")
_READ = frozenset((VISIBLE, AMD_VISIBLE, CAPABILITIES, IMEX, _DISABLE, _LEGACY, *SWITCHES, *ADMINISTRATION))
_MINE = ("NVIDIA_", "AMD_", "CUDA_")
_DECISIVE = frozenset(("all", "none", "void"))
# strconv.ParseBool of Go, which reads the variable elsewhere.
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_CUDA_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})([.-].*)?", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})", re.ASCII)
_AMD_ID = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,16})")
MIN_ID_DIGITS = 8  # no host has so many GPUs


@frozen
class DeviceRequest:
    """One thing asked for: ``token`` of ``kind``, by ``origin`` (a variable or an annotation).

    Without a kind it is an NVIDIA GPU as NVIDIA_VISIBLE_DEVICES names it; which kind it is taken from
    depends on the capabilities. ``qualified``: the kind was named, too.
    """

    token: str
    kind: str
    origin: str
    qualified: bool = False


@frozen
class Variables:
    """The variables of an environment that count; of those given twice the last, as for the program."""

    values: Mapping[str, str]
    requirements: tuple[tuple[str, str], ...]

    @property
    def is_legacy(self) -> bool:
        """Whether the image is one of the first of CUDA, which said neither devices nor requirements."""
        says = any(text for name, text in self.requirements if name == f"{REQUIRE}CUDA")
        return bool(self.values.get(_LEGACY)) and not says

    @property
    def requires(self) -> bool:
        """Whether requirements count."""
        return self.values.get(_DISABLE, "") not in _TRUE


def variables(environment: Iterable[str]) -> Variables:
    """Return what counts of an environment of ``KEY=value``."""
    values: dict[str, str] = {}
    requirements: dict[str, str] = {}
    for entry in environment:
        if not entry.startswith(_MINE):
            continue
        name, equals, value = entry.partition("=")
        if name in _READ and equals:
            values[name] = value
        elif name.startswith(REQUIRE) and not name.startswith(_NOT_REQUIRED) and equals:
            requirements[name] = value
    return Variables(values=values, requirements=tuple(requirements.items()))


def requirements(given: Variables) -> tuple[tuple[str, str], ...]:
    """Return what an image requires: pairs of variable and expression.

    Raises Refusal where that is more than anybody reads, or CUDA_VERSION of a legacy image is no version.
    """
    if not given.requires:
        return ()
    rows = given.requirements
    if sum(len(text) for _, text in rows) > MAX_REQUIREMENTS or len(rows) > MAX_DEVICES:
        raise Refusal("too_much", f"{REQUIRE}* hold more than {MAX_REQUIREMENTS} characters")
    # Of a variable that holds nothing, as where a base image's is taken back, there is nothing to judge.
    rows = tuple([row for row in rows if row[1].replace(",", " ").strip()])
    if given.is_legacy:
        version = _CUDA_VERSION.fullmatch(given.values[_LEGACY])
        if not version:
            text = f"{_LEGACY}={quote(given.values[_LEGACY])} is not a version"
            raise Refusal("requirement_malformed", text)
        rows = (*rows, (_LEGACY, f"cuda>={version[1]}.{version[2]}"))
    return rows


def capabilities(given: Variables) -> tuple[str, ...]:
    """Return the driver capabilities asked for; raises Refusal for one that does not exist.

    Unset or empty are utility and compute; a legacy image means all, which are all but 32-bit libraries.
    """
    text = given.values.get(CAPABILITIES)
    if text is None and given.is_legacy:
        text = "all"
    words = _words(text or "", CAPABILITIES) or list(_BY_DEFAULT)
    for word in words:
        if word not in KNOWN_CAPABILITIES and word != "all":
            known = ", ".join((*KNOWN_CAPABILITIES, "all"))
            raise Refusal("unknown_capability", f"{CAPABILITIES} names {quote(word)}; known are {known}")
    named = dict.fromkeys(word for word in words if word != "all")
    every = dict.fromkeys(KNOWN_CAPABILITIES[:-1]) if "all" in words else {}
    return tuple(every | named)


def environment_requests_devices(given: Variables) -> bool:
    """Return whether anything in the environment asks for devices."""
    return bool(
        _visible(given)
        or given.values.get(AMD_VISIBLE)
        or any(given.values.get(name) for name in (IMEX, *SWITCHES, *ADMINISTRATION))
    )


def by_environment(given: Variables) -> tuple[DeviceRequest, ...]:
    """Return what the environment asks for, without repetitions; raises Refusal.

    Where NVIDIA_VISIBLE_DEVICES asks for nothing, none of NVIDIA's other variables does.
    """
    items = list(_gpus(_visible(given)))
    if items:
        items += _imex(given.values.get(IMEX, ""))
        for name, (wanted, kind, token) in SWITCHES.items():
            if given.values.get(name) == wanted:
                items.append(DeviceRequest(token=token, kind=kind, origin=name))
        for name, (wanted, kind, token) in ADMINISTRATION.items():
            value = given.values.get(name, "")
            if value == wanted:
                items.append(DeviceRequest(token=token, kind=kind, origin=name))
            elif value:
                raise Refusal("malformed", f"{name}={quote(value)}: it can only be {wanted!r}")
    items += _amd(given.values.get(AMD_VISIBLE, ""))
    return _bounded(items)


def requesting_annotations(
    annotations: Mapping[str, str], container: str, readers: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Return the names of the annotations that ask for CONTAINER, each with whose it is (READERS)."""
    found = []
    for reader in readers:
        prefixes = PREFIXES[reader]
        candidates = [
            f"{prefix}{end}" for end in (f"/container.{container}", "/pod", "") for prefix in prefixes
        ]
        # The closest one counts alone, as with all that read them.
        name = next((name for name in candidates if name in annotations), "")
        if name:
            found.append((name, reader))
    return tuple(found)


def by_annotation(
    annotations: Mapping[str, str], container: str, readers: tuple[str, ...]
) -> tuple[DeviceRequest, ...]:
    """Return what the annotations ask for, without repetitions; raises Refusal."""
    items = []
    for name, reader in requesting_annotations(annotations, container, readers):
        text = annotations[name]
        if len(text) > MAX_TEXT:
            raise Refusal("annotation", f"the annotation {name} has more than {MAX_TEXT} characters")
        names = _commas(text) if reader == "nvidia" else _listed(name, text, plain=reader == "cdigen")
        items += [_qualified(device, f"annotation {name}") for device in names]
    return _bounded(items)


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


def _visible(given: Variables) -> str:
    text = given.values.get(VISIBLE)
    return "all" if text is None and given.is_legacy else text or ""


def _gpus(text: str) -> Iterator[DeviceRequest]:
    words = _words(text, VISIBLE)
    # One such word decides, wherever it stands (nvidia-container-toolkit, image.NewVisibleDevices).
    decisive = _decisive(words)
    if decisive:
        words = [] if decisive == "void" else [decisive]
    for word in words:
        if "=" in word and is_qualified(word):
            yield _qualified(word, VISIBLE)
        else:
            yield DeviceRequest(token=word, kind="", origin=VISIBLE, qualified=False)


def _decisive(words: list[str]) -> str:
    """Return the first of WORDS that says all by itself, in lower case."""
    return next((word.lower() for word in words if len(word) < 5 and word.lower() in _DECISIVE), "")


def _imex(text: str) -> Iterator[DeviceRequest]:
    for word in _words(text, IMEX):
        # From the environment the toolkit passes over "all": a container names its channels.
        if word.lower() not in _DECISIVE:
            yield DeviceRequest(token=word, kind=IMEX_KIND, origin=IMEX)


def _amd(text: str) -> Iterator[DeviceRequest]:
    words = _words(text, AMD_VISIBLE)
    decisive = _decisive(words)
    if decisive:
        words = ["all"] if decisive == "all" else []
    for word in words:
        if is_qualified(word):
            yield _qualified(word, AMD_VISIBLE)
            continue
        for token in _range(word):
            yield DeviceRequest(token=_amd_id(token), kind=AMD_KIND, origin=AMD_VISIBLE)


def _amd_id(word: str) -> str:
    """Return WORD as specs name a GPU by its unique id, if it is one: 0xEA35F57CC80DEB35.

    sysfs has it in lower case, with leading zeros and without 0x, KFD as a decimal number, and each of AMD's
    tools in one form or another. A short word of digits alone is an index.
    """
    digits = _AMD_ID.fullmatch(word)
    if digits is None or (word.isdigit() and len(word) < MIN_ID_DIGITS):
        return word
    return f"0x{int(digits[1], 16):X}"


def _range(word: str) -> Iterable[str]:
    ends = _RANGE.fullmatch(word)
    if not ends:
        return (word,)
    first, last = int(ends[1]), int(ends[2])
    if not 0 <= last - first < MAX_DEVICES:
        raise Refusal("malformed", f"{AMD_VISIBLE} holds {word}, which is not a range of up to {MAX_DEVICES}")
    return map(str, range(first, last + 1))


def _words(text: str, origin: str) -> list[str]:
    if len(text) > MAX_TEXT:
        raise Refusal("too_much", f"{origin} has more than {MAX_TEXT} characters")
    return _commas(text)


def _commas(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def _qualified(text: str, origin: str) -> DeviceRequest:
    if not is_qualified(text):
        raise Refusal(
            "annotation",
            f"the {origin} holds {quote(text)}, which is not a device name of the form vendor/class=device",
        )
    kind, _, device = text.partition("=")
    return DeviceRequest(token=device, kind=kind, origin=origin, qualified=True)


def _bounded(items: Iterable[DeviceRequest]) -> tuple[DeviceRequest, ...]:
    unique: dict[tuple[str, str], DeviceRequest] = {}
    for item in items:
        unique.setdefault((item.kind, item.token), item)
    if len(unique) > MAX_DEVICES:
        raise Refusal("too_much", f"{len(unique)} devices are asked for; {MAX_DEVICES} are the most")
    return tuple(unique.values())


def _listed(name: str, text: str, *, plain: bool) -> list[str]:
    """Return the items of a YAML list of texts; where PLAIN, names with commas between them will do.

    Events are read as they come, and the first that such a list does not have ends it: nothing nests.
    """
    if plain and not text.lstrip().startswith(("-", "[", "#")):
        return _commas(text)
    import yaml  # noqa: PLC0415 - the registration need not wait for it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    items: list[str] = []
    wanted = {"StreamStartEvent", "DocumentStartEvent", "DocumentEndEvent", "StreamEndEvent"}
    wanted |= {"SequenceStartEvent", "SequenceEndEvent", "ScalarEvent"}
    lists = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            kind = type(event).__name__
            lists += kind == "SequenceStartEvent"
            if kind not in wanted or lists > 1 or (kind == "ScalarEvent" and not lists):
                break
            if isinstance(event, yaml.ScalarEvent):
                items.append(str(event.value))
            if len(items) > MAX_DEVICES * 4:
                raise Refusal("too_much", f"the annotation {name} lists more than {MAX_DEVICES} devices")
        else:
            if lists or not text.strip():
                return items
    except (yaml.YAMLError, ValueError):  # ValueError: what cannot be encoded for the parser
        raise Refusal("annotation", f"the annotation {name} is not YAML") from None
    raise Refusal("annotation", f"the annotation {name} is not a YAML list of device names")
