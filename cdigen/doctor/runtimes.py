"""The container runtimes: whether they are there, read CDI, look where the specs are, and run."""

from __future__ import annotations

from cdigen.doctor.authority import may_open_configuration
from cdigen.doctor.context import ANY_RUNTIME, RUNTIME_NAMES
from cdigen.doctor.daemons import PROCESSES
from cdigen.doctor.driver import CAUSES
from cdigen.doctor.loading import LOADING, MISSING, lost_names
from cdigen.doctor.result import Topic
from cdigen.host.root import shown
from cdigen.runtimes.access import may_read
from cdigen.runtimes.releases import known_issues

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context, ExaminedRuntime
    from cdigen.doctor.result import CheckResult
    from cdigen.runtimes.installed import InstalledRuntime

# What is judged by a check of its own.
_JUDGED = frozenset({
    "podman-no-cdi", "podman-no-run-cdi", "docker-no-cdi", "docker-cdi-off", "containerd-no-cdi",
    "containerd-cdi-off", "crio-no-cdi",
})  # fmt: skip
# Where CDI is switched through these, only Kubernetes has a use for containerd's switch.
_KUBERNETES = ("/var/lib/kubelet", "/etc/kubernetes", "/usr/bin/kubelet", "/usr/local/bin/kubelet")
_PACKAGES = {
    "podman": {"": "podman"},
    "docker": {"": "docker", "apt-get": "docker.io", "dnf": "moby-engine"},
    "containerd": {"": "containerd"},
    "crio": {"": "cri-o"},
}
_MANAGERS = (
    ("/usr/bin/apt-get", "apt-get install --yes"),
    ("/usr/bin/dnf", "dnf install --assumeyes"),
    ("/usr/bin/zypper", "zypper --non-interactive install"),
    ("/usr/bin/pacman", "pacman --sync --noconfirm"),
)
_FEW = 4


def check(context: Context) -> Iterator[CheckResult]:
    """Say how each runtime that matters stands."""
    for name in context.request.runtimes:
        if name not in context.installed:
            yield _absent(context, name)
    for runtime in context.runtimes:
        if runtime.name == ANY_RUNTIME:
            if not context.request.runtimes:
                yield Topic(name="runtimes").good(
                    "runtime-installed", "no podman, Docker, containerd or CRI-O was found"
                )
            yield from _devices(context, runtime)
            continue
        yield from _version(context, runtime)
        yield from _configuration(context, runtime)
        yield from _switch(context, runtime)
        yield from _directories(context, runtime)
        yield from _daemon(context, runtime)
        yield from _devices(context, runtime)
        yield from _limits(runtime)
    for name, binary in context.low_level.items():
        yield from _low_level(name, binary)


def _absent(context: Context, name: str) -> CheckResult:
    remedy = ""
    for program, command in _MANAGERS:
        if context.host.exists(program):
            packages = _PACKAGES[name]
            remedy = f"{command} {packages.get(program.rpartition('/')[2], packages[''])}"
            break
    return Topic(name=name).error(f"{name}-installed", f"{name} is not installed at the usual places", remedy)


