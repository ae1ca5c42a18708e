"""The plan of a migration from other tools to cdigen.

The order of the steps keeps containers working. cdigen writes its specs before the specs of other tools are
removed. Containers request devices by name before the old runtimes are removed. Packages are removed last.
The plan keeps files that a device plugin of Kubernetes or a spec needs. The plan also keeps a tool if cdigen
cannot generate specs for the GPUs of the tool.
"""

from __future__ import annotations

import posixpath

from cdigen import page_url
from cdigen.doctor.commands import free_path, generated_step, run_cdigen
from cdigen.doctor.examined import PROCESSES
from cdigen.doctor.kubernetes_node.bundled import unchangeable, unit_of
from cdigen.doctor.migration.leftovers import (
    OLD_DOCKER,
    REQUESTS,
    TOOLKIT,
    UNITS,
    VENDORS,
    find,
    has_toolkit_hook,
    nomad_needs,
    registered,
)
from cdigen.doctor.migration.plugins import kept_for_plugins
from cdigen.doctor.remedy_safety import may_rename
from cdigen.doctor.result import Remedy, command_line, listed
from cdigen.doctor.spec_documents import MAX_SIZE, foreign_specs, is_ours, own_file, was_ours
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.runtimes.daemon_service import SYSTEMD, UNIT, service_of
from cdigen.runtimes.units import is_enabled
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.migration.leftovers import Leftover
    from cdigen.runtimes.settings.config_files import OciRuntime

# Folder of drop-in files of containerd or CRI-O -> folder for disabled files. CRI-O reads every file in its
# drop-in folder, with any name.
_DROP_INS = {
    "/etc/containerd/conf.d": "/etc/containerd/conf.d",
    "/etc/crio/crio.conf.d": "/etc/crio",
}
# The ending of a copy of a file that is replaced or edited.
_KEPT = ".before-cdigen"
_SEE = page_url("how-to/migrate")
_REPLACEMENTS = page_url("reference/other-tools")
# Programs besides container runtimes that run nvidia-container-cli (enroot, conf/hooks/98-nvidia.sh).
_CLI_USERS = ("/etc/enroot/hooks.d/98-nvidia.sh",)
_REVERT = "restore the configuration or the release"
# The classic builder starts RUN steps with the default runtime. BuildKit has devices of its own.
_BUILDS = f"then RUN steps of 'docker build' have no GPU without 'RUN --device' of BuildKit ({_SEE})"


@frozen
class MigrationStep:
    """A step of a migration; after the step, all containers that worked before still work.

    ``commands`` perform the step, and ``undo`` reverts the step. ``by_hand`` and ``undo_by_hand`` are actions
    without a command. Users perform these actions after the commands.
    """

    name: str
    why: str
    commands: tuple[Remedy, ...] = ()
    by_hand: str = ""
    undo: tuple[Remedy, ...] = ()
    undo_by_hand: str = ""

    def row(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "step": self.name,
            "why": self.why,
            "command": command_line(self.commands),
            "commands": [command.row() for command in self.commands],
            "by_hand": self.by_hand,
            "undo": command_line(self.undo),
            "undo_commands": [command.row() for command in self.undo],
            "undo_by_hand": self.undo_by_hand,
        }


@frozen
class Migration:
    """The leftovers, the steps in order, and the tools to keep, each with the reason."""

    leftovers: tuple[Leftover, ...]
    steps: tuple[MigrationStep, ...]
    kept: tuple[str, ...]


def migration(context: Context) -> Migration:
    """Return the leftovers on the host of CONTEXT, and the steps (none if nothing is left over)."""
    found = find(context)
    if not found:
        return Migration(leftovers=(), steps=(), kept=())
    plugins = tuple(one for one in found if one.kind == "plugin")
    nomad = nomad_needs(context, found)
    needed = bool(nomad) or any(one.tool in {"NVIDIA's device plugin", "gpushare"} for one in plugins)
    without_specs = {one.tool for one in found if not _has_successor(context, one)}
    replaceable = tuple(one for one in found if one.tool not in without_specs)
    dependents, programs = tuple(_dependents(context)), tuple(filter(context.host.exists, _CLI_USERS))
    is_needed = bool(dependents or programs)
    removable = tuple(one for one in replaceable if not (is_needed and one.tool == TOOLKIT))
    steps = [
        *_wait_for_specs(without_specs),
        *_stop_units(replaceable),
        *(_write_specs(context) if replaceable else ()),
        *(_start_service(context) if replaceable else ()),
        *(_enable_cdi(context) if replaceable else ()),
        *_request_by_name(replaceable),
        *(() if needed else _unregister(context, without_specs)),
        *_disable_hooks(context, replaceable),
        *(() if needed else _remove_packages(removable)),
    ]
    kept = [*kept_for_plugins(plugins, found, needed=needed and not nomad), *nomad]
    if len(removable) < len(replaceable) and programs:
        kept.append(f"{TOOLKIT}, packages and programs: {listed(programs)} runs nvidia-container-cli")
    if len(removable) < len(replaceable) and dependents:
        paths = listed(map(shown, dependents))
        kept.append(f"{TOOLKIT}, packages and programs: containers with devices of {paths} need its hook")
    return Migration(leftovers=found, steps=tuple(steps), kept=tuple(kept))


