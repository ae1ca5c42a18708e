"""Plan the way from other tools to cdigen: ``migration``.

The order is such that nothing breaks: cdigen's specs are there before the others' go, containers ask by name
before the old way is closed, and packages go last. What a device plugin of Kubernetes or a spec needs is left
alone, and so is a tool for whose GPUs cdigen has nothing to offer.
"""

from __future__ import annotations

import posixpath

from cdigen.doctor.authority import may_rename
from cdigen.doctor.commands import free_path
from cdigen.doctor.migration.leftovers import (
    GPUSHARE,
    OLD_DOCKER,
    TOOLKIT,
    UNITS,
    VENDORS,
    find,
    foreign_specs,
    has_toolkits_hook,
    registered,
)
from cdigen.doctor.migration.result import Migration, Step
from cdigen.doctor.others import is_enabled
from cdigen.doctor.result import Remedy, listed
from cdigen.doctor.spec_documents import MAX_SIZE, is_ours, own_file, was_ours
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.runtimes.daemon_service import SYSTEMD, UNIT, service_of
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.migration.result import Found
    from cdigen.runtimes.settings.oci_runtimes import OciRuntime

# Folders whose files containerd and CRI-O read, and where one goes that they shall not read any more: CRI-O
# takes every file in its folder, whatever its name.
_DROP_INS = {
    "/etc/containerd/conf.d": "/etc/containerd/conf.d",
    "/etc/crio/crio.conf.d": "/etc/crio",
}
# The ending of a copy that is made before a file is replaced or edited.
_KEPT = ".before-cdigen"
_RESTARTS = {"docker": "docker", "containerd": "containerd", "crio": "crio"}
_SEE = "docs/migrating.md"


def migration(context: Context) -> Migration:
    """Return what is found on the host of CONTEXT, and what to do; no step where nothing is found."""
    found = find(context)
    if not found:
        return Migration(found=(), steps=(), stays=())
    plugins = tuple(one for one in found if one.kind == "plugin")
    needed = any(one.tool in {"NVIDIA's device plugin", "gpushare"} for one in plugins)
    lacking = {one.tool for one in found if not _has_successor(context, one)}
    able = tuple(one for one in found if one.tool not in lacking)
    dependents = tuple(_dependents(context))
    going = tuple(one for one in able if not (dependents and one.tool == TOOLKIT))
    steps = [
        *_say_what_lacks(lacking),
        *_stop_units(able),
        *(_write_specs(context) if able else ()),
        *(_keep_fresh(context) if able else ()),
        *(_enable_cdi(context) if able else ()),
        *_ask_by_name(able),
        *(() if needed else _unregister(context, lacking)),
        *_disable_hooks(context, able),
        *(() if needed else _remove_packages(going)),
    ]
    stays = (
        *_stays(plugins, found, needed=needed),
        *(_kept_by(dependents) if len(going) < len(able) else ()),
    )
    return Migration(found=found, steps=tuple(steps), stays=stays)


def _has_successor(context: Context, one: Found) -> bool:
    """Return whether cdigen offers devices of the kinds for which the tool of ONE is there."""
    kinds = VENDORS.get(one.tool, "")
    return one.kind == "plugin" or any(kind.startswith(kinds) for kind in context.offered_kinds)


def _say_what_lacks(tools: set[str]) -> Iterator[Step]:
    if tools:
        text = (
            "cdigen finds no GPU for which it could offer devices: 'cdigen doctor' says why; come back then"
        )
        names = ", ".join(sorted(tools))
        why = f"cdigen's own specs have to be there before anything of these goes: {names}"
        yield Step(name="write-specs", why=why, by_hand=text)


def _dependents(context: Context) -> Iterator[str]:
    """Yield the specs that stay and have NVIDIA's hook: cdigen's own by a profile, those of other kinds."""
    going = {spec.path for spec in foreign_specs(context) if spec.kind in context.offered_kinds}
    own = {own_file(context, product.kind): str(product.document) for product in context.products}
    yield from (path for path, document in own.items() if has_toolkits_hook(document))
    for path in (path for path in context.spec_files if path.endswith(SPEC_SUFFIXES)):
        is_other = path not in going and path not in own and not was_ours(context, path)
        if is_other and has_toolkits_hook(context.text(path, limit=MAX_SIZE)):
            yield path


def _kept_by(specs: tuple[str, ...]) -> Iterator[str]:
    paths = listed(map(shown, specs))
    yield f"{TOOLKIT}'s packages and programs: containers with devices of {paths} start by its hook"


def _stop_units(found: tuple[Found, ...]) -> Iterator[Step]:
    for one in found:
        if one.kind == "units" and one.tool == TOOLKIT:
            units = UNITS[TOOLKIT]
            yield Step(
                name="stop-refresh",
                why="NVIDIA's service writes no more specs; the one that it wrote stays in use",
                commands=(_systemctl("disable", "--now", *units, why="it stops, and starts at no boot"),),
                undo=(_systemctl("enable", "--now", *units, why="it writes its spec anew"),),
            )


