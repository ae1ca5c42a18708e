"""Find what other tools have put onto a host: packages, programs, units, hooks, sockets: ``find``."""

from __future__ import annotations

import posixpath

from cdigen.doctor.kubelet_sockets import kind_of, resource_of
from cdigen.doctor.migration.result import Found
from cdigen.doctor.others import PODMAN_HOOKS, REFRESH_UNITS, is_enabled, is_nvidias
from cdigen.doctor.spec_documents import own_file, was_ours
from cdigen.runtimes.installed import FOLDERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.spec_documents import ExaminedSpec
    from cdigen.runtimes.settings.oci_runtimes import OciRuntime

TOOLKIT, OLD_DOCKER, AMD = "NVIDIA Container Toolkit", "nvidia-docker 1.0", "AMD Container Toolkit"
INTEL = "Intel's CDI specs generator"
# Each tool's programs, by their names on the host.
_PROGRAMS = {
    TOOLKIT: (
        "nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-runtime-hook",
        "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy", "nvidia-container-toolkit",
        "nvidia-container-cli",
    ),
    OLD_DOCKER: ("nvidia-docker-plugin", "nvidia-docker"),
    AMD: ("amd-ctk", "amd-container-runtime"),
    INTEL: ("intel-cdi-specs-generator",),
}  # fmt: skip
# The kinds of devices of each tool: before it goes, cdigen has to offer these.
VENDORS = {TOOLKIT: "nvidia.com/", OLD_DOCKER: "nvidia.com/", AMD: "amd.com/", INTEL: "intel.com/"}
# Where NVIDIA's operator puts the toolkit (its toolkit.installDir), beside the usual places.
_FOLDERS = (*FOLDERS, "/usr/local/nvidia/toolkit")
# Each tool's packages of Debian and its kin.
PACKAGES = {
    TOOLKIT: (
        "nvidia-container-toolkit", "nvidia-container-toolkit-base", "nvidia-container-runtime",
        "nvidia-docker2", "libnvidia-container-tools", "libnvidia-container1",
    ),
    OLD_DOCKER: ("nvidia-docker",),
    AMD: ("amd-container-toolkit",),
}  # fmt: skip
_DPKG = "/var/lib/dpkg/info"
UNITS = {TOOLKIT: REFRESH_UNITS, OLD_DOCKER: ("nvidia-docker.service",)}
GPUSHARE = "gpushare"
_INTELS = "Intel's device plugin"
# Whose device plugin serves resources of a domain.
_PLUGINS = {
    "nvidia.com": "NVIDIA's device plugin",
    "aliyun.com": GPUSHARE,
    "amd.com": "AMD's device plugin",
    "gpu.intel.com": _INTELS,
    "npu.intel.com": _INTELS,
    "habana.ai": _INTELS,
}
# A runtime's name or program -> whose it is.
_RUNTIMES = {"nvidia": TOOLKIT, "amd-container-runtime": AMD}


def find(context: Context) -> tuple[Found, ...]:
    """Return all that there is, packages first, specs last."""
    return (
        *_packages(context),
        *_programs(context),
        *_units(context),
        *(found for _, _, found in registered(context)),
        *_hooks(context),
        *_plugins(context),
        *_specs(context),
    )


def _packages(context: Context) -> Iterator[Found]:
    """Yield what dpkg has installed: the digests of a package's files, which go when it is removed."""
    names = {name.partition(":")[0] for name in context.host.names(_DPKG) if name.endswith(".md5sums")}
    installed = {name.removesuffix(".md5sums") for name in names}
    for tool, packages in PACKAGES.items():
        if there := tuple(name for name in packages if name in installed):
            yield Found(tool=tool, kind="packages", where=there)


def _programs(context: Context) -> Iterator[Found]:
    programs = dict(_PROGRAMS)
    # nvidia-docker2 had a script of the same name.
    if not any(context.host.exists(f"{folder}/{programs[OLD_DOCKER][0]}") for folder in _FOLDERS):
        programs[TOOLKIT] += programs.pop(OLD_DOCKER)[1:]
    for tool, names in programs.items():
        paths = (f"{folder}/{name}" for name in names for folder in _FOLDERS)
        # /bin is /usr/bin on most hosts.
        there: dict[str, str] = {}
        for path in paths:
            if context.host.exists(path):
                folder = context.host.directory(posixpath.dirname(path))
                there.setdefault(f"{folder}/{posixpath.basename(path)}", path)
        if there:
            yield Found(tool=tool, kind="programs", where=tuple(there.values()))


def _units(context: Context) -> Iterator[Found]:
    for tool, units in UNITS.items():
        if there := tuple(unit for unit in units if is_enabled(context, unit)):
            yield Found(tool=tool, kind="units", where=there, detail="enabled")


def registered(context: Context) -> Iterator[tuple[str, OciRuntime, Found]]:
    """Yield other tools' OCI runtimes: the container runtime that knows each, it, and what is found."""
    for configured in context.runtimes:
        for runtime in configured.settings.oci_runtimes:
            program = posixpath.basename(runtime.path)
            tool = TOOLKIT if is_nvidias(runtime) else _RUNTIMES.get(program, "")
            if tool:
                what = "the default runtime" if runtime.is_default else "a runtime"
                detail = f"{what} of {configured.name}: {runtime.name}"
                yield (
                    configured.name,
                    runtime,
                    Found(tool=tool, kind="runtime", where=runtime.files, detail=detail),
                )


def _hooks(context: Context) -> Iterator[Found]:
    if there := tuple(path for path in PODMAN_HOOKS if context.host.exists(path)):
        yield Found(tool=TOOLKIT, kind="hook", where=there, detail="of podman")


def _plugins(context: Context) -> Iterator[Found]:
    folder = context.node.plugins
    for name in context.host.names(folder):
        resource = resource_of(name)
        if kind_of(resource):
            plugin = _PLUGINS[resource.partition("/")[0]]
            yield Found(tool=plugin, kind="plugin", where=(f"{folder}/{name}",))


def _specs(context: Context) -> Iterator[Found]:
    for spec in foreign_specs(context):
        offered = {name for name in context.offered if name.startswith(f"{spec.kind}=")}
        alone = [name for name in _names(spec) if name not in offered] if offered else []
        detail = f"{spec.kind}, {'in use' if spec.is_used else 'not in use'}"
        if alone:
            detail += f"; cdigen has no {', '.join(alone[:3])}{' ...' if len(alone) > 3 else ''}"
        yield Found(tool=_writer(spec), kind="spec", where=(spec.path,), detail=detail)


def foreign_specs(context: Context) -> tuple[ExaminedSpec, ...]:
    """Return the specs of kinds that cdigen serves which others wrote."""
    return tuple(
        spec
        for spec in context.specs
        if not was_ours(context, spec.path) and spec.path != own_file(context, spec.kind)
    )


def has_toolkits_hook(document: str) -> bool:
    """Return whether the spec DOCUMENT, as text, has a hook that is a program of NVIDIA's toolkit."""
    return any(program in document for program in ("nvidia-cdi-hook", "nvidia-ctk"))


def _writer(spec: ExaminedSpec) -> str:
    """Return which tool wrote SPEC, as its hooks, its name or its kind tell."""
    if has_toolkits_hook(str(spec.document)):
        return TOOLKIT
    if posixpath.basename(spec.path) == "amd.json":
        return AMD
    return INTEL if spec.kind.startswith("intel.com/") else "another tool"


def _names(spec: ExaminedSpec) -> list[str]:
    return [f"{spec.kind}={device['name']}" for device in spec.document["devices"]]