def _has_successor(context: Context, one: Leftover) -> bool:
    """Return whether cdigen can generate specs for the devices of the tool of ONE.

    The result is always true for device plugins.
    """
    kinds = VENDORS.get(one.tool, "")
    return one.kind == "plugin" or any(kind.startswith(kinds) for kind in context.offered_kinds)


def _wait_for_specs(tools: set[str]) -> Iterator[MigrationStep]:
    if tools:
        text = (
            "cdigen finds no GPU for its specs: run 'cdigen doctor' for the reason, then repeat this command"
        )
        names = ", ".join(sorted(tools))
        why = f"cdigen needs its own specs before these tools are removed: {names}"
        yield MigrationStep(name="write-specs", why=why, by_hand=text)


def _dependents(context: Context) -> Iterator[str]:
    """Yield the specs that use NVIDIA's hook and that the plan does not remove.

    These are cdigen's own specs for profiles with NVIDIA's hook, and other tools' specs of kinds that
    cdigen cannot generate.
    """
    removable = {spec.path for spec in foreign_specs(context) if spec.kind in context.offered_kinds}
    own = {own_file(context, product.kind): str(product.document) for product in context.products}
    yield from (path for path, document in own.items() if has_toolkit_hook(document))
    for path in (path for path in context.spec_files if path.endswith(SPEC_SUFFIXES)):
        is_other = path not in removable and path not in own and not was_ours(context, path)
        if is_other and has_toolkit_hook(context.text(path, limit=MAX_SIZE)):
            yield path


def _stop_units(found: tuple[Leftover, ...]) -> Iterator[MigrationStep]:
    for one in found:
        if one.kind == "units" and one.tool == TOOLKIT:
            why = "NVIDIA's service stops writing specs; its last spec stays in use"
            yield _by_stopping(MigrationStep(name="stop-refresh", why=why), UNITS[TOOLKIT])


def _write_specs(context: Context) -> Iterator[MigrationStep]:
    """Yield the steps that write cdigen's specs, and then remove the specs of other tools."""
    foreign = [spec.path for spec in foreign_specs(context) if spec.kind in context.offered_kinds]
    ours = [own_file(context, kind) for kind in context.offered_kinds]
    last = context.configuration.spec_dirs[-1]
    beside = [path for path in foreign if _is_in(context, path, last)]
    if beside or not all(is_ours(context, path) for path in ours):
        # In a folder of another user, cp could follow this user's links. --replace-foreign follows no links.
        safe = [path for path in beside if not untrusted(posixpath.dirname(path), base=context.host.outer)]
        copies = {path: free_path(context, path, _KEPT) for path in safe}
        copied = [_file("keep a copy", "cp", "-p", *pair) for pair in copies.items()]
        back = [_file("restore the spec of the other tool", "mv", to, path) for path, to in copies.items()]
        replacing = ("--replace-foreign",) if beside else ()
        yield MigrationStep(
            name="write-specs",
            why="cdigen writes its specs, and replaces the specs of other tools in the same directory",
            commands=(*copied, _cdigen(context, "generate", "--write", *replacing, why="write the specs")),
            undo=(_cdigen(context, "withdraw", why="remove cdigen's specs"), *back),
            undo_by_hand="" if safe == beside else "restore the old names of the specs that cdigen renamed",
        )
    for path in (path for path in foreign if path not in beside):
        step = MigrationStep(name="move-spec", why="names that are only in this file no longer resolve")
        yield _by_moving(step, context, path, free_path(context, path, ".disabled"))


