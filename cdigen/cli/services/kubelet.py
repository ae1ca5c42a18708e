"""The command ``cdigen kubelet``: device plugins that advertise the devices of this host to the kubelet."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec

from cdigen.cli.services.service_sources import (
    log_missing_directories,
    require_run_dir,
    settings_or_defaults,
    sources,
)
from cdigen.cli.shared import options
from cdigen.cli.shared.option_table import add
from cdigen.config import matches
from cdigen.host.root import shown
from cdigen.kubelet.plugin_config import KubeletPluginConfig
from cdigen.kubelet.registration.sockets import MAX_PATH, PLUGINS, fresh_socket
from cdigen.model.errors import ConfigError, StoreError
from cdigen.runtimes.daemon_service import service_of
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.config import KubeletConfig, Settings, SharedMemory
    from cdigen.host.root import Root
    from cdigen.kubelet.gpu_memory.agent import Agent
    from cdigen.model.findings import Finding
    from cdigen.service.process.buffered_log import Logger

EXAMPLES = """\
  cdigen kubelet                use /etc/cdigen/config.yaml, as cdigen-kubelet.service does
  cdigen kubelet --run-dir /run/try -v
                                run a test, with a log line for every container
  cdigen kubelet --kubelet-dir /var/lib/k0s/kubelet
                                use the kubelet with this folder
