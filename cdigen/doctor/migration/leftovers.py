"""Find leftovers on a host: packages, programs, units, runtimes, hooks, sockets and specs of other tools."""

from __future__ import annotations

import posixpath

from cdigen import page_url
from cdigen.doctor.kubernetes_node.sockets import kind_of, resource_of
from cdigen.doctor.spec_documents import foreign_specs
from cdigen.runtimes.installed import FOLDERS
from cdigen.runtimes.settings.config_files import HOOK_DIRS
from cdigen.runtimes.units import is_enabled
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.spec_documents import ExaminedSpec
    from cdigen.runtimes.settings.config_files import OciRuntime

# nvidia-container-toolkit 1.18 and later have both units.
REFRESH_UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
_HOOK = "oci-nvidia-hook.json"
VOID = "NVIDIA_VISIBLE_DEVICES=void"
TOOLKIT, OLD_DOCKER, AMD = "NVIDIA Container Toolkit", "nvidia-docker 1.0", "AMD Container Toolkit"
INTEL, HABANA = "Intel's CDI specs generator", "Habana Container Runtime"
# Tool -> the names of its programs.
_PROGRAMS = {
    TOOLKIT: (
        "nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-runtime-hook",
        "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy", "nvidia-container-toolkit",
        "nvidia-container-cli",
    ),
    OLD_DOCKER: ("nvidia-docker-plugin", "nvidia-docker"),
    AMD: ("amd-ctk", "amd-container-runtime"),
    INTEL: ("intel-cdi-specs-generator",),
    HABANA: ("habana-container-runtime", "habana-container-hook", "habana-container-cli"),
}  # fmt: skip
# Tool -> the kinds of its devices. cdigen must have specs of these kinds before the tool is removed.
VENDORS = {
    TOOLKIT: "nvidia.com/", OLD_DOCKER: "nvidia.com/", AMD: "amd.com/", INTEL: "intel.com/",
    HABANA: "intel.com/gaudi",
}  # fmt: skip
# The folder of the toolkit of NVIDIA's operator (toolkit.installDir of the operator).
OPERATOR = "/usr/local/nvidia/toolkit"
_FOLDERS = (*FOLDERS, OPERATOR)
# Tool -> its packages on Debian and derivatives.
PACKAGES = {
    TOOLKIT: (
        "nvidia-container-toolkit", "nvidia-container-toolkit-base", "nvidia-container-runtime",
        "nvidia-docker2", "libnvidia-container-tools", "libnvidia-container1",
    ),
    OLD_DOCKER: ("nvidia-docker",),
    AMD: ("amd-container-toolkit",),
    HABANA: ("habanalabs-container-runtime",),
}  # fmt: skip
# Tool -> requests that its runtime serves, and the replacement.
REQUESTS = {
    TOOLKIT: "--gpus all and --runtime=nvidia by --device nvidia.com/gpu=all",
    OLD_DOCKER: "nvidia-docker by docker with --device nvidia.com/gpu=all",
    AMD: "--runtime=amd by --device amd.com/gpu=all",
    HABANA: "--runtime=habana by --device intel.com/gaudi=all",
}
_DPKG = "/var/lib/dpkg/info"
UNITS = {TOOLKIT: REFRESH_UNITS, OLD_DOCKER: ("nvidia-docker.service",)}
GPUSHARE = "gpushare"
_INTEL_PLUGIN = "Intel's device plugin"
# Domain of a resource -> device plugin.
_PLUGINS = {
    "nvidia.com": "NVIDIA's device plugin",
    "aliyun.com": GPUSHARE,
    "amd.com": "AMD's device plugin",
    "gpu.intel.com": _INTEL_PLUGIN,
    "npu.intel.com": _INTEL_PLUGIN,
    "habana.ai": _INTEL_PLUGIN,
}
# The docker driver of Nomad requests the runtime nvidia for tasks with a device "nvidia/gpu" (nomad 24990).
_NOMAD = (*(f"{folder}/nomad" for folder in FOLDERS), "/etc/nomad.d", "/etc/nomad.json", "/etc/nomad")
# Name or program of a runtime -> tool.
_RUNTIMES = {"nvidia": TOOLKIT, "amd-container-runtime": AMD, "habana-container-runtime": HABANA}


@frozen
class Leftover:
    """Files, units or settings of another tool on the host.

    ``tool`` is the name of the tool. ``kind`` is packages, programs, units, spec, runtime, hook or plugin.
    ``where`` contains the packages, units or paths.
    """

    tool: str
    kind: str
    where: tuple[str, ...]
    detail: str = ""


def find(context: Context) -> tuple[Leftover, ...]:
    """Return all leftovers; packages are first, and specs are last."""
    return (
        *_packages(context),
        *_programs(context),
        *_units(context),
        *(found for _, _, found in registered(context)),
        *_hooks(context),
        *_plugins(context),
        *_specs(context),
    )


def _packages(context: Context) -> Iterator[Leftover]:
    """Yield the packages of dpkg, identified by their .md5sums files.

    dpkg removes the .md5sums file of a package with the package.
    """
    names = {name.partition(":")[0] for name in context.host.names(_DPKG) if name.endswith(".md5sums")}
    installed = {name.removesuffix(".md5sums") for name in names}
    for tool, packages in PACKAGES.items():
        if present := tuple(name for name in packages if name in installed):
            yield Leftover(tool=tool, kind="packages", where=present)


