"""Checks of the container runtimes: that they are installed, read CDI where the specs are, and run."""

from __future__ import annotations

import os

from cdigen.doctor.authority import may_change_program, may_open_configuration
from cdigen.doctor.commands import configure, give_to_root, open_to_all, restart, run_cdigen, write_specs
from cdigen.doctor.driver import CAUSES
from cdigen.doctor.examined import ANY_RUNTIME, PROCESSES
from cdigen.doctor.loading import LOADING, MISSING, lost_names
from cdigen.doctor.result import Remedy, Topic, listed, with_hint
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.runtimes.releases import RUNTIME_NAMES, RuntimeBehaviour, known_issues
from cdigen.runtimes.users import may_read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.examined import ExaminedRuntime
    from cdigen.doctor.result import CheckResult
    from cdigen.runtimes.releases import BehaviourRow

# What is judged by a check of its own.
_JUDGED = (RuntimeBehaviour.NO_CDI, RuntimeBehaviour.CDI_OFF, RuntimeBehaviour.NO_RUN_CDI)
# Where CDI is switched through these, only Kubernetes has a use for containerd's switch.
_KUBERNETES = ("/var/lib/kubelet", "/etc/kubernetes", "/usr/bin/kubelet", "/usr/local/bin/kubelet")
_PACKAGES = {
    "podman": {"": "podman"},
    "docker": {"": "docker", "apt-get": "docker.io", "dnf": "moby-engine"},
    "containerd": {"": "containerd"},
    "crio": {"": "cri-o"},
}
_MANAGERS = (
    ("/usr/bin/apt-get", ("apt-get", "install", "--yes")),
    ("/usr/bin/dnf", ("dnf", "install", "--assumeyes")),
    ("/usr/bin/zypper", ("zypper", "--non-interactive", "install")),
    ("/usr/bin/pacman", ("pacman", "--sync", "--noconfirm")),
)


def _installed(context: Context) -> Iterator[CheckResult]:
    """Report the runtimes that were asked for and are not installed."""
    for name in context.request.runtimes:
        if name not in context.installed:
            text = f"{name} is not installed at the usual places"
            yield Topic(name=name).error(f"{name}-installed", text, _install(context, name))
    if not context.installed and not context.request.runtimes:
        text = "no podman, Docker, containerd or CRI-O was found"
        yield Topic(name="runtimes").good("runtime-installed", text)


def _install(context: Context, name: str) -> tuple[Remedy, ...]:
    for program, command in _MANAGERS:
        if context.host.exists(program):
            package = _PACKAGES[name].get(program.rpartition("/")[2], _PACKAGES[name][""])
            return (Remedy(argv=(*command, package), why=f"install {name}"),)
    return ()


def _each_runtime(context: Context) -> Iterator[CheckResult]:
    """Report on every runtime that matters, by the checks of ``RUNTIME_CHECKS``."""
    for runtime in context.runtimes:
        checks = (_devices,) if runtime.name == ANY_RUNTIME else RUNTIME_CHECKS
        for check in checks:
            yield from check(context, runtime)


