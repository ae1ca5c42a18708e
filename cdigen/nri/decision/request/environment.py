"""Pure functions that read the requests and requirements in the environment of a container.

This module reads NVIDIA's variables. ``vendor_variables`` reads the variables of other vendors. NVIDIA's
variables have the same meaning as in nvidia-container-toolkit 1.20 and libnvidia-container
(docs/reference/configuration.md, "The NRI plugin").
"""

from __future__ import annotations

import re

from cdigen.nri.decision.request.device_request import (
    DECISIVE,
    MAX_DEVICES,
    MAX_TEXT,
    DeviceRequest,
    comma_list,
    decisive_word,
    deduplicated,
    is_qualified,
    qualified_request,
    words_of,
)
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.nri.decision.request.vendor_variables import VariableRequest, VendorVariables

# The maximum total number of characters in all NVIDIA_REQUIRE_*. NVIDIA's images have about 2 kB.
MAX_REQUIREMENTS = 32 << 10

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
IMEX = "NVIDIA_IMEX_CHANNELS"
REQUIRE = "NVIDIA_REQUIRE_"
_NOT_REQUIRED = "NVIDIA_REQUIRE_JETPACK"  # selects files of Tegra, and is not a requirement
_DISABLE = "NVIDIA_DISABLE_REQUIRE"
_LEGACY = "CUDA_VERSION"
# The variable, the value that requests the device, and the kind and name of the device.
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
# This word means that no capability is requested. NVIDIA's runtime also accepts the word
# (internal/config/image/capabilities.go, DriverCapabilityNone). The jit-cdi mode of the runtime ignores all
# capabilities. NVIDIA's older hook stopped a container with this word.
_NO_CAPABILITY = "none"
KNOWN_CAPABILITIES = ("compute", "utility", "graphics", "video", "display", "ngx", COMPAT32)
_DEFAULT_CAPABILITIES = ("utility", "compute")
_READ = frozenset((VISIBLE, CAPABILITIES, IMEX, _DISABLE, _LEGACY, *SWITCHES, *ADMINISTRATION))
_NVIDIAS = ("NVIDIA_", "CUDA_")
# The true values of Go's strconv.ParseBool, with which NVIDIA's runtime parses NVIDIA_DISABLE_REQUIRE.
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_CUDA_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})([.-].*)?", re.ASCII)


@frozen
class Variables:
    """The variables with requests and requirements.

    If a variable is repeated, the last value applies, as in the process of the container. ``values`` and
    ``requirements`` are NVIDIA's variables. ``others`` are the requests in variables of other vendors.
    """

    values: Mapping[str, str]
    requirements: tuple[tuple[str, str], ...]
    others: tuple[VariableRequest, ...] = ()

    @property
    def is_legacy(self) -> bool:
        """Whether the image is an early CUDA image, with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA."""
        has_requirement = any(text for name, text in self.requirements if name == f"{REQUIRE}CUDA")
        return bool(self.values.get(_LEGACY)) and not has_requirement

    @property
    def requires(self) -> bool:
        """Whether the requirements apply."""
        return self.values.get(_DISABLE, "") not in _TRUE


def read_variables(environment: Iterable[str], vendor_variables: VendorVariables) -> Variables:
    """Return the variables in ENVIRONMENT (``KEY=value``) that NVIDIA or VENDOR_VARIABLES define."""
    values: dict[str, str] = {}
    requirements: dict[str, str] = {}
    others: dict[str, str] = {}
    prefixes = (*_NVIDIAS, *vendor_variables.prefixes)
    for entry in environment:
        if not entry.startswith(prefixes):
            continue
        name, equals, value = entry.partition("=")
        if name in _READ and equals:
            values[name] = value
        elif name.startswith(REQUIRE) and not name.startswith(_NOT_REQUIRED) and equals:
            requirements[name] = value
        elif equals and vendor_variables.is_read(name):
            # A repeated variable moves to the end of the dictionary.
            others.pop(name, None)
            others[name] = value
    return Variables(
        values=values, requirements=tuple(requirements.items()), others=vendor_variables.read(others)
    )


def requirements(variables: Variables) -> tuple[tuple[str, str], ...]:
    """Return the requirements of the image, as pairs of variable and expression.

    Raise InjectionRefusal if there are more than MAX_REQUIREMENTS characters or more than MAX_DEVICES
    requirements. Also raise InjectionRefusal if CUDA_VERSION of a legacy image is not a version.
    """
    if not variables.requires:
        return ()
    rows = variables.requirements
    if sum(len(text) for _, text in rows) > MAX_REQUIREMENTS or len(rows) > MAX_DEVICES:
        limit = f"{MAX_REQUIREMENTS} characters or {MAX_DEVICES} requirements"
        raise InjectionRefusal("too_much", f"{REQUIRE}* have more than {limit}")
    # An image can cancel a requirement of its base image with an empty variable.
    rows = tuple([row for row in rows if row[1].replace(",", " ").strip()])
    if variables.is_legacy:
        version = _CUDA_VERSION.fullmatch(variables.values[_LEGACY])
        if not version:
            text = f"{_LEGACY}={quote(variables.values[_LEGACY])} is not a version"
            raise InjectionRefusal("requirement_malformed", text)
        rows = (*rows, (_LEGACY, f"cuda>={version[1]}.{version[2]}"))
    return rows


