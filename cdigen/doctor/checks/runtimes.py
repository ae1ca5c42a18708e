"""Checks of the container runtimes: whether they run and read the directories of specs."""

from __future__ import annotations

import os

from cdigen.doctor.checks.driver import CAUSES
from cdigen.doctor.checks.loading import LOADING, lost_names
from cdigen.doctor.checks.specs import MISSING
from cdigen.doctor.commands import (
    configure,
    generated_step,
    give_to_root,
    open_to_all,
    restart,
    run_cdigen,
    write_specs,
)
from cdigen.doctor.examined import ANY_RUNTIME, PROCESSES
from cdigen.doctor.kubernetes_node.bundled import bundled_containerd
from cdigen.doctor.remedy_safety import may_change_program, may_open_configuration
from cdigen.doctor.result import Remedy, Topic, listed, with_hint
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.runtimes.installed import is_of_snap, places
from cdigen.runtimes.releases import RUNTIME_NAMES, RuntimeBehaviour, known_issues
from cdigen.runtimes.settings import containerd
from cdigen.runtimes.settings.config_files import UNREADABLE
from cdigen.runtimes.users import may_read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.examined import ExaminedRuntime
    from cdigen.doctor.result import CheckResult
    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.releases import BehaviourRow

# The behaviours with a separate check.
_CHECKED = (RuntimeBehaviour.NO_CDI, RuntimeBehaviour.CDI_OFF, RuntimeBehaviour.NO_RUN_CDI)
# Paths of Kubernetes. On a host without these paths, containerd's switch for CDI has no effect.
_KUBERNETES = ("/var/lib/kubelet", "/etc/kubernetes", "/usr/bin/kubelet", "/usr/local/bin/kubelet")
# The folders of the host in the mount namespace of a snap. All other folders are those of the snap's base
# (snapd 2.76, cmd/snap-confine/mount-support.c, sc_populate_mount_ns).
_IN_SNAPS = (
    "/dev", "/etc", "/home", "/lib/firmware", "/lib/modules", "/media", "/mnt", "/proc", "/root", "/run",
    "/snap", "/sys", "/usr/lib/firmware", "/usr/lib/modules", "/usr/src", "/var/lib/snapd", "/var/log",
    "/var/run", "/var/snap",
)  # fmt: skip


def _each_runtime(context: Context) -> Iterator[CheckResult]:
    """Yield the results of ``RUNTIME_CHECKS`` for each examined runtime."""
    for runtime in context.runtimes:
        checks = (_devices,) if runtime.name == ANY_RUNTIME else RUNTIME_CHECKS
        for check in checks if runtime.reads_cdi else (_version, _configuration):
            yield from check(context, runtime)