def _version(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    topic, name = Topic(name=runtime.name), f"{runtime.name}-version"
    binary = runtime.binary
    if binary is None:
        return
    if binary.release is None:
        if not binary.binary:
            yield topic.unchecked(name, binary.problem)
        elif not context.is_live:
            yield topic.unchecked(name, f"{binary.binary}: {binary.problem}")
        else:
            remedies = _trust(context, binary.binary)
            yield topic.warning(name, f"{shown(binary.binary)}: {binary.problem}", remedies)
    elif not binary.library:
        issues = known_issues(RUNTIME_NAMES[runtime.name], binary.release)
        more = [f"; {issue.remedy}" for issue in issues if issue.behaviour is RuntimeBehaviour.NO_CDI]
        yield topic.error(name, f"{runtime.shown} reads no CDI specs{''.join(more)}")
    else:
        yield topic.good(
            name, f"{runtime.shown} has the CDI library {binary.library}, which reads {binary.newest} at most"
        )


def _trust(context: Context, binary: str) -> tuple[Remedy, ...]:
    """Return the commands that let root alone change a binary that others may, and that was not asked."""
    is_others = untrusted(binary, base=context.host.outer) and may_change_program(context, binary)
    return give_to_root(binary) if is_others else ()


def _configuration(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    topic, name = Topic(name=runtime.name), f"{runtime.name}-config"
    wrong = [finding for finding in runtime.settings.findings if finding.severity != "info"]
    for finding in wrong:
        if finding.rule == "config-unreadable" and _is_roots_alone(context, runtime, finding.path):
            yield topic.unchecked(name, f"only root may read {shown(finding.path)}")
            continue
        remedies = _opening(context, runtime, finding.path) if finding.rule == "config-unreadable" else ()
        detail = finding.message if remedies else with_hint(finding)
        yield topic.failed(name, detail, remedies, is_error=finding.severity == "error")
    if not wrong:
        files = ", ".join(map(shown, runtime.settings.files))
        yield topic.good(name, f"{files} can be read" if files else "there is none, so the defaults hold")


def _is_roots_alone(context: Context, runtime: ExaminedRuntime, path: str) -> bool:
    """Return whether who runs this may not read the file PATH of root's RUNTIME, which itself may."""
    is_outsider = runtime.reader.uid == 0 and os.geteuid() != 0
    return is_outsider and not os.access(context.outer(path), os.R_OK)


def _opening(context: Context, runtime: ExaminedRuntime, path: str) -> tuple[Remedy, ...]:
    """Return the command that lets the runtime's user read its file PATH, if root may be told."""
    if may_read(context.host, path, runtime.reader) or not may_open_configuration(context, path):
        return ()
    real, status = context.host.located(path)
    return () if status.st_mode & 0o004 else open_to_all(context, {real: "a+r"})


def _switch(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    topic, name = Topic(name=runtime.name), f"{runtime.name}-cdi"
    settings = runtime.settings
    if settings.cdi_enabled is not False:
        yield topic.good(name, "CDI is on")
        return
    if runtime.binary and runtime.binary.release and not runtime.binary.library:
        return  # said already
    by = settings.source("cdi")
    where = f"{shown(by)} switches it off" if by else "it is off unless the configuration switches it on"
    text = f"CDI is off: {where}"
    if any(finding.rule == "cri-disabled" for finding in settings.findings):
        yield topic.good(name, "the CRI plugin, which alone knows the switch, is disabled; ctr needs none")
        return
    remedies = configure(context, runtime)
    if runtime.name != "containerd" or "containerd" in context.request.runtimes:
        yield topic.error(name, text, remedies)
    elif by or "docker" not in context.installed or any(context.host.exists(path) for path in _KUBERNETES):
        yield topic.warning(name, f"{text}; pods get no devices", remedies)
    else:
        yield topic.good(name, f"{text}; that matters for Kubernetes, of which this host has nothing")


def _directories(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    """Report a runtime that does not look where the specs of the wanted kinds are."""
    topic, name = Topic(name=runtime.name), f"{runtime.name}-directories"
    read = runtime.settings.spec_dirs
    holders = [file for file in context.own_view.files if file.kind in context.kinds]
    theirs = {_identity(context, path) for path in read}
    folders = dict.fromkeys(file.directory for file in holders) or dict.fromkeys(
        (context.configuration.spec_dirs[-1],)
    )
    unseen = [folder for folder in folders if _identity(context, folder) not in theirs]
    lost = lost_names(context, runtime)
    if not unseen or (holders and not lost):
        yield topic.good(name, f"it looks in {listed(map(shown, read), most=8) or 'no directory'}")
        return
    source = runtime.settings.source("spec_dirs")
    by = f" ({shown(source)})" if source else " (its default)"
    looks = f"it looks in {listed(map(shown, read), most=8) or 'no directory'}"
    text = f"{looks}{by}, not in {', '.join(map(shown, unseen))}"
    if holders:
        text += ", where the specs are"
    if not context.products and not holders:
        yield topic.good(name, looks)
    elif runtime.settings.has_dirs_key:
        yield topic.error(name, text, configure(context, runtime))
    else:
        command = ("generate", "--write", "--spec-dir", read[-1])
        why = f"write the specs where {runtime.name} looks"
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
        if context.wanted:
            names = f"all {len(context.wanted)} names" if len(context.wanted) > 1 else "the device"
            yield topic.good(name, f"{runtime.shown} finds {names} of {', '.join(sorted(context.kinds))}")
        return
    because = (
        *LOADING, MISSING, "spec-files", "spec-fresh", "device-unknown", f"{runtime.name}-directories",
        f"{runtime.name}-config", f"{runtime.name}-version", *CAUSES,
    )  # fmt: skip
    text = f"{runtime.shown} does not find {listed(shown(one.device) for one in lost)}: {lost[0].reason}"
    # A host that has more than its specs say is stale, no less usable than before.
    yield topic.error(name, text, _remedies(context, lost[0].rule), because=because)


def _remedies(context: Context, rule: str) -> tuple[Remedy, ...]:
    is_unwritten = rule in {"unknown-device", "unknown-kind", "no-specs"}
    return write_specs(context) if context.products and is_unwritten else ()


def _daemon(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    """Report whether the runtime's daemon runs, and was started after its configuration was changed."""
    if runtime.name not in PROCESSES:
        return
    topic, name = Topic(name=runtime.name), f"{runtime.name}-running"
    if not context.is_live:
        yield topic.unchecked(name, "the host is a folder")
        return
    began = context.daemons.get(runtime.name)
    if began is None:
        if runtime.name in context.request.runtimes:
            argv = tuple(
                "start" if word == "restart" else word for word in context.request.restart(runtime.name)
            )
            start = Remedy(argv=argv, why=f"start {runtime.name}")
            because = (f"{runtime.name}-config",)
            yield topic.error(name, f"{PROCESSES[runtime.name]} is not running", (start,), because)
        else:
            yield topic.good(name, f"{PROCESSES[runtime.name]} is not running")
        return
    yield topic.good(name, f"{PROCESSES[runtime.name]} is running")
    edited = () if runtime.is_foreign else (runtime.settings.edited_file,)
    files = (*runtime.settings.files, *edited)
    younger = [path for path in dict.fromkeys(files) if _changed(context, path) > began + 1]
    if younger:
        text = (
            f"{', '.join(map(shown, younger))} was changed after {PROCESSES[runtime.name]} had started, "
            "which may not have read it"
        )
        yield topic.warning(f"{runtime.name}-restart", text, restart(context, runtime.name))
    else:
        yield topic.good(
            f"{runtime.name}-restart", "its configuration has not been changed since it was started"
        )


def _changed(context: Context, path: str) -> float:
    try:
        # Not its ctime: a hard link or a new label is no change.
        return context.host.stat(path).st_mtime
    except OSError:
        return 0.0


def _issues(_context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    """Report the known issues of the runtime's release."""
    if runtime.binary is None or runtime.binary.release is None:
        return
    for issue in known_issues(RUNTIME_NAMES[runtime.name], runtime.binary.release):
        if issue.behaviour not in _JUDGED:
            yield _told(Topic(name=runtime.name), "this release", issue)


def _low_level(context: Context) -> Iterator[CheckResult]:
    """Report the known issues of the releases of runc and crun."""
    for name, binary in context.low_level.items():
        if binary.release is not None:
            release = f"{name} {'.'.join(map(str, binary.release))}"
            for issue in known_issues(name, binary.release):
                yield _told(Topic(name="runtimes"), release, issue)


def _told(topic: Topic, release: str, issue: BehaviourRow) -> CheckResult:
    references = f" ({', '.join(issue.references)})" if issue.references else ""
    return topic.good(f"limit-{issue.name}", f"known of {release}: {issue.text}{references}; {issue.remedy}")


RUNTIME_CHECKS = (_version, _configuration, _switch, _directories, _daemon, _devices, _issues)
CHECKS = (_installed, _each_runtime, _low_level)