def _write_specs(context: Context) -> Iterator[Step]:
    """Yield the steps by which cdigen's specs take the place of others': first ours, then theirs go."""
    foreign = [spec.path for spec in foreign_specs(context) if spec.kind in context.offered_kinds]
    ours = [own_file(context, kind) for kind in context.offered_kinds]
    last = context.configuration.spec_dirs[-1]
    beside = [path for path in foreign if _is_in(context, path, last)]
    if beside or not all(is_ours(context, path) for path in ours):
        # Elsewhere cp would write wherever somebody's link leads; --replace-foreign itself follows none.
        safe = [path for path in beside if not untrusted(posixpath.dirname(path), base=context.host.outer)]
        copies = {path: free_path(context, path, _KEPT) for path in safe}
        copied = [_file("keep it for the way back", "cp", "-p", *pair) for pair in copies.items()]
        back = [_file("the other's spec is back", "mv", to, path) for path, to in copies.items()]
        replacing = ("--replace-foreign",) if beside else ()
        yield Step(
            name="write-specs",
            why="cdigen writes its specs, in the place of what others have in the same directory",
            commands=(*copied, _cdigen(context, "generate", "--write", *replacing, why="write them")),
            undo=(_cdigen(context, "withdraw", why="remove cdigen's specs"), *back),
            undo_by_hand="" if safe == beside else "the specs that it moved aside get their old names",
        )
    for path in (path for path in foreign if path not in beside):
        step = Step(name="move-spec", why="names that only this file has stop to resolve")
        yield _by_moving(step, context, path, _free(context, path))


def _keep_fresh(context: Context) -> Iterator[Step]:
    if is_enabled(context, UNIT):
        return
    why = "cdigen keeps its specs true: after upgrades of the driver, MIG changes, a boot"
    if service_of(context.host) == SYSTEMD:
        yield Step(
            name="keep-fresh",
            why=why,
            commands=(_systemctl("enable", "--now", UNIT, why="now and at every boot"),),
            undo=(_systemctl("disable", "--now", UNIT, why="it stops, and starts at no boot"),),
        )
    else:
        text = f"start it with {service_of(context.host).enable}"
        yield Step(name="keep-fresh", why=why, by_hand=text, undo_by_hand="stop it")


def _enable_cdi(context: Context) -> Iterator[Step]:
    for runtime in context.runtimes:
        if runtime.settings.cdi_enabled is not False:
            continue
        words = ("configure", runtime.name)
        restart = ("--restart",) if context.is_live and context.request.restart(runtime.name) else ()
        yield Step(
            name="configure",
            why=f"{runtime.name} reads CDI specs",
            commands=(_cdigen(context, *words, *restart, why="set what it needs, and restart it"),),
            undo=(_cdigen(context, *words, "--undo", *restart, why="its configuration as it was"),),
        )


def _ask_by_name(found: tuple[Found, ...]) -> Iterator[Step]:
    """Yield the step that only people can do, where there is another way of asking than by name."""
    if any(one.kind in {"runtime", "hook", "programs"} for one in found):
        yield Step(
            name="ask-by-name",
            why="whoever starts containers names the device, and creates those that exist anew",
            by_hand=(
                "--device nvidia.com/gpu=all in place of --gpus all and --runtime=nvidia; "
                "'cdigen doctor --migrate FILE...' finds them in scripts, unit and compose files, "
                f"and {_SEE} has what to write"
            ),
            undo_by_hand="the files as they were: until here the old way works as well",
        )


def _unregister(context: Context, lacking: set[str]) -> Iterator[Step]:
    """Yield a step for each file that names other tools' OCI runtimes, but for those of the tools LACKING."""
    by_file: dict[tuple[str, str], list[OciRuntime]] = {}
    for container_runtime, runtime, one in registered(context):
        for file in runtime.files if one.tool not in lacking else ():
            by_file.setdefault((container_runtime, file), []).append(runtime)
    for (container_runtime, file), runtimes in by_file.items():
        names = ", ".join(shown(one.name) for one in runtimes)
        step = Step(name="unregister", why=f"{container_runtime} has no runtime {names} any more")
        folder, base = posixpath.split(file)
        restart = _restart(container_runtime)
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
            rest = " (and leave what it says of CDI and NRI)" if sets_more else ""
            text = f"remove {names}{default} from {shown(file)}{rest}, then restart {container_runtime}"
            yield _by_editing(replace(step, by_hand=text), context, file, restart)