def _start_service(context: Context) -> Iterator[MigrationStep]:
    if is_enabled(context.host, UNIT):
        return
    why = "cdigen updates its specs after driver upgrades, MIG changes and reboots"
    if service_of(context.host) == SYSTEMD:
        yield MigrationStep(
            name="start-service",
            why=why,
            commands=(_systemctl("enable", "--now", UNIT, why="start it now and at each boot"),),
            undo=(_systemctl("disable", "--now", UNIT, why="stop and disable the service"),),
        )
    else:
        text = f"start the service: {service_of(context.host).enable}"
        yield MigrationStep(name="start-service", why=why, by_hand=text, undo_by_hand="stop the service")


def _enable_cdi(context: Context) -> Iterator[MigrationStep]:
    for runtime in context.runtimes:
        if runtime.settings.cdi_enabled is not False and runtime.reads_cdi:
            continue
        why = f"make {runtime.name} read CDI specs"
        by_hand = generated_step(context, runtime)
        if not runtime.reads_cdi:
            by_hand = f"{runtime.shown} reads no CDI specs: install the release that 'cdigen doctor' names"
        if by_hand:
            yield MigrationStep(name="configure", why=why, by_hand=by_hand, undo_by_hand=_REVERT)
            continue
        words = ("configure", runtime.name)
        restart = ("--restart",) if context.is_live and context.request.restart(runtime.name) else ()
        yield MigrationStep(
            name="configure",
            why=why,
            commands=(_cdigen(context, *words, *restart, why="configure and restart it"),),
            undo=(_cdigen(context, *words, "--undo", *restart, why="restore its configuration"),),
        )


def _request_by_name(found: tuple[Leftover, ...]) -> Iterator[MigrationStep]:
    """Yield the manual step for requests by name, if a leftover serves other requests for GPUs."""
    tools = dict.fromkeys(one.tool for one in found if one.kind in {"runtime", "hook", "programs"})
    if requests := [REQUESTS[tool] for tool in tools if tool in REQUESTS]:
        yield MigrationStep(
            name="request-by-name",
            why="containers request devices by name; existing containers must be created again",
            by_hand=(
                f"replace {listed(requests)}; 'cdigen doctor --migrate FILE...' finds the requests in "
                f"scripts, unit and compose files ({_REPLACEMENTS})"
            ),
            undo_by_hand="restore the files; the old runtimes are still installed",
        )


def _unregister(context: Context, without_specs: set[str]) -> Iterator[MigrationStep]:
    """Yield a step for each file with OCI runtimes of other tools, except the tools in WITHOUT_SPECS."""
    by_file: dict[tuple[str, str], list[OciRuntime]] = {}
    for container_runtime, runtime, one in registered(context):
        for file in runtime.files if one.tool not in without_specs else ():
            by_file.setdefault((container_runtime, file), []).append(runtime)
    for (container_runtime, file), runtimes in by_file.items():
        names = ", ".join(shown(one.name) for one in runtimes)
        step = MigrationStep(name="unregister", why=f"remove the runtime {names} from {container_runtime}")
        (folder, base), restart = posixpath.split(file), _restart(context, container_runtime)
        unit = restart[0].argv[-1] if restart else container_runtime
        sets_more = _sets_more(context, container_runtime, file)
        if (
            not sets_more
            and folder in _DROP_INS
            and any(one.name.partition("-")[0] in base for one in runtimes)
        ):
            target = free_path(context, f"{_DROP_INS[folder]}/{base}", ".disabled")
            yield _by_moving(step, context, file, target, restart)
        else:
            default = " and the default runtime" if any(one.is_default for one in runtimes) else ""
            rest = " (keep its settings of CDI and NRI)" if sets_more else ""
            text = f"remove {names}{default} from {shown(file)}{rest}, then restart {unit}"
            if default and container_runtime == "docker":
                text += f"; {_BUILDS}"
            if generated := unchangeable(context.host, file):
                text = f"{generated.problem}: to remove {names}{default}, {generated.step}"
                yield replace(step, by_hand=text, undo_by_hand=_REVERT)
            else:
                yield _by_editing(replace(step, by_hand=text), context, file, restart)


def _sets_more(context: Context, container_runtime: str, file: str) -> bool:
    """Return whether FILE also sets CDI or NRI.

    nvidia-ctk writes enable_cdi into the same file as its runtimes.
    """
    found = (one.settings.set_by for one in context.runtimes if one.name == container_runtime)
    return any(path == file for set_by in found for _, path in set_by)