def _version(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    topic, name = Topic(name=runtime.name), f"{runtime.name}-version"
    binary = runtime.binary
    if binary is None:
        return
    if binary.release is None:
        if not binary.binary:
            yield topic.skipped(name, binary.problem)
        elif not context.is_live:
            yield topic.skipped(name, f"{binary.binary}: {binary.problem}")
        else:
            remedies = _trust(context, binary.binary)
            yield topic.warning(name, f"{shown(binary.binary)}: {binary.problem}", remedies)
    elif not runtime.reads_cdi:
        issues = known_issues(RUNTIME_NAMES[runtime.name], binary.release)
        more = [f"; {issue.remedy}" for issue in issues if issue.behaviour is RuntimeBehaviour.NO_CDI]
        text = f"{runtime.shown} reads no CDI specs{''.join(more)}"
        yield topic.error(name, f"{text}{_others(context, binary)}")
    else:
        text = f"{runtime.shown} has the CDI library {binary.library}, which reads at most {binary.newest}"
        yield topic.passed(name, f"{text}{_others(context, binary)}")


def _others(context: Context, binary: InstalledRuntime) -> str:
    """Return the other programs with the name of BINARY, as the continuation of a message."""
    found = places(context.host, binary.binary.rpartition("/")[2])
    others = [path for path in found if path != binary.binary]
    if not others or binary.binary not in found:
        return ""
    return f"; examined: {shown(binary.binary)}, not examined: {listed(map(shown, others))}"


def _trust(context: Context, binary: str) -> tuple[Remedy, ...]:
    """Return the commands that let only root change BINARY; empty if only root may change it now.

    cdigen does not run a binary that other users may change.
    """
    is_untrusted = untrusted(binary, base=context.host.outer) and may_change_program(context, binary)
    return give_to_root(binary) if is_untrusted else ()


def _configuration(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    topic, name = Topic(name=runtime.name), f"{runtime.name}-config"
    wrong = [finding for finding in runtime.settings.findings if finding.severity != "info"]
    for finding in wrong:
        if finding.rule == UNREADABLE and _is_root_only(context, runtime, finding.path):
            yield topic.skipped(name, f"only root may read {shown(finding.path)}")
            continue
        remedies = _opening(context, runtime, finding.path) if finding.rule == UNREADABLE else ()
        detail = finding.message if remedies else with_hint(finding)
        yield topic.failed(name, detail, remedies, is_error=finding.severity == "error")
    if not wrong:
        files = ", ".join(map(shown, runtime.settings.files))
        yield topic.passed(name, f"{files}: readable" if files else "no configuration file: defaults apply")
    if runtime.name != "containerd" or context.request.for_kubelet:
        return
    bundled = bundled_containerd(context.host)
    if bundled and bundled.main not in runtime.settings.files:
        text = (
            f"pods use the containerd of {bundled.name}, which does not read {containerd.FILE} and which was "
            "not examined; run 'cdigen doctor --for kubelet'"
        )
        yield topic.skipped(name, text)


def _is_root_only(context: Context, runtime: ExaminedRuntime, path: str) -> bool:
    """Return whether RUNTIME runs as root, and the present user may not read its file PATH."""
    is_outsider = runtime.reader.uid == 0 and os.geteuid() != 0
    return is_outsider and not os.access(context.outer(path), os.R_OK)


def _opening(context: Context, runtime: ExaminedRuntime, path: str) -> tuple[Remedy, ...]:
    """Return the command that lets the runtime's user read its file PATH, if the command is safe for root."""
    if may_read(context.host, path, runtime.reader) or not may_open_configuration(context, path):
        return ()
    real, status = context.host.located(path)
    return () if status.st_mode & 0o004 else open_to_all(context, {real: "a+r"})


def _switch(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    topic, name = Topic(name=runtime.name), f"{runtime.name}-cdi"
    settings = runtime.settings
    if settings.cdi_enabled is not False:
        yield topic.passed(name, "CDI is enabled")
        return
    by = settings.source("cdi")
    reason = f"{shown(by)} disables it" if by else "the default is off"
    text = f"CDI is disabled: {reason}"
    if any(finding.rule == "cri-disabled" for finding in settings.findings):
        yield topic.passed(name, "the CRI plugin with the CDI switch is disabled; ctr needs no switch")
        return
    remedies = configure(context, runtime)
    text = "; ".join(filter(None, (text, generated_step(context, runtime))))
    if runtime.name != "containerd" or "containerd" in context.request.runtimes:
        yield topic.error(name, text, remedies)
    elif by or "docker" not in context.installed or any(context.host.exists(path) for path in _KUBERNETES):
        yield topic.warning(name, f"{text}; pods get no devices", remedies)
    else:
        yield topic.passed(name, f"{text}; only Kubernetes needs CDI here, and is not installed")


def _directories(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    """Report a runtime that does not read the directories with specs of the required kinds."""
    topic, name = Topic(name=runtime.name), f"{runtime.name}-directories"
    read = runtime.settings.spec_dirs
    required = [file for file in context.own_view.files if file.kind in context.kinds]
    read_paths = {_identity(context, path) for path in read}
    folders = dict.fromkeys(file.directory for file in required) or dict.fromkeys(
        (context.configuration.spec_dirs[-1],)
    )
    unread = [folder for folder in folders if _identity(context, folder) not in read_paths]
    unread_paths = {_identity(context, folder) for folder in unread}
    lost = lost_names(context, runtime)
    if not unread or (context.required and not lost):
        yield topic.passed(name, f"reads {listed(map(shown, read), most=8) or 'no directory'}")
        return
    source = runtime.settings.source("spec_dirs")
    by = f" ({shown(source)})" if source else " (its default)"
    directories = f"reads {listed(map(shown, read), most=8) or 'no directory'}"
    text = f"{directories}{by}, not {', '.join(map(shown, unread))}"
    if required:
        text += ", the directory of the specs"
    if not context.products and not required:
        yield topic.passed(name, directories)
    elif {_identity(context, path) for path in runtime.settings.hidden_dirs} & unread_paths:
        text += (
            ": a rootless dockerd of this release does not see the directory; install Docker 27.4 or newer, "
            "or write the specs to a directory outside /etc and /run"
        )
        yield topic.error(name, text)
    elif runtime.settings.has_dirs_key:
        text = "; ".join(filter(None, (text, generated_step(context, runtime))))
        yield topic.error(name, text, configure(context, runtime))
    else:
        command = ("generate", "--write", "--spec-dir", read[-1])
        why = f"write the specs to a directory that {runtime.name} reads"
        yield topic.error(name, text, (run_cdigen(context, *command, why=why),))


def _identity(context: Context, path: str) -> str:
    try:
        return context.host.resolve_new(path)
    except OSError:
        return path


def _devices(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    name = f"{runtime.name}-devices" if runtime.name != ANY_RUNTIME else "devices"
    topic = Topic(name=runtime.name if runtime.name != ANY_RUNTIME else "runtimes")
    lost = lost_names(context, runtime)
    if not lost:
        if context.required:
            names = f"all {len(context.required)} names" if len(context.required) > 1 else "the device"
            kinds = ", ".join(sorted(context.kinds))
            yield topic.passed(name, f"{runtime.shown} resolves {names} of {kinds}")
        return
    because = (
        *LOADING, MISSING, "spec-files", "spec-fresh", "device-unknown", f"{runtime.name}-directories",
        f"{runtime.name}-config", f"{runtime.name}-version", *CAUSES,
    )  # fmt: skip
    text = f"{runtime.shown} cannot resolve {listed(shown(one.device) for one in lost)}: {lost[0].reason}"
    # If the specs lack the device, the remedy is to write the specs again.
    yield topic.error(name, text, _remedies(context, lost[0].rule), because=because)


def _remedies(context: Context, rule: str) -> tuple[Remedy, ...]:
    is_unwritten = rule in {"unknown-device", "unknown-kind", "no-specs"}
    return write_specs(context) if context.products and is_unwritten else ()


def _daemon(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    """Report whether the daemon runs, and whether it started after the last change of its configuration."""
    if runtime.name not in PROCESSES:
        return
    topic, name = Topic(name=runtime.name), f"{runtime.name}-running"
    if not context.is_live:
        yield topic.needs_system(name)
        return
    if runtime.settings.rootless:
        yield topic.skipped(name, "the process of a rootless daemon is not examined")
        return
    began = context.daemons.get(runtime.name)
    if began is None:
        if runtime.name in context.request.runtimes:
            argv = tuple(
                "start" if word == "restart" else word for word in context.request.restart(runtime.name)
            )
            start = (Remedy(argv=argv, why=f"start {runtime.name}"),) if argv else ()
            because = (f"{runtime.name}-config",)
            yield topic.error(name, f"{PROCESSES[runtime.name]} is not running", start, because)
        else:
            yield topic.passed(name, f"{PROCESSES[runtime.name]} is not running")
        return
    yield topic.passed(name, f"{PROCESSES[runtime.name]} is running")
    edited = () if runtime.is_foreign else (runtime.settings.edited_file,)
    files = (*runtime.settings.files, *edited)
    younger = [path for path in dict.fromkeys(files) if _changed(context, path) > began + 1]
    if younger:
        text = (
            f"{', '.join(map(shown, younger))}: changed after the start of {PROCESSES[runtime.name]}, which "
            "may not have read it"
        )
        yield topic.warning(f"{runtime.name}-restart", text, restart(context, runtime.name))
    else:
        yield topic.passed(f"{runtime.name}-restart", "the configuration is older than the process")


def _changed(context: Context, path: str) -> float:
    try:
        # A new hard link or a new label changes the ctime, but not the mtime.
        return context.host.stat(path).st_mtime
    except OSError:
        return 0.0


def _snap(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    """Report files of the specs that a runtime from a snap does not find, because it has its own /usr."""
    # The snap of MicroK8s is classic, so its containerd has the folders of the host.
    if runtime.name != "docker" or runtime.binary is None or not is_of_snap(runtime.binary.binary):
        return
    topic, name = Topic(name=runtime.name), f"{runtime.name}-snap"
    used = [spec for spec in context.specs if spec.is_used]
    needed = (
        *(str(mount["hostPath"]) for spec in used for mount in spec.edits("mounts")),
        *(str(hook["path"]) for spec in used for hook in spec.edits("hooks")),
    )
    lost = [path for path in dict.fromkeys(needed) if not _is_in_snaps(path)]
    if not lost:
        yield topic.passed(name, "the mount namespace of the snap has all files of the specs")
        return
    paths = listed(map(shown, lost), most=3)
    text = (
        f"{PROCESSES[runtime.name]} from the snap does not find {paths}: the mount namespace of the snap "
        "has its own /usr, /opt and /var/lib, and containers with these files do not start; replace the "
        "snap by a package of the distribution or of Docker"
    )
    yield topic.error(name, text)


def _is_in_snaps(path: str) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in _IN_SNAPS)


def _issues(_context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    """Report the known issues of the runtime's release."""
    if runtime.binary is None or runtime.binary.release is None:
        return
    for issue in known_issues(RUNTIME_NAMES[runtime.name], runtime.binary.release):
        if issue.behaviour not in _CHECKED:
            yield _limit(Topic(name=runtime.name), "this release", issue)


def _low_level(context: Context) -> Iterator[CheckResult]:
    """Report the known issues of the releases of runc and crun."""
    for name, binary in context.low_level.items():
        if binary.release is not None:
            release = f"{name} {'.'.join(map(str, binary.release))}"
            for issue in known_issues(name, binary.release):
                yield _limit(Topic(name="runtimes"), release, issue)


def _limit(topic: Topic, release: str, issue: BehaviourRow) -> CheckResult:
    references = f" ({', '.join(issue.references)})" if issue.references else ""
    return topic.passed(f"limit-{issue.name}", f"{release}: {issue.text}{references}; {issue.remedy}")


RUNTIME_CHECKS = (_version, _configuration, _switch, _directories, _daemon, _devices, _snap, _issues)
CHECKS = (_each_runtime, _low_level)