"""

KUBELET_DIR = "/var/lib/kubelet"
_MACHINE, _MAX_MACHINE = "/sys/class/dmi/id/product_name", 4096


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("the kubelet")
    text = f"the folder of the kubelet (option --root-dir of the kubelet; default: {KUBELET_DIR})"
    add(group, "--kubelet-dir", help=text)
    add(group, "--kubeconfig", "--node-name")
    add(parser, "--run-dir", help="the run directory, for status and sockets")
    add(parser, "--standby", "--daemon-run-dir")
    options.add_root_options(parser)
    add(parser, "--spec-dir")


def run(arguments: Namespace) -> int:
    """Run the device plugins until a signal; return the exit code or raise a CdigenError."""
    _require_grpcio()
    _isolate_grpcio()
    from cdigen.kubelet.advertised_resources import AdvertisedResources  # noqa: PLC0415 - not for --help
    from cdigen.kubelet.plugin import KubeletPlugin  # noqa: PLC0415 - not for --help, 0.2 s
    from cdigen.service.process.context import service_process  # noqa: PLC0415 - likewise

    config = setup(arguments, is_lenient=True)
    _require_access(arguments, config)
    # Only root may use the sockets and files. Every client that can connect can send requests.
    os.umask(0o077)
    with service_process(verbose=arguments.verbose) as context:
        log_missing_directories(arguments, context.log)

        def provider(config: KubeletPluginConfig) -> AdvertisedResources:
            return AdvertisedResources(config, lambda shared: _agent(arguments, shared, context.log))

        plugin = KubeletPlugin(lambda is_first: setup(arguments, is_lenient=is_first), provider, context)
        plugin.run(is_standby=arguments.standby)
    return 0


def _agent(arguments: Namespace, shared: SharedMemory, logger: Logger) -> Agent | None:
    """Return a started agent for GPU memory with the settings SHARED; None if no agent is needed.

    If GPUs are no longer shared by memory, the agent removes its annotation and the GPU count from the Node.
    """
    if arguments.kubeconfig is None:
        return None
    from cdigen.gpushare.names import Resources  # noqa: PLC0415 - imports ssl and http.client
    from cdigen.kubeapi.credentials import from_kubeconfig  # noqa: PLC0415 - likewise
    from cdigen.kubelet.gpu_memory.agent import Agent  # noqa: PLC0415 - likewise

    agent = Agent(
        from_kubeconfig(arguments.kubeconfig),
        arguments.node_name or socket.gethostname().casefold(),
        shared.namespace,
        Resources(memory=shared.resource, count=shared.count),
        lambda text: logger.warning("shared_memory", message=text),
    )
    if shared.unit == "none":
        agent.clear_node()
        return None
    agent.start()
    return agent


def setup(arguments: Namespace, *, is_lenient: bool) -> KubeletPluginConfig:
    """Return the current settings from ARGUMENTS and the configuration file, or raise a CdigenError.

    If IS_LENIENT is true, an error in the default configuration file is not raised. The result then has the
    default settings, and ``problem`` is the error.
    """
    may_fail = is_lenient and arguments.config is None
    host, settings, problem = settings_or_defaults(arguments, may_fail=may_fail)
    kubelet, nvidia, found = _with_nvidia(settings.kubelet, host)
    return KubeletPluginConfig(
        kubelet_dir=_kubelet_dir(arguments, host),
        run_dir=arguments.run_dir or options.outer_directory(host, settings.kubelet.run_dir),
        sources=sources(arguments, host, settings, run_dir=arguments.daemon_run_dir),
        settings=kubelet,
        profiles=settings.effective_profiles,
        state_dir=options.outer_directory(host, settings.state_dir),
        labels=options.outer_directory(host, kubelet.labels) if kubelet.labels else "",
        machine=_machine(host) if kubelet.labels else "",
        watched=(options.configuration_file(arguments), *nvidia),
        findings=(*found, *_nri_conflicts(settings)),
        problem=problem,
    )


def _machine(host: Root) -> str:
    """Return the machine model of HOST from the firmware, or an empty text if the firmware has no model."""
    try:
        return host.read(_MACHINE, limit=_MAX_MACHINE).decode(errors="replace").strip()
    except OSError:
        return ""


def _nri_conflicts(settings: Settings) -> tuple[Finding, ...]:
    """Return a warning if SETTINGS let the NRI plugin inject GPUs that are also shared by memory."""
    from cdigen.model.findings import Finding  # noqa: PLC0415 - not for --help
    from cdigen.model.profile import capability_profiles  # noqa: PLC0415 - likewise

    if settings.kubelet.shared_memory.unit == "none":
        return ()
    profiles = (*settings.effective_profiles, *capability_profiles(settings.effective_profiles))
    vendors = [registry.cdi_vendor(name) for name in {*registry.VENDORS, *settings.vendors}]
    kinds = [f"{vendor}/{profile.device_class}" for vendor in vendors for profile in profiles]
    # A rule without kinds permits all devices that environment variables can name.
    permitting = [
        row for row in settings.nri.allow if not row.kinds or any(matches(kind, row.kinds) for kind in kinds)
    ]
    if not permitting:
        return ()
    namespaces = ", ".join(dict.fromkeys(name for row in permitting for name in row.namespaces))
    text = (
        "nri: 'allow' also permits GPUs that are shared by memory, and their use is not counted "
        f"(namespaces: {namespaces})"
    )
    hint = "remove the kinds of these GPUs from the rules of 'nri: {allow}'"
    return (Finding(severity="warning", rule="shared-memory-nri", path="nri", message=text, hint=hint),)


def _with_nvidia(
    settings: KubeletConfig, host: Root
) -> tuple[KubeletConfig, tuple[str, ...], tuple[Finding, ...]]:
    """Return SETTINGS merged with the file of NVIDIA's device plugin, and the file's path and findings."""
    if not settings.nvidia_config:
        return settings, (), ()
    from cdigen.kubelet.resources.nvidia_file import with_nvidia_file  # noqa: PLC0415 - imports YAML

    merged, found = with_nvidia_file(host, settings)
    return merged, (options.outer_directory(host, settings.nvidia_config),), found


def _kubelet_dir(arguments: Namespace, host: Root) -> str:
    """Return the folder of the kubelet; raise ConfigError if the path is not a folder or is too long.

    The folder may be missing, because the kubelet creates it. The folder may be a link, because some
    distributions keep the files of the kubelet elsewhere.
    """
    option = options.absolute("--kubelet-dir", arguments.kubelet_dir)
    folder = option.rstrip("/") or "/" if option else options.outer_directory(host, KUBELET_DIR)
    hint = "set --kubelet-dir to the kubelet's --root-dir"
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ConfigError(f"the kubelet's folder {shown(folder)} is not a folder", hint=hint)
    if len(os.fsencode(fresh_socket(f"{folder}/{PLUGINS}", "x"))) > MAX_PATH:
        text = f"the kubelet's folder {shown(folder)}: the path is too long for sockets"
        raise ConfigError(f"{text} (at most {MAX_PATH} bytes)", hint=hint)
    return folder


def _require_access(arguments: Namespace, config: KubeletPluginConfig) -> None:
    """Raise StoreError if the user is not root and cannot serve the kubelet.

    A process of root waits for a missing folder. A process without access to the folder would wait for ever.
    """
    if os.geteuid() == 0:
        return
    hint = f"only root may serve the kubelet: run {service_of(options.host_root(arguments)).kubelet}"
    folder = f"{config.kubelet_dir}/{PLUGINS}"
    existing = folder
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StoreError(f"the kubelet's folder {shown(folder)} cannot be used: Permission denied", hint=hint)
    require_run_dir(config.run_dir, hint=hint)


def _require_grpcio() -> None:
    """Raise ConfigError if grpcio is missing. Only this command needs grpcio (Python extra ``kubelet``)."""
    if find_spec("grpc") is None:
        from cdigen.cli.shared.python_modules import installation  # noqa: PLC0415 - only here

        raise ConfigError(
            "'cdigen kubelet' needs the Python module grpcio, 1.48 or newer, which is not installed",
            hint=installation("grpc"),
            kind="module-missing",
        )


def _isolate_grpcio() -> None:
    """Remove the variables of grpcio from the environment, and disable its output on stderr.

    The log lines of grpcio are not JSON. grpcio returns all errors to the caller (grpc,
    doc/environment_variables.md).
    """
    for name in [name for name in os.environ if name.upper().startswith("GRPC_")]:
        del os.environ[name]
    os.environ["GRPC_VERBOSITY"] = "NONE"
