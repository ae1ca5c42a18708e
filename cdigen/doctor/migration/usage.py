"""Find requests for GPUs in scripts, units and compose files, with their replacements.

The search examines each line for usual spellings. The search parses no shell and no YAML. Requests from
variables or over several lines are not found. A replacement contains no text of the file except device names.
docs/reference/other-tools.md has the same replacements as a table.
"""

from __future__ import annotations

import re

from cdigen import page_url
from cdigen.doctor.migration.replacements import GPU, MAX_COUNT, by_name, device_names, first_names, options
from cdigen.doctor.migration.reservations import find_reservations
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The number of characters of a command line that are examined before an option.
_MOST_BEFORE = 400
_COMMENTS = ("#", ";", "//")


@frozen
class LegacyRequest:
    """A request for GPUs that needs another tool, with its place and its replacement."""

    file: str
    line: int
    request: str
    replacement: str


def find_requests(file: str, text: str) -> Iterator[LegacyRequest]:
    """Yield the requests in FILE, which has the content TEXT, line by line; comments are ignored."""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith(_COMMENTS):
            continue
        for pattern, replacement_of in _PATTERNS:
            for match in pattern.finditer(line):
                if replacement := replacement_of(match):
                    request = match[0].strip()
                    yield LegacyRequest(file=file, line=number, request=request, replacement=replacement)
        for request, replacement in (
            *find_reservations(lines, number - 1),
            *_kfd_requests(lines, number - 1),
        ):
            yield LegacyRequest(file=file, line=number, request=request, replacement=replacement)


def _gpus(match: re.Match[str]) -> str:
    """Return the replacement of --gpus.

    The value is ``all``, a count, or ``device=0,1`` with the quotes of a shell and of CSV. A value with only
    other keys requests one GPU (docker/cli, opts/gpus.go).
    """
    value = match["value"].replace("\\", "").strip("'\"")
    if _CDI.search(value):
        return ""
    if device := _DEVICE.search(value):
        return options(GPU, device[1])
    if _ALL.search(value):
        return options(GPU, "all")
    count = _COUNT.search(value)
    if not count and not _ONLY_KEYS.fullmatch(value):
        return by_name(GPU)
    # The command ctr of containerd accepts the numbers of GPUs, but no count.
    if count and _CTR.search(match.string[max(0, match.start() - _MOST_BEFORE) : match.start()]):
        return options(GPU, count[1])
    number = int(count[1]) if count else 1
    if number == 0:
        return "remove it"
    if number > MAX_COUNT:
        return f"--device {GPU}=NAME for each GPU (CDI has names, no counts)"
    return f"{options(GPU, first_names(number))} (CDI has names, no counts)"


def _visible(kind: str, prefix: str = "") -> Callable[[re.Match[str]], str]:
    """Return the function for a variable with devices of KIND, whose number N is the device PREFIX + N."""

    def replacement_of(match: re.Match[str]) -> str:
        value = _NUMBER.sub(rf"{prefix}\1", match["value"].strip("'\""))
        if value.lower() in {"", "none", "void"}:
            return "remove the variable when no runtime reads it anymore; until then, the value prevents GPUs"
        names = device_names(kind, value)
        if not names:
            return by_name(kind)
        if _IMAGE.match(match.string):
            advice = "remove it from the image, and name the device in the command that starts the container"
            return f"{advice}: {options(kind, value)}"
        return f"{options(kind, value)}; in a compose file: devices: [{', '.join(names)}]"

    return replacement_of


def _runtime(match: re.Match[str]) -> str:
    if ":" in match[0]:
        variable, kind, _ = _VARIABLES[match["name"]]
        return (
            f"remove it, and add devices: [{kind}=NAME] for each device of {variable}; "
            f"{kind}=all only if its value is all"
        )
    return (
        "remove it, and name the device in the command that starts the container "
        f"(Nomad: {page_url('how-to/migrate')})"
    )


def _old_docker(match: re.Match[str]) -> str:
    """Return the replacement of nvidia-docker; without NV_GPU, nvidia-docker gave all GPUs to a container."""
    if selected := _NV_GPU.search(match.string[max(0, match.start() - _MOST_BEFORE) : match.start()]):
        return f"docker run {options(GPU, selected['value'].strip(_QUOTES).replace(' ', ','))}"
    return f"docker run --device {GPU}=NAME for each GPU of NV_GPU; {GPU}=all only if NV_GPU is not set"


