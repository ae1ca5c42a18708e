"""``cdigen kubelet``: the device plugins of this host, which offer its devices to the kubelet."""

from __future__ import annotations

import gc
import os
import socket
from importlib.util import find_spec

from cdigen.cli import options
from cdigen.cli.argument_checks import require_spec_directories
from cdigen.cli.front_end_sources import sources
from cdigen.config import Settings, matches
from cdigen.frontend import rundir, signals
from cdigen.host.root import Root, shown
from cdigen.kubelet.plugin_config import PluginConfig
from cdigen.kubelet.sockets import MAX_PATH, PLUGINS, fresh_socket
from cdigen.model.errors import ConfigError, StoreError
from cdigen.runtimes.daemon_service import service_of
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from cdigen.config import KubeletConfig, SharedMemory
    from cdigen.frontend.host_state import HostSources
    from cdigen.frontend.rundir import Logger
    from cdigen.kubelet.shares.agent import Agent
    from cdigen.model.findings import Finding

EXAMPLES = """\
  cdigen kubelet                as /etc/cdigen/config.yaml says; cdigen-kubelet.service does this
  cdigen kubelet --run-dir /run/try -v
                                try it, with a line for every container
  cdigen kubelet --kubelet-dir /var/lib/k0s/kubelet
                                the kubelet's folder is elsewhere
"""