def _version(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    topic, name = Topic(name=runtime.name), f"{runtime.name}-version"
    binary = runtime.binary
    if binary is None:
        return
    if binary.release is None:
        if not context.is_live:
            yield topic.unchecked(name, f"{binary.binary}: {binary.problem}")
        else:
            yield topic.warning(name, f"{shown(binary.binary)}: {binary.problem}", _trust(binary))
    elif not binary.library:
        texts = [
            limit
            for limit in known_issues(RUNTIME_NAMES[runtime.name], binary.release)
            if limit.name.endswith("-no-cdi")
        ]
        more = f"; {texts[0].remedy}" if texts else ""
        yield topic.error(name, f"{runtime.shown} reads no CDI specs{more}")
    else:
        yield topic.good(
            name, f"{runtime.shown} has the CDI library {binary.library}, which reads {binary.newest} at most"
        )


def _trust(binary: InstalledRuntime) -> str:
    return (
        f"chown root:root {binary.binary} && chmod go-w {binary.binary}"
        if "it was not asked" in binary.problem
        else ""
    )


def _configuration(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    topic, name = Topic(name=runtime.name), f"{runtime.name}-config"
    wrong = [finding for finding in runtime.settings.findings if finding.severity != "info"]
    for finding in wrong:
        say = topic.error if finding.severity == "error" else topic.warning
        remedy = _opening(context, runtime, finding.path) if finding.rule == "config-unreadable" else ""
        detail = f"{finding.message}; {finding.hint}" if finding.hint and not remedy else finding.message
        yield say(name, detail, remedy)
    if not wrong:
        files = ", ".join(map(shown, runtime.settings.files))
        yield topic.good(name, f"{files} can be read" if files else "there is none, so the defaults hold")


def _opening(context: Context, runtime: ExaminedRuntime, path: str) -> str:
    """Return the command that lets the runtime's user read its file PATH, if root may be told."""
    if may_read(context.host, path, runtime.reader) or not may_open_configuration(context, path):
        return ""
    real, status = context.host.located(path)
    return "" if status.st_mode & 0o004 else f"chmod a+r {context.outer(real)}"


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
    remedy = context.configure_command(runtime)
    if runtime.name != "containerd" or "containerd" in context.request.runtimes:
        yield topic.error(name, text, remedy)
    elif by or "docker" not in context.installed or any(context.host.exists(path) for path in _KUBERNETES):
        yield topic.warning(name, f"{text}; pods get no devices", remedy)
    else:
        yield topic.good(name, f"{text}; that matters for Kubernetes, of which this host has nothing")


def _directories(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    """Say whether the runtime looks where the specs of the wanted kinds are."""
    topic, name = Topic(name=runtime.name), f"{runtime.name}-directories"
    listed = runtime.settings.spec_dirs
    holders = [spec_file for spec_file in context.own_view.spec_files if spec_file.kind in context.kinds]
    theirs = {_identity(context, path) for path in listed}
    places = dict.fromkeys(spec_file.folder for spec_file in holders) or dict.fromkeys(
        (context.configuration.spec_dirs[-1],)
    )
    unseen = [folder for folder in places if _identity(context, folder) not in theirs]
    lost = lost_names(context, runtime)
    if not unseen or (holders and not lost):
        yield topic.good(name, f"it looks in {', '.join(map(shown, listed)) or 'no directory'}")
        return
    source = runtime.settings.source("spec_dirs")
    by = f" ({shown(source)})" if source else " (its default)"
    looks = f"it looks in {', '.join(map(shown, listed)) or 'no directory'}"
    text = f"{looks}{by}, not in {', '.join(map(shown, unseen))}"
    if holders:
        text += ", where the specs are"
    if not context.products and not holders:
        yield topic.good(name, looks)
    elif runtime.settings.dirs_key:
        yield topic.error(name, text, context.configure_command(runtime))
    else:
        yield topic.error(name, text, context.cdigen("generate", "--write", "--spec-dir", listed[-1]))


def _identity(context: Context, path: str) -> str:
    try:
        return context.host.resolve(path)
    except OSError:
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
    listed = ", ".join(shown(one.device) for one in lost[:_FEW])
    more = f" and {len(lost) - _FEW} more" if len(lost) > _FEW else ""
    because = (
        *LOADING, MISSING, "spec-files", "spec-fresh", "device-unknown", f"{runtime.name}-directories",
        f"{runtime.name}-config", f"{runtime.name}-version", *CAUSES,
    )  # fmt: skip
    text = f"{runtime.shown} does not find {listed}{more}: {lost[0].reason}"
    # A host that has more than its specs say is stale, no less usable than before.
    yield topic.error(name, text, _remedy(context, lost[0].rule), because=because)


def _remedy(context: Context, rule: str) -> str:
    return (
        context.write_command()
        if context.products and rule in {"unknown-device", "unknown-kind", "no-specs"}
        else ""
    )


def _daemon(context: Context, runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    """Say whether the runtime's daemon runs, and has read its configuration as it is now."""
    if runtime.name not in PROCESSES:
        return
    topic, name = Topic(name=runtime.name), f"{runtime.name}-running"
    if not context.is_live:
        yield topic.unchecked(name, "the host is a folder")
        return
    began = context.daemons.get(runtime.name)
    restart = context.request.restart(runtime.name)
    if began is None:
        if runtime.name in context.request.runtimes:
            start = restart.replace("restart", "start") or ""
            yield topic.error(
                name, f"{PROCESSES[runtime.name]} is not running", start, because=(f"{runtime.name}-config",)
            )
        else:
            yield topic.good(name, f"{PROCESSES[runtime.name]} is not running")
        return
    yield topic.good(name, f"{PROCESSES[runtime.name]} is running")
    files = (*runtime.settings.files, runtime.settings.wanted)
    younger = [path for path in dict.fromkeys(files) if _changed(context, path) > began + 1]
    if younger:
        text = (
            f"{', '.join(map(shown, younger))} was changed after {PROCESSES[runtime.name]} had started, "
            "which may not have read it"
        )
        yield topic.warning(f"{runtime.name}-restart", text, restart)
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


def _limits(runtime: ExaminedRuntime) -> Iterator[CheckResult]:
    if runtime.binary is None or runtime.binary.release is None:
        return
    for limit in known_issues(RUNTIME_NAMES[runtime.name], runtime.binary.release):
        if limit.name in _JUDGED:
            continue
        text = f"known of this release: {limit.text} ({', '.join(limit.references)}); {limit.remedy}"
        if not limit.references:
            text = f"known of this release: {limit.text}; {limit.remedy}"
        yield Topic(name=runtime.name).good(f"limit-{limit.name}", text)


def _low_level(name: str, binary: InstalledRuntime) -> Iterator[CheckResult]:
    if binary.release is None:
        return
    for limit in known_issues(name, binary.release):
        references = f" ({', '.join(limit.references)})" if limit.references else ""
        release = ".".join(map(str, binary.release))
        text = f"known of {name} {release}: {limit.text}{references}; {limit.remedy}"
        yield Topic(name="runtimes").good(f"limit-{limit.name}", text)
