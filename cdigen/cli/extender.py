"""``cdigen extender``: the scheduler's extender for shared GPUs, a service of the cluster."""

from __future__ import annotations

import gc
import os

from cdigen.cli import options
from cdigen.frontend import signals
from cdigen.model.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cdigen.extender.server import Access

EXAMPLES = """\
  cdigen extender --listen 0.0.0.0:12345
                                       in a pod, with its service account
  cdigen extender --kubeconfig /etc/cdigen/extender.conf
                                       beside the scheduler, for it alone
  cdigen extender --tls-cert tls.crt --tls-key tls.key --token-file token
                                       with TLS, and a token that clients have to know
"""

LISTEN = "127.0.0.1:12345"
RUN_DIR = "/run/cdigen-extender"
STRATEGIES = ("binpack", "spread")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("the cluster")
    _add(group, "--kubeconfig", "FILE", "how the API server is reached (default: as a pod of the cluster)")
    _add(group, "--namespace", "NAME", "where ledgers are kept (default: our own, else cdigen)")
    _add(group, "--resource", "NAME", "units of memory (default: aliyun.com/gpu-mem)")
    _add(group, "--count-resource", "NAME", "number of GPUs (default: aliyun.com/gpu-count)")
    group.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="binpack",
        help="fill GPUs one after the other, or take the emptiest (default: binpack)",
    )
    group.add_argument(
        "--node-strategy",
        choices=STRATEGIES,
        help="prefer the fullest nodes, or the emptiest (default: as --strategy)",
    )
    group = parser.add_argument_group("the scheduler")
    _add(group, "--listen", "HOST:PORT", f"where to listen (default: {LISTEN})")
    _add(group, "--tls-cert", "FILE", "our certificate: then TLS alone is spoken")
    _add(group, "--tls-key", "FILE", "its key, where that is another file")
    _add(group, "--client-ca", "FILE", "clients need a certificate that this CA has signed")
    group.add_argument(
        "--client-name",
        metavar="NAME",
        action="append",
        type=options.not_empty,
        help="a common name or alternative name of clients' certificates (repeatable; default: any)",
    )
    _add(group, "--token-file", "FILE", "a token that clients have to send, as Bearer or as Basic's password")
    _add(parser, "--run-dir", "DIR", f"where the status is kept (default: {RUN_DIR})")
    options.add_output_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the extender until told to stop; returns the exit code or raises a CdigenError."""
    from cdigen.extender.server import DRAIN_S, LINGER_S  # noqa: PLC0415 - not for --help
    from cdigen.extender.service import Service, ServiceConfig  # noqa: PLC0415 - not for --help
    from cdigen.frontend import log  # noqa: PLC0415 - likewise
    from cdigen.frontend.sd_notify import Notifier  # noqa: PLC0415 - likewise
    from cdigen.gpushare.names import LEDGERS, Resources  # noqa: PLC0415 - likewise
    from cdigen.kubeapi.credentials import from_kubeconfig, in_cluster  # noqa: PLC0415 - likewise

    gc.enable()
    # Most of what is made lives for a request: looking through 10,000 pods each time would cost more.
    gc.set_threshold(50_000, 20, 100)
    logger = log.make_logger(verbose=arguments.verbose)
    log.take_over(logger)
    heard = signals.listen()
    heard.leave_within_s = LINGER_S + DRAIN_S + 2
    host, port = _address(arguments.listen or LISTEN)
    api = from_kubeconfig(arguments.kubeconfig) if arguments.kubeconfig else in_cluster()
    access = _access(arguments)
    if access.token is None and not access.client_ca and host not in {"127.0.0.1", "::1", "localhost"}:
        text = (
            "whoever reaches this port may bind pods: give --client-ca or --token-file, or a network policy"
        )
        logger.warning("options", message=text)
    if access.client_ca and not access.client_names:
        text = f"every certificate of {access.client_ca} may bind pods: give --client-name"
        logger.warning("options", message=text)
    default = Resources()
    service = Service(
        ServiceConfig(
            host=host,
            port=port,
            access=access,
            run_dir=os.path.abspath(arguments.run_dir or RUN_DIR),
            namespace=arguments.namespace or api.namespace or LEDGERS,
            resources=Resources(
                memory=arguments.resource or default.memory, count=arguments.count_resource or default.count
            ),
            strategy=arguments.strategy,
            linger_s=0.0 if arguments.kubeconfig else LINGER_S,
            node_strategy=arguments.node_strategy or arguments.strategy,
        ),
        api,
        notifier=Notifier(),
        logger=logger,
        signals=heard,
    )
    try:
        service.run()
    finally:
        heard.ignore()
    return 0


def _add(group: argparse._ActionsContainer, name: str, metavar: str, text: str) -> None:
    group.add_argument(name, metavar=metavar, type=options.not_empty, help=text)


def _address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, [HOST]:PORT or :PORT; ConfigError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen {text!r} is no HOST:PORT", hint=f"for example --listen {LISTEN}")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - what was asked for


def _access(arguments: argparse.Namespace) -> Access:
    from cdigen.extender.server import Access  # noqa: PLC0415 - not for --help
    from cdigen.kubeapi.credentials import TokenFile  # noqa: PLC0415 - likewise

    if not arguments.tls_cert and (arguments.tls_key or arguments.client_ca):
        raise ConfigError("--tls-key and --client-ca need --tls-cert", hint="give the certificate as well")
    if arguments.client_name and not arguments.client_ca:
        raise ConfigError("--client-name needs --client-ca", hint="give the CA of the clients' certificates")
    token = TokenFile(arguments.token_file) if arguments.token_file else None
    if token is not None and not token():
        raise ConfigError(
            f"{arguments.token_file} has no token that can be read", hint="write one line into it"
        )
    return Access(
        certificate=arguments.tls_cert or "",
        key=arguments.tls_key or "",
        client_ca=arguments.client_ca or "",
        client_names=frozenset(arguments.client_name or ()),
        token=token,
    )