def _apptainer(match: re.Match[str]) -> str:
    """Return the replacement of --nv, --nvccli or --rocm of Apptainer or SingularityCE, which give all GPUs.

    With --nvccli, NVIDIA_VISIBLE_DEVICES selects the GPUs.
    """
    kind = _AMD if "--rocm" in match["options"] else GPU
    needs = "--oci ", "SingularityCE 4.0 or newer"
    if match["program"] == "apptainer":
        needs = "", f"Apptainer 1.5 or newer, and a spec without hooks: {_WITHOUT_HOOKS}"
    if "--nvccli" in match["options"]:
        each = f"--device {GPU}=NAME for each GPU of NVIDIA_VISIBLE_DEVICES"
        return f"{needs[0]}{each}; {GPU}=all only if the variable is not set or is all ({needs[1]})"
    return f"{needs[0]}{options(kind, 'all')} ({needs[1]})"


def _kfd_requests(lines: list[str], at: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of a request for /dev/kfd and its replacement.

    /dev/dri has the nodes of all GPUs. A single node in /dev/dri selects one GPU, whose name is unknown here.
    """
    found = [match[0].strip() for match in _KFD.finditer(lines[at])]
    replacement = f"--device {_AMD}=all, without /dev/dri; in a compose file: devices: [{_AMD}=all]"
    if found and any(_ONE_NODE.search(line) for line in _lines_with_nodes(lines, at)):
        replacement = f"--device {_AMD}=NAME of the GPU with this node in /dev/dri; 'cdigen inspect' shows it"
    yield from ((request, replacement) for request in found)


def _nvidia_node(match: re.Match[str]) -> str:
    """Return the replacement of a device node of NVIDIA; the GPU with the node is unknown here."""
    if match["minor"]:
        return f"--device {GPU}=NAME of the GPU with this device node; 'cdigen inspect' shows it"
    return f"remove it: each device of {GPU} includes this device node"


def _lines_with_nodes(lines: list[str], at: int) -> Iterator[str]:
    """Yield ``lines[at]`` and the adjacent lines that also name device nodes."""
    yield lines[at]
    for near in (reversed(lines[max(0, at - _MOST_NODES) : at]), lines[at + 1 : at + _MOST_NODES]):
        for line in near:
            if "/dev/" not in line:
                break
            yield line


def _fixed(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _match: text


_AMD = "amd.com/gpu"
_WITHOUT_HOOKS = page_url("how-to/start-up-hook")
# Name of an OCI runtime -> variable with its devices, their kind, and the prefix of the names of devices by
# number (HabanaAI/habana-container-runtime, README.md: the number is that of /dev/accel/accelN).
_VARIABLES = {
    "nvidia": ("NVIDIA_VISIBLE_DEVICES", GPU, ""),
    "amd": ("AMD_VISIBLE_DEVICES", _AMD, ""),
    "habana": ("HABANA_VISIBLE_DEVICES", "intel.com/gaudi", "accel"),
}
_NAMES = "|".join(_VARIABLES)
_ANY_VARIABLE = "|".join(variable for variable, _, _ in _VARIABLES.values())
_NUMBER = re.compile(r"(?<![^,\s])([0-9]+)(?![^,\s])")
_CDI = re.compile(r"""(?:^|[,"'])driver=cdi\b""")
# The value ends at a quote of CSV or at the next key, such as capabilities or driver.
_DEVICE = re.compile(r"""(?:^|[,"'])device=([^"']*?)(?=["']|,\w+=|$)""")
_COUNT = re.compile(r"""(?:^|[,"'])(?:count=)?([0-9]{1,9})(?=[,"']|$)""")
_ALL = re.compile(r"""(?:^|[,"'])(?:count=)?(?:all|-1)(?=[,"']|$)""")
_ONLY_KEYS = re.compile(r"""[\w=,"'.-]*(?:driver|capabilities|options)=[\w=,"'.-]*""")
_NV_GPU = re.compile(r"""(?<!\S)NV_GPU=(?P<value>'[^']*'|"[^"]*"|\S*)""")
_ONE_NODE = re.compile(r"/dev/dri/(?:renderD|card|by-path/)")
# The maximum number of lines before and after a line with /dev/kfd that are examined.
_MOST_NODES = 32
_QUOTES = "'\""
_CTR = re.compile(r"(?:^|[\s/])ctr\s")
_IMAGE = re.compile(r"\s*ENV\s", re.IGNORECASE)
# The separator between the name and the value of an option, in a command line or in a list of words.
_OF_OPTION = r"""(?:=|\s+|['"]\s*,\s*)"""
_KFD = re.compile(rf"""(?:--device{_OF_OPTION}|AddDevice=|^\s*-\s*)['"]?/dev/kfd\b""")
_NVIDIA_NODE = re.compile(
    rf"""(?:--device{_OF_OPTION}|AddDevice=|^\s*-\s*)['"]?"""
    r"/dev/nvidia(?:(?P<minor>[0-9]+)|ctl|-modeset|-uvm|-uvm-tools)(?![\w-])"
)
_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\"[^"\\]*\\\""""
_VALUE = r"""['"]?(?:=|\s*:\s*)(?P<value>"[^"]*"|'[^']*'|[^\s'"\]}]*)"""


def _variable(name: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns that set the variable NAME.

    The patterns are for shells, YAML and JSON, for HCL, and for old Dockerfiles.
    """
    return (
        # ${NAME:-all} only reads the variable.
        re.compile(rf"(?:(?<![\w$])|(?<=-e))(?<!\$\{{){name}{_VALUE}"),
        re.compile(rf"""^\s*['"]?{name}['"]?\s+=\s*(?P<value>"[^"]*"|\S*)"""),
        re.compile(rf"""^\s*ENV\s+{name}\s+(?P<value>"[^"]*"|'[^']*'|[^\s=]\S*)""", re.IGNORECASE),
    )


# Pattern of a request -> function that returns the replacement.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(rf"""--gpus{_OF_OPTION}(?P<value>{_QUOTED}|[^\s'";|&)\]]+)"""), _gpus),
    (
        re.compile(rf"""--runtime{_OF_OPTION}['"]?(?:{_NAMES})\b"""),
        _fixed("remove it, and name the device with --device"),
    ),
    (
        re.compile(
            r"""(?<![\w.-])['"]?runtime['"]?\s*[:=]\s*(?:&\w+\s+)?"""
            rf"""['"]?(?P<name>{_NAMES})\b['"]?"""
        ),
        _runtime,
    ),
    (re.compile(r"""^\s*['"]?gpus['"]?\s*:\s*['"]?all\b['"]?"""), _fixed("devices: [nvidia.com/gpu=all]")),
    (
        re.compile(rf"""\bruntimeClassName:\s*['"]?(?:{_NAMES})\b['"]?"""),
        _fixed("keep the runtime class for pods of a device plugin; 'cdigen nri' needs no runtime class"),
    ),
    *(
        (pattern, _visible(kind, prefix))
        for variable, kind, prefix in _VARIABLES.values()
        for pattern in _variable(variable)
    ),
    (
        re.compile(rf"""\bname:\s*['"]?(?:{_ANY_VARIABLE})\b['"]?"""),
        _fixed(
            f"keep it if 'cdigen nri' reads it ({page_url('how-to/kubernetes/visible-devices')}), "
            "else remove it"
        ),
    ),
    (
        re.compile(r"\bNVIDIA_DRIVER_CAPABILITIES\b"),
        _fixed("remove it: a device includes the whole driver; a profile with capabilities includes less"),
    ),
    (_NVIDIA_NODE, _nvidia_node),
    (
        re.compile(r"\bnvidia-docker\s+(?:container\s+)?(?:run|create)\b"),
        _old_docker,
    ),
    (
        re.compile(
            r"\b(?P<program>singularity|apptainer)\s+(?:run|exec|shell|test|instance)\s[^;|&#]{0,400}?"
            r"(?P<options>(?<!\S)--(?:nv|nvccli|rocm)(?:\s+--(?:nv|nvccli))*(?!\S))"
        ),
        _apptainer,
    ),
    (
        re.compile(r"\b(?:nvidia|amd)-ctk\s+cdi\s+generate\b|\bintel-cdi-specs-generator\b"),
        _fixed("remove it: cdigen.service writes the specs, 'cdigen generate --write' writes them once"),
    ),
)
