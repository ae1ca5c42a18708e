"""The command ``cdigen extender``: the scheduler extender for GPUs that are shared by memory.

The extender is a service of the cluster.
"""

from __future__ import annotations

import gc
import os

from cdigen.cli.shared.option_table import add
from cdigen.model.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cdigen.extender.server import Access
    from cdigen.service.process.buffered_log import Logger

EXAMPLES = """\
  cdigen extender --listen 0.0.0.0:12345
                                       in a pod, with its service account
  cdigen extender --kubeconfig /etc/cdigen/extender.conf
                                       on the scheduler's host, for this scheduler only
  cdigen extender --tls-cert tls.crt --tls-key tls.key --token-file token
                                       with TLS, and with a token that clients have to send
"""

LISTEN = "127.0.0.1:12345"
RUN_DIR = "/run/cdigen-extender"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("the cluster")
    text = "kubeconfig of the API server (default: the service account of the pod)"
    add(group, "--kubeconfig", help=text)
    text = "namespace of the ledgers (default: the pod's namespace, else cdigen)"
    add(group, "--namespace", default=None, help=text)
    add(group, "--resource", "--count-resource", "--strategy", "--node-strategy")
    group = parser.add_argument_group("the scheduler")
    add(group, "--listen", help=f"address to listen on (default: {LISTEN})")
    add(group, "--tls-cert", "--tls-key", "--client-ca", "--client-name", "--token-file")
    add(parser, "--run-dir", help=f"directory of status.json (default: {RUN_DIR})")


def run(arguments: argparse.Namespace) -> int:
    """Run the extender until SIGTERM or SIGINT; return the exit code or raise a CdigenError."""
    from cdigen.extender.server import DRAIN_S, LINGER_S  # noqa: PLC0415 - not for --help
    from cdigen.extender.service import Service, ServiceConfig  # noqa: PLC0415 - not for --help
    from cdigen.gpushare.names import DEFAULT_LEDGER_NAMESPACE, Resources  # noqa: PLC0415 - likewise
    from cdigen.kubeapi.credentials import from_kubeconfig, in_cluster  # noqa: PLC0415 - likewise
    from cdigen.service.process.context import service_process  # noqa: PLC0415 - likewise

    with service_process(verbose=arguments.verbose) as context:
        # Most objects exist only during a request. Garbage collections are rare, because each one traverses
        # the objects of up to 10,000 pods.
        gc.set_threshold(50_000, 20, 100)
        context.signals.leave_within_s = LINGER_S + DRAIN_S + 2
        host, port = _address(arguments.listen or LISTEN)
        api = from_kubeconfig(arguments.kubeconfig) if arguments.kubeconfig else in_cluster()
        access = _access(arguments)
        _warn_of_clients(access, host, port, context.log)
        default = Resources()
        config = ServiceConfig(
            host=host,
            port=port,
            access=access,
            run_dir=os.path.abspath(arguments.run_dir or RUN_DIR),
            namespace=arguments.namespace or api.namespace or DEFAULT_LEDGER_NAMESPACE,
            resources=Resources(
                memory=arguments.resource or default.memory, count=arguments.count_resource or default.count
            ),
            strategy=arguments.strategy,
            linger_s=0.0 if arguments.kubeconfig else LINGER_S,
            node_strategy=arguments.node_strategy or arguments.strategy,
        )
        Service(config, api, context).run()
    return 0


def _warn_of_clients(access: Access, host: str, port: int, log: Logger) -> None:
    if access.token is None and not access.client_ca and host not in {"127.0.0.1", "::1", "localhost"}:
        text = f"any client of port {port} may bind pods: use --client-ca, --token-file or a NetworkPolicy"
        log.warning("options", message=text)
    if access.client_ca and not access.client_names:
        text = f"any client with a certificate of {access.client_ca} may bind pods: use --client-name"
        log.warning("options", message=text)


def _address(text: str) -> tuple[str, int]:
    """Return the host and the port in TEXT (HOST:PORT, [HOST]:PORT or :PORT), or raise ConfigError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen: not HOST:PORT ({text!r})", hint=f"--listen {LISTEN}")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - the user has chosen this address


def _access(arguments: argparse.Namespace) -> Access:
    from cdigen.extender.server import Access  # noqa: PLC0415 - not for --help
    from cdigen.kubeapi.credentials import TokenFile  # noqa: PLC0415 - likewise

    if not arguments.tls_cert and (arguments.tls_key or arguments.client_ca):
        raise ConfigError("--tls-key and --client-ca need --tls-cert", hint="--tls-cert FILE")
    if arguments.client_name and not arguments.client_ca:
        raise ConfigError("--client-name needs --client-ca", hint="--client-ca FILE")
    token = TokenFile(arguments.token_file) if arguments.token_file else None
    if token is not None and not token():
        raise ConfigError(
            f"{arguments.token_file}: no readable token", hint="write the token into its first line"
        )
    return Access(
        certificate=arguments.tls_cert or "",
        key=arguments.tls_key or "",
        client_ca=arguments.client_ca or "",
        client_names=frozenset(arguments.client_name or ()),
        token=token,
    )