KUBELET_DIR = "/var/lib/kubelet"
_MACHINE, _MAX_MACHINE = "/sys/class/dmi/id/product_name", 4096


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("the kubelet")
    group.add_argument(
        "--kubelet-dir",
        metavar="DIR",
        type=options.not_empty,
        help=f"the kubelet's own folder, as its --root-dir (default: {KUBELET_DIR})",
    )
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=options.not_empty,
        help="how the API server is reached, for GPUs that are shared by memory",
    )
    group.add_argument(
        "--node-name",
        metavar="NAME",
        type=options.not_empty,
        help="what the API server calls this node (default: the host's name)",
    )
    parser.add_argument(
        "--run-dir", metavar="DIR", type=options.not_empty, help="where status and HTTP socket are kept"
    )
    options.add_standby_option(parser)
    parser.add_argument(
        "--daemon-dir",
        metavar="DIR",
        type=options.not_empty,
        help="where 'cdigen run' shows devices and health (default: its run_dir in the configuration)",
    )
    options.add_root_options(parser)
    options.add_spec_dir_option(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the device plugins until told to stop; returns the exit code or raises a CdigenError."""
    _require_grpcio()
    _isolate_grpcio()
    from cdigen.frontend import log  # noqa: PLC0415 - not for --help
    from cdigen.frontend.sd_notify import Notifier  # noqa: PLC0415 - likewise
    from cdigen.kubelet.offering import HostOffering  # noqa: PLC0415 - likewise
    from cdigen.kubelet.plugin import Plugin  # noqa: PLC0415 - likewise, 0.2 s

    # Commands end before garbage matters (cli.main turns this off); this one stays.
    gc.enable()
    wanted = setup(arguments, is_lenient=True, warn=lambda _: None)
    _refuse_outsider(arguments, wanted)
    # What is made is root's alone, unless it says otherwise: whoever may connect to a socket may ask.
    os.umask(0o077)
    logger = log.make_logger(verbose=arguments.verbose)
    log.take_over(logger)
    heard = signals.listen()

    def warn(found: Finding) -> None:
        logger.warning("configuration", message=found.message, hint=found.hint)

    try:
        require_spec_directories(arguments)
    except ConfigError as error:  # the first spec may make it
        logger.warning("options", message=error.message, hint=error.hint)

    def offering(config: PluginConfig) -> HostOffering:
        return HostOffering(
            config.settings,
            config.profiles,
            config.kubelet_dir,
            agents=lambda shared: _agent(arguments, shared, logger),
            state_dir=config.state_dir,
        )

    plugin = Plugin(
        lambda is_first: setup(arguments, is_lenient=is_first, warn=warn),
        offering,
        notifier=Notifier(),
        logger=logger,
        signals=heard,
    )
    try:
        plugin.run(stands_by=arguments.standby)
    finally:
        heard.ignore()
    return 0


def _agent(arguments: Namespace, shared: SharedMemory, logger: Logger) -> Agent | None:
    """Return who knows which pods ask for memory as SHARED says, begun; None where nobody shall, or can.

    Where it was shared before, and is not any more, the node says so no longer.
    """
    if arguments.kubeconfig is None:
        return None
    from cdigen.gpushare.names import Resources  # noqa: PLC0415 - ssl and http.client, for this alone
    from cdigen.kubeapi.credentials import from_kubeconfig  # noqa: PLC0415 - likewise
    from cdigen.kubelet.shares.agent import Agent  # noqa: PLC0415 - likewise

    agent = Agent(
        from_kubeconfig(arguments.kubeconfig),
        arguments.node_name or socket.gethostname().casefold(),
        shared.namespace,
        Resources(memory=shared.resource, count=shared.count),
        lambda text: logger.warning("shares", message=text),
    )
    if shared.unit == "none":
        agent.withdraw()
        return None
    agent.start()
    return agent


def setup(
    arguments: Namespace, *, is_lenient: bool, warn: Callable[[Finding], object] | None = None
) -> PluginConfig:
    """Return what ARGUMENTS and the configuration, read now, make of the process; raises a CdigenError.

    IS_LENIENT: where the configuration of the host is wrong, the setup says so. WARN is given each key that
    has its old name.
    """
    problem = ""
    try:
        host, settings = options.host_and_settings(arguments, warn)
    except (ConfigError, StoreError) as error:
        root = os.path.realpath(arguments.root)
        if not is_lenient or not os.path.isdir(root) or arguments.config is not None:
            raise
        host, settings, problem = Root(root), Settings(), error.message
    given, nvidia, found = _with_nvidia(settings.kubelet, host)
    return PluginConfig(
        kubelet_dir=_kubelet_dir(arguments, host),
        run_dir=arguments.run_dir or options.outer_directory(host, settings.kubelet.run_dir),
        sources=_sources(arguments, host, settings),
        settings=given,
        profiles=settings.offered_profiles,
        state_dir=options.outer_directory(host, settings.state_dir),
        labels=options.outer_directory(host, given.labels) if given.labels else "",
        machine=_machine(host) if given.labels else "",
        watched=(options.configuration_file(arguments), *nvidia),
        findings=(*found, *_beside(settings)),
        problem=problem,
    )


def _machine(host: Root) -> str:
    """Return the model of HOST by its firmware, "" where it tells none."""
    try:
        return host.read(_MACHINE, limit=_MAX_MACHINE).decode(errors="replace").strip()
    except OSError:
        return ""


def _beside(settings: Settings) -> tuple[Finding, ...]:
    """Return the finding that SETTINGS let the NRI plugin hand out GPUs beside units of their memory."""
    from cdigen.model.findings import Finding  # noqa: PLC0415 - not for --help
    from cdigen.model.profile import narrowed  # noqa: PLC0415 - likewise

    if settings.kubelet.shared_memory.unit == "none":
        return ()
    profiles = (*settings.offered_profiles, *narrowed(settings.offered_profiles))
    vendors = [registry.cdi_vendor(name) for name in registry.VENDORS]
    kinds = [f"{vendor}/{profile.device_class}" for vendor in vendors for profile in profiles]
    # A row without kinds is about all that variables can name.
    giving = [
        row for row in settings.nri.allow if not row.kinds or any(matches(kind, row.kinds) for kind in kinds)
    ]
    if not giving:
        return ()
    where = ", ".join(dict.fromkeys(name for row in giving for name in row.namespaces))
    text = (
        "GPUs are shared by memory, and what 'nri: {allow}' hands out beside that is not counted: to pods of "
        f"the namespaces {where}"
    )
    hint = "let its rules name no kind that has these GPUs"
    return (Finding(severity="warning", rule="shared-memory-nri", path="nri", message=text, hint=hint),)


def _with_nvidia(
    settings: KubeletConfig, host: Root
) -> tuple[KubeletConfig, tuple[str, ...], tuple[Finding, ...]]:
    """Return SETTINGS with what the file of NVIDIA's says that they name, its place, what is wrong in it."""
    if not settings.nvidia_config:
        return settings, (), ()
    from cdigen.kubelet.nvidia_settings import with_nvidia_file  # noqa: PLC0415 - imports YAML

    given, found = with_nvidia_file(host, settings)
    return given, (options.outer_directory(host, settings.nvidia_config),), found


def _kubelet_dir(arguments: Namespace, host: Root) -> str:
    """Return the kubelet's folder; ConfigError for what can never be one.

    It need not be there yet, since the kubelet makes it, and it may be a link: some distributions keep the
    kubelet's files elsewhere.
    """
    given = options.absolute("--kubelet-dir", arguments.kubelet_dir)
    folder = given.rstrip("/") or "/" if given else options.outer_directory(host, KUBELET_DIR)
    hint = "give the kubelet's own --root-dir with --kubelet-dir"
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ConfigError(f"the kubelet's folder {shown(folder)} is not a folder", hint=hint)
    if len(os.fsencode(fresh_socket(f"{folder}/{PLUGINS}", "x"))) > MAX_PATH:
        text = f"the path of the kubelet's folder {shown(folder)} is too long: those of sockets have"
        raise ConfigError(f"{text} {MAX_PATH} bytes at most", hint=hint)
    return folder


def _refuse_outsider(arguments: Namespace, wanted: PluginConfig) -> None:
    """Raise StoreError where who runs this has not root's rights, and can serve no kubelet without them.

    Root's process waits for a folder that is not there: who has no right to it would wait for ever.
    """
    if os.geteuid() == 0:
        return
    hint = f"only root may serve the kubelet: {service_of(options.host_root(arguments)).kubelet} starts it"
    folder = f"{wanted.kubelet_dir}/{PLUGINS}"
    there = folder
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(f"the kubelet's folder {shown(folder)} cannot be used: Permission denied", hint=hint)
    try:
        rundir.prepare(wanted.run_dir)
    except StoreError as error:
        raise StoreError(error.message, hint=hint) from None


def _require_grpcio() -> None:
    """Raise ConfigError without grpcio, which this command alone needs (the extra ``kubelet``)."""
    if find_spec("grpc") is None:
        raise ConfigError(
            "'cdigen kubelet' needs the Python module grpcio, 1.51 or newer, which is not installed",
            hint="apt install python3-grpcio (Debian, Ubuntu); dnf install python3-grpcio (Fedora, EPEL); "
            "pipx inject cdigen grpcio",
            kind="module-missing",
        )


def _isolate_grpcio() -> None:
    """Let nothing in the environment change how grpcio works, and keep its own lines off stderr.

    They are not JSON, and what goes wrong is told by what it returns (grpc, doc/environment_variables.md).
    """
    for name in [name for name in os.environ if name.upper().startswith("GRPC_")]:
        del os.environ[name]
    os.environ["GRPC_VERBOSITY"] = "NONE"


def _sources(arguments: Namespace, host: Root, settings: Settings) -> HostSources:
    found = sources(arguments, host, settings)
    if arguments.daemon_dir is None:
        return found
    return replace(found, runs="/", run_dir=os.path.abspath(arguments.daemon_dir))