def capabilities(variables: Variables) -> tuple[str, ...]:
    """Return the requested driver capabilities; raise InjectionRefusal for an unknown capability.

    An unset or empty variable means utility and compute. In a legacy image, an unset variable means ``all``.
    ``all`` means all capabilities except compat32. ``none`` means no capability, and selects the kind with
    the fewest capabilities.
    """
    text = variables.values.get(CAPABILITIES)
    if text is None and variables.is_legacy:
        text = "all"
    words = words_of(text or "", CAPABILITIES) or list(_DEFAULT_CAPABILITIES)
    for word in words:
        if word not in KNOWN_CAPABILITIES and word not in {"all", _NO_CAPABILITY}:
            known = ", ".join((*KNOWN_CAPABILITIES, "all", _NO_CAPABILITY))
            raise InjectionRefusal(
                "unknown_capability", f"{CAPABILITIES}: unknown capability {quote(word)} (known: {known})"
            )
    named = dict.fromkeys(word for word in words if word in KNOWN_CAPABILITIES)
    every = dict.fromkeys(KNOWN_CAPABILITIES[:-1]) if "all" in words else {}
    return tuple(every | named)


def names_devices(variables: Variables) -> bool:
    """Return whether the environment requests a device or the driver.

    ``void`` and lists without words request nothing. In variables of other vendors than NVIDIA, ``none``
    also requests nothing.
    """
    visible = comma_list(_visible(variables)[:MAX_TEXT])
    others = [comma_list(one.text[:MAX_TEXT]) for one in variables.others]
    return bool(visible and decisive_word(visible) != "void") or any(
        words and decisive_word(words) in {"", "all"} for words in others
    )


def requests_devices(variables: Variables) -> bool:
    """Return whether the environment has a variable that can request devices.

    ``names_devices`` also checks the value of the variable.
    """
    return bool(
        _visible(variables)
        or variables.others
        or any(variables.values.get(name) for name in (IMEX, *SWITCHES, *ADMINISTRATION))
    )


def by_environment(
    variables: Variables, *, gpus_listed: bool = False, channels_listed: bool = False
) -> tuple[DeviceRequest, ...]:
    """Return the requests in NVIDIA's variables, without repetitions.

    If NVIDIA_VISIBLE_DEVICES requests nothing, NVIDIA's other variables are ignored. If GPUS_LISTED is true,
    mounts list the GPUs, and NVIDIA_VISIBLE_DEVICES is ignored. If CHANNELS_LISTED is true, mounts list the
    IMEX channels, and NVIDIA_IMEX_CHANNELS is ignored. Raise InjectionRefusal if a variable is invalid.
    """
    items = [] if gpus_listed else list(_gpus(_visible(variables)))
    if items or gpus_listed:
        if not channels_listed:
            items += _imex(variables.values.get(IMEX, ""))
        if not gpus_listed:
            items += switches(variables)
        items += _administration(variables)
    return deduplicated(items)


def switches(variables: Variables) -> Iterator[DeviceRequest]:
    """Yield the requests in the variables of SWITCHES.

    These variables apply to GPU requests of the environment and of mounts. NVIDIA's runtime does the same
    (nvidia-container-toolkit 1.20, internal/modifier/cdi.go, gatedDevices).
    """
    for name, (enabling, kind, token) in SWITCHES.items():
        if variables.values.get(name) == enabling:
            yield DeviceRequest(token=token, kind=kind, origin=name)


def _administration(variables: Variables) -> Iterator[DeviceRequest]:
    for name, (enabling, kind, token) in ADMINISTRATION.items():
        value = variables.values.get(name, "")
        if value == enabling:
            yield DeviceRequest(token=token, kind=kind, origin=name)
        elif value:
            raise InjectionRefusal("malformed", f"{name}={quote(value)}: must be {enabling!r}")


def _visible(variables: Variables) -> str:
    text = variables.values.get(VISIBLE)
    return "all" if text is None and variables.is_legacy else text or ""


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
        # As in NVIDIA's toolkit, "all" has no effect here. A container must name its channels.
        if word.lower() not in DECISIVE:
            yield DeviceRequest(token=word, kind=IMEX_KIND, origin=IMEX)