def _programs(context: Context) -> Iterator[Leftover]:
    programs = dict(_PROGRAMS)
    # The script of nvidia-docker2 has the same name as a program of nvidia-docker 1.0.
    if not any(context.host.exists(f"{folder}/{programs[OLD_DOCKER][0]}") for folder in _FOLDERS):
        programs[TOOLKIT] += programs.pop(OLD_DOCKER)[1:]
    for tool, names in programs.items():
        paths = (f"{folder}/{name}" for name in names for folder in _FOLDERS)
        # On most hosts, /bin is a link to /usr/bin.
        present: dict[str, str] = {}
        for path in paths:
            if context.host.exists(path):
                folder = context.host.directory(posixpath.dirname(path))
                present.setdefault(f"{folder}/{posixpath.basename(path)}", path)
        if present:
            yield Leftover(tool=tool, kind="programs", where=tuple(present.values()))


def _units(context: Context) -> Iterator[Leftover]:
    for tool, units in UNITS.items():
        if enabled := tuple(unit for unit in units if is_enabled(context.host, unit)):
            yield Leftover(tool=tool, kind="units", where=enabled, detail="enabled")


def registered(context: Context) -> Iterator[tuple[str, OciRuntime, Leftover]]:
    """Yield (container runtime, OCI runtime, leftover) for each registered OCI runtime of another tool."""
    for configured in context.runtimes:
        for runtime in configured.settings.oci_runtimes:
            if tool := tool_of(runtime):
                role = "the default runtime" if runtime.is_default else "a runtime"
                detail = f"{role} of {configured.name}: {runtime.name}"
                yield (
                    configured.name,
                    runtime,
                    Leftover(tool=tool, kind="runtime", where=runtime.files, detail=detail),
                )


def _hooks(context: Context) -> Iterator[Leftover]:
    read = hook_files(context)
    paths = dict.fromkeys((*(f"{folder}/{_HOOK}" for folder in HOOK_DIRS), *read))
    if present := tuple(path for path in paths if context.host.exists(path)):
        readers = dict.fromkeys(name for path in present for name in read.get(path, ()))
        detail = f"of {' and '.join(readers)}" if readers else "no examined runtime reads its folder"
        yield Leftover(tool=TOOLKIT, kind="hook", where=present, detail=detail)


def hook_files(context: Context) -> dict[str, list[str]]:
    """Return the possible paths of NVIDIA's hook, each with the runtimes that read its folder."""
    found: dict[str, list[str]] = {}
    for runtime in context.runtimes:
        for folder in runtime.settings.hook_dirs:
            found.setdefault(f"{folder.rstrip('/')}/{_HOOK}", []).append(runtime.name)
    return found


def _plugins(context: Context) -> Iterator[Leftover]:
    folder = context.node.plugins
    for name in context.host.names(folder):
        resource = resource_of(name)
        if kind_of(resource):
            plugin = _PLUGINS[resource.partition("/")[0]]
            yield Leftover(tool=plugin, kind="plugin", where=(f"{folder}/{name}",))


def _specs(context: Context) -> Iterator[Leftover]:
    for spec in foreign_specs(context):
        offered = {name for name in context.offered if name.startswith(f"{spec.kind}=")}
        missing = [name for name in _names(spec) if name not in offered] if offered else []
        detail = f"{spec.kind}, {'in use' if spec.is_used else 'not in use'}"
        if missing:
            detail += f"; cdigen has no {', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}"
        yield Leftover(tool=_writer(spec), kind="spec", where=(spec.path,), detail=detail)


def nomad_needs(context: Context, found: tuple[Leftover, ...]) -> tuple[str, ...]:
    """Return the reason why Nomad needs NVIDIA's runtime, which is in FOUND, or an empty value."""
    has_runtime = any(one.tool == TOOLKIT and one.kind == "runtime" for one in found)
    sign = next(filter(context.host.exists, _NOMAD), "") if has_runtime else ""
    text = (
        f'{TOOLKIT}, with its runtimes: Nomad ({sign}) starts tasks with a device "nvidia/gpu" by the Docker '
        f"runtime nvidia, which cdigen does not replace ({page_url('how-to/migrate')})"
    )
    return (text,) if sign else ()


def has_toolkit_hook(document: str) -> bool:
    """Return whether DOCUMENT, the text of a spec, has a hook of NVIDIA's toolkit."""
    return any(program in document for program in ("nvidia-cdi-hook", "nvidia-ctk"))


def _writer(spec: ExaminedSpec) -> str:
    """Return the tool that wrote SPEC, identified by the hooks, the file name or the kind of SPEC."""
    if has_toolkit_hook(str(spec.document)):
        return TOOLKIT
    if posixpath.basename(spec.path) == "amd.json":
        return AMD
    return INTEL if spec.kind.startswith("intel.com/") else "another tool"


def _names(spec: ExaminedSpec) -> list[str]:
    return [f"{spec.kind}={device['name']}" for device in spec.document["devices"]]


def bare_specs(context: Context) -> list[ExaminedSpec]:
    """Return the specs of NVIDIA's devices that are in use and do not set ``VOID``."""
    used = [spec for spec in context.specs if spec.is_used and "nvidia" in spec.kind]
    return [spec for spec in used if VOID not in spec.edits("env")]


def tool_of(runtime: OciRuntime) -> str:
    """Return the tool whose wrapper of runc RUNTIME is; empty if it is of no known tool."""
    return TOOLKIT if is_of_nvidia(runtime) else _RUNTIMES.get(posixpath.basename(runtime.path), "")


def is_of_nvidia(runtime: OciRuntime) -> bool:
    """Return whether RUNTIME is NVIDIA's wrapper of runc, under any name."""
    return "nvidia" in f"{runtime.name} {runtime.path}"
