"""What a container requests by variables, and what its image requires. Pure.

NVIDIA's are read here, those of other makers by ``makers``. Semantics of NVIDIA's: nvidia-container-toolkit
1.20 and libnvidia-container (docs/configuration.md, "The NRI plugin").
"""

from __future__ import annotations

import re

from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.nri.decision.request import (
    DECISIVE,
    MAX_DEVICES,
    DeviceRequest,
    bounded,
    decisive_word,
    is_qualified,
    qualified_request,
    words_of,
)
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.nri.decision.makers import Asked, Makers

# All that NVIDIA_REQUIRE_* may hold; in NVIDIA's images that is some 2 kB.
MAX_REQUIREMENTS = 32 << 10

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
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
IMEX_KIND = "nvidia.com/imex-channel"
COMPAT32 = "compat32"
# Nothing of the driver is asked for: NVIDIA's runtime knows the word (internal/config/image/capabilities.go,
# DriverCapabilityNone), its jit-cdi mode looks at none, and the older hook stopped the container.
_NO_CAPABILITY = "none"
KNOWN_CAPABILITIES = ("compute", "utility", "graphics", "video", "display", "ngx", COMPAT32)
_BY_DEFAULT = ("utility", "compute")
_READ = frozenset((VISIBLE, CAPABILITIES, IMEX, _DISABLE, _LEGACY, *SWITCHES, *ADMINISTRATION))
_NVIDIAS = ("NVIDIA_", "CUDA_")
# strconv.ParseBool of Go, which reads the variable elsewhere.
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_CUDA_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})([.-].*)?", re.ASCII)


@frozen
class Variables:
    """The variables of an environment that count; of those given twice the last, as for the program.

    ``values`` and ``requirements`` are NVIDIA's, ``others`` what is asked by those of other makers.
    """

    values: Mapping[str, str]
    requirements: tuple[tuple[str, str], ...]
    others: tuple[Asked, ...] = ()

    @property
    def is_legacy(self) -> bool:
        """Whether the image is one of the first of CUDA, which said neither devices nor requirements."""
        says = any(text for name, text in self.requirements if name == f"{REQUIRE}CUDA")
        return bool(self.values.get(_LEGACY)) and not says

    @property
    def requires(self) -> bool:
        """Whether requirements count."""
        return self.values.get(_DISABLE, "") not in _TRUE


def variables(environment: Iterable[str], makers: Makers) -> Variables:
    """Return what counts of an environment of ``KEY=value``, by the tables of MAKERS besides NVIDIA."""
    values: dict[str, str] = {}
    requirements: dict[str, str] = {}
    others: dict[str, str] = {}
    begins = (*_NVIDIAS, *makers.begins)
    for entry in environment:
        if not entry.startswith(begins):
            continue
        name, equals, value = entry.partition("=")
        if name in _READ and equals:
            values[name] = value
        elif name.startswith(REQUIRE) and not name.startswith(_NOT_REQUIRED) and equals:
            requirements[name] = value
        elif equals and makers.reads(name):
            # The last given comes last.
            others.pop(name, None)
            others[name] = value
    return Variables(values=values, requirements=tuple(requirements.items()), others=makers.asked(others))


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

    Unset or empty are utility and compute; a legacy image means all, which are all but 32-bit libraries;
    none asks for nothing, so that the kind with the least will do.
    """
    text = given.values.get(CAPABILITIES)
    if text is None and given.is_legacy:
        text = "all"
    words = words_of(text or "", CAPABILITIES) or list(_BY_DEFAULT)
    for word in words:
        if word not in KNOWN_CAPABILITIES and word not in {"all", _NO_CAPABILITY}:
            known = ", ".join((*KNOWN_CAPABILITIES, "all", _NO_CAPABILITY))
            raise Refusal("unknown_capability", f"{CAPABILITIES} names {quote(word)}; known are {known}")
    named = dict.fromkeys(word for word in words if word in KNOWN_CAPABILITIES)
    every = dict.fromkeys(KNOWN_CAPABILITIES[:-1]) if "all" in words else {}
    return tuple(every | named)


def requests_devices(given: Variables) -> bool:
    """Return whether anything in the environment asks for devices."""
    return bool(
        _visible(given)
        or given.others
        or any(given.values.get(name) for name in (IMEX, *SWITCHES, *ADMINISTRATION))
    )


def by_environment(
    given: Variables, *, gpus_listed: bool = False, channels_listed: bool = False
) -> tuple[DeviceRequest, ...]:
    """Return what NVIDIA's variables ask for, without repetitions; raises Refusal.

    Where NVIDIA_VISIBLE_DEVICES asks for nothing, none of NVIDIA's other variables does. GPUS_LISTED,
    CHANNELS_LISTED: mounts list these, and count in place of their variables.
    """
    items = [] if gpus_listed else list(_gpus(_visible(given)))
    if items or gpus_listed:
        if not channels_listed:
            items += _imex(given.values.get(IMEX, ""))
        if not gpus_listed:
            items += switches(given)
        items += _administration(given)
    return bounded(items)


def switches(given: Variables) -> Iterator[DeviceRequest]:
    """Yield what SWITCHES ask for, which counts wherever the GPUs beside it do.

    So it is with NVIDIA's runtime (nvidia-container-toolkit 1.20, internal/modifier/cdi.go, gatedDevices).
    """
    for name, (wanted, kind, token) in SWITCHES.items():
        if given.values.get(name) == wanted:
            yield DeviceRequest(token=token, kind=kind, origin=name)


def _administration(given: Variables) -> Iterator[DeviceRequest]:
    for name, (wanted, kind, token) in ADMINISTRATION.items():
        value = given.values.get(name, "")
        if value == wanted:
            yield DeviceRequest(token=token, kind=kind, origin=name)
        elif value:
            raise Refusal("malformed", f"{name}={quote(value)}: it can only be {wanted!r}")


def _visible(given: Variables) -> str:
    text = given.values.get(VISIBLE)
    return "all" if text is None and given.is_legacy else text or ""


def _gpus(text: str) -> Iterator[DeviceRequest]:
    words = words_of(text, VISIBLE)
    decisive = decisive_word(words)
    if decisive:
        words = [] if decisive == "void" else [decisive]
    for word in words:
        if "=" in word and is_qualified(word):
            yield qualified_request(word, VISIBLE)
        else:
            yield DeviceRequest(token=word, kind="", origin=VISIBLE, qualified=False)


def _imex(text: str) -> Iterator[DeviceRequest]:
    for word in words_of(text, IMEX):
        # From the environment the toolkit passes over "all": a container names its channels.
        if word.lower() not in DECISIVE:
            yield DeviceRequest(token=word, kind=IMEX_KIND, origin=IMEX)