def _sets_more(context: Context, container_runtime: str, file: str) -> bool:
    """Return whether FILE is also what sets CDI or NRI: nvidia-ctk writes enable_cdi beside its runtimes."""
    found = (one.settings.set_by for one in context.runtimes if one.name == container_runtime)
    return any(path == file for set_by in found for _, path in set_by)


def _by_editing(step: Step, context: Context, file: str, after: tuple[Remedy, ...]) -> Step:
    """Return STEP, whose FILE a person edits, with a copy of it made first where root alone controls it."""
    if untrusted(posixpath.dirname(file), base=context.host.outer):
        return replace(step, undo_by_hand=f"{shown(file)} as it was")
    folder, base = posixpath.split(file)
    kept = free_path(context, f"{_DROP_INS.get(folder, folder)}/{base}", _KEPT)
    return replace(
        step,
        commands=(_file("keep it for the way back", "cp", "-p", file, kept),),
        undo=(_file("it is as it was", "cp", "-p", kept, file), *after),
    )


def _disable_hooks(context: Context, found: tuple[Found, ...]) -> Iterator[Step]:
    for path in (path for one in found if one.kind == "hook" for path in one.where):
        why = "podman runs NVIDIA's hook no more for images that set NVIDIA_VISIBLE_DEVICES"
        yield _by_moving(Step(name="disable-hook", why=why), context, path, _free(context, path))


def _remove_packages(found: tuple[Found, ...]) -> Iterator[Step]:
    """Yield what removes what is found, packages by dpkg, the rest by whatever installed it."""
    for one in found:
        why = f"nothing needs it any more ({one.tool})"
        if one.kind == "units" and one.tool == OLD_DOCKER:
            yield Step(
                name="stop-plugin",
                why=why,
                commands=(_systemctl("disable", "--now", *one.where, why="it stops, and starts at no boot"),),
                undo=(_systemctl("enable", "--now", *one.where, why="it answers again"),),
            )
        if one.kind == "packages":
            yield Step(
                name="remove-packages",
                why=why,
                commands=(Remedy(argv=("apt-get", "remove", *one.where), why="its programs and units go"),),
                undo=(Remedy(argv=("apt-get", "install", *one.where), why="they are back"),),
            )
    packaged = {one.tool for one in found if one.kind == "packages"}
    for one in found:
        if one.kind == "programs" and one.tool not in packaged:
            paths = ", ".join(map(shown, one.where))
            yield Step(
                name="remove-programs",
                why=f"nothing needs it any more ({one.tool})",
                by_hand=f"remove {paths} by what installed it (dnf, zypper, an operator)",
                undo_by_hand="install it again",
            )


def _stays(plugins: tuple[Found, ...], found: tuple[Found, ...], *, needed: bool) -> Iterator[str]:
    for plugin in plugins:
        by = "'cdigen kubelet' can take its place (docs/kubernetes.md)"
        by = "nothing of cdigen's replaces it yet" if plugin.tool == GPUSHARE else by
        where = shown(plugin.where[0])
        yield f"{plugin.tool} ({where}): {by}; until then, pods that request its resource need it"
    if needed and any(one.tool == TOOLKIT for one in found):
        yield f"{TOOLKIT}, with its runtimes: the device plugin may need them ({_SEE})"


def _by_moving(step: Step, context: Context, path: str, target: str, after: tuple[Remedy, ...] = ()) -> Step:
    """Return STEP, which renames PATH; by hand where others than root may have chosen it."""
    if not may_rename(context, path) and untrusted(posixpath.dirname(path), base=context.host.outer):
        text = f"others than root may change {shown(posixpath.dirname(path))}: rename {shown(path)} by hand"
        return replace(step, by_hand=text, undo_by_hand="its old name")
    return replace(
        step,
        commands=(_file("nothing reads it by that name", "mv", path, target), *after),
        undo=(_file("it has its old name", "mv", target, path), *after),
    )


def _is_in(context: Context, path: str, directory: str) -> bool:
    try:
        return context.host.directory(posixpath.dirname(path)) == context.host.resolve(directory)
    except OSError:
        return False


def _free(context: Context, path: str) -> str:
    return free_path(context, path, ".disabled")


def _restart(runtime: str) -> tuple[Remedy, ...]:
    unit = _RESTARTS.get(runtime)
    return (_systemctl("restart", unit, why="it reads its configuration anew"),) if unit else ()


def _systemctl(*words: str, why: str) -> Remedy:
    return Remedy(argv=("systemctl", *words), why=why)


def _file(why: str, *argv: str) -> Remedy:
    """Return a command on files of the host, by the names that they have there."""
    return Remedy(argv=argv, why=why)


def _cdigen(context: Context, *words: str, why: str) -> Remedy:
    """Return a command of cdigen's, to be run on the host itself."""
    options = list(context.request.options)
    if "--root" in options:
        place = options.index("--root")
        del options[place : place + 2]
    return Remedy(argv=("cdigen", *words, *options), why=why)