def _by_editing(step: MigrationStep, context: Context, file: str, after: tuple[Remedy, ...]) -> MigrationStep:
    """Return STEP, a manual edit of FILE; the step first copies FILE if only root may change its folder."""
    if untrusted(posixpath.dirname(file), base=context.host.outer):
        return replace(step, undo_by_hand=f"restore {shown(file)}")
    folder, base = posixpath.split(file)
    kept = free_path(context, f"{_DROP_INS.get(folder, folder)}/{base}", _KEPT)
    return replace(
        step,
        commands=(_file("keep a copy", "cp", "-p", file, kept),),
        undo=(_file("restore the file", "cp", "-p", kept, file), *after),
    )


def _disable_hooks(context: Context, found: tuple[Leftover, ...]) -> Iterator[MigrationStep]:
    for path in (path for one in found if one.kind == "hook" for path in one.where):
        why = "podman stops running NVIDIA's hook for images that set NVIDIA_VISIBLE_DEVICES"
        step = MigrationStep(name="disable-hook", why=why)
        yield _by_moving(step, context, path, free_path(context, path, ".disabled"))


def _remove_packages(found: tuple[Leftover, ...]) -> Iterator[MigrationStep]:
    """Yield the steps that stop units, remove packages with apt-get, and remove other programs manually."""
    for one in found:
        why = f"{one.tool} is no longer needed"
        if one.kind == "units" and one.tool == OLD_DOCKER:
            yield _by_stopping(MigrationStep(name="stop-plugin", why=why), one.where)
        if one.kind == "packages":
            yield MigrationStep(
                name="remove-packages",
                why=why,
                commands=(
                    Remedy(argv=("apt-get", "remove", *one.where), why="remove its programs and units"),
                ),
                undo=(Remedy(argv=("apt-get", "install", *one.where), why="install them again"),),
            )
    packaged = {one.tool for one in found if one.kind == "packages"}
    for one in found:
        if one.kind == "programs" and one.tool not in packaged:
            paths = ", ".join(map(shown, one.where))
            yield MigrationStep(
                name="remove-programs",
                why=f"{one.tool} is no longer needed",
                by_hand=f"remove {paths} with its installer (dnf, zypper, an operator)",
                undo_by_hand="install it again",
            )


def _by_stopping(step: MigrationStep, units: tuple[str, ...]) -> MigrationStep:
    return replace(
        step,
        commands=(_systemctl("disable", "--now", *units, why="stop and disable the service"),),
        undo=(_systemctl("enable", "--now", *units, why="enable and start the service"),),
    )


def _by_moving(
    step: MigrationStep, context: Context, path: str, target: str, after: tuple[Remedy, ...] = ()
) -> MigrationStep:
    """Return STEP, a rename of PATH; the rename is manual if users other than root may have chosen PATH."""
    if not may_rename(context, path) and untrusted(posixpath.dirname(path), base=context.host.outer):
        folder = shown(posixpath.dirname(path))
        text = f"users other than root may change {folder}: rename {shown(path)} by hand"
        return replace(step, by_hand=text, undo_by_hand="rename it back")
    return replace(
        step,
        commands=(_file("rename it to a name that no program reads", "mv", path, target), *after),
        undo=(_file("restore its name", "mv", target, path), *after),
    )


def _is_in(context: Context, path: str, directory: str) -> bool:
    try:
        return context.host.directory(posixpath.dirname(path)) == context.host.resolve(directory)
    except OSError:
        return False


def _restart(context: Context, runtime: str) -> tuple[Remedy, ...]:
    unit = unit_of(context.host, runtime, for_kubelet=context.request.for_kubelet)
    argv = context.request.restart(runtime) or ("systemctl", "restart", unit)
    return (Remedy(argv=argv, why="make it read its configuration"),) if runtime in PROCESSES else ()


def _systemctl(*words: str, why: str) -> Remedy:
    return Remedy(argv=("systemctl", *words), why=why)


def _file(why: str, *argv: str) -> Remedy:
    """Return a command on files of the host, with paths of the host."""
    return Remedy(argv=argv, why=why)


def _cdigen(context: Context, *words: str, why: str) -> Remedy:
    """Return a command of cdigen to run on the host itself, without --root."""
    argv = run_cdigen(context, *words, why=why).argv
    place = argv.index("--root") if "--root" in argv else len(argv)
    return Remedy(argv=(*argv[:place], *argv[place + 2 :]), why=why)
