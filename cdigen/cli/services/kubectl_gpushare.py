"""The program ``kubectl inspect gpushare``: the GPU memory that pods use on each GPU.

kubectl finds this plugin by its file name. The plugin reads only from the API server, with the same
credentials as kubectl. The plugin needs no extender, no access to nodes and no root rights. cdigen's API
client does not support credential plugins or a KUBECONFIG with several files. In these cases, the plugin
sends its requests with ``kubectl get --raw``.
"""

from __future__ import annotations

import json
import os
import sys
from urllib.parse import quote

from cdigen import __version__
from cdigen.cli.shared import report
from cdigen.cli.shared.option_table import add, not_empty
from cdigen.cli.shared.parser import Parser
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from cdigen.kubeapi.credentials import ApiServerConfig

    # A Fetch returns the JSON at a path of the API. It raises CdigenError if the server rejects the request.
    Fetch = Callable[[str], bytes]

NAME = "kubectl-inspect-gpushare"
SUMMARY = "show the GPU memory of pods by GPU, as gpushare's command does"
EXAMPLES = """\
  kubectl inspect gpushare             a row for each node that shares its GPUs
  kubectl inspect gpushare -d node1    a row for each pod of a node
"""
# The page size that kubectl itself uses. Each page needs a kubectl process.
KUBECTL_PAGE = 500
_RIGHTS = "grant the user the verbs get and list for nodes, and list for pods in all namespaces"


@frozen
class _Source:
    """A source of API objects; ``page`` is the number of objects in one page of a list."""

    fetch: Fetch
    page: int


def make_parser() -> Parser:
    """Return the parser of this program."""
    parser = Parser(prog=NAME, summary=SUMMARY, examples=EXAMPLES)
    parser.add_argument("node", metavar="NODE", nargs="?", type=not_empty, help="show only this node")
    parser.add_argument("-d", "--details", action="store_true", help="show a row for each pod")
    add(parser, "--kubeconfig", help="kubeconfig of the API server (default: KUBECONFIG, ~/.kube/config)")
    add(parser, "--resource", "--count-resource")
    parser.add_argument("--verbose", action="store_true", help="show the traceback of an internal error")
    parser.add_argument("-V", "--version", action="version", version=f"{NAME} {__version__}",
                        help="show the version")  # fmt: skip
    return parser


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    from cdigen.cli.services import gpushare_texts  # noqa: PLC0415 - not for --help
    from cdigen.gpushare.free_capacity import node_usages  # noqa: PLC0415 - likewise
    from cdigen.gpushare.names import Resources  # noqa: PLC0415 - likewise
    from cdigen.gpushare.pods import NOT_ENDED  # noqa: PLC0415 - likewise

    default = Resources()
    resources = Resources(
        memory=arguments.resource or default.memory, count=arguments.count_resource or default.count
    )
    source, node = _source(arguments.kubeconfig), arguments.node
    try:
        path = "/api/v1/nodes"
        nodes = (
            [json.loads(source.fetch(f"{path}/{quote(node, safe='')}"))] if node else _listed(source, path)
        )
        on_node = f",spec.nodeName={node}" if node else ""
        found = node_usages(nodes, _listed(source, "/api/v1/pods", NOT_ENDED + on_node), resources)
    except ValueError as error:
        raise CdigenError(f"the API server's reply cannot be read: {error}") from None
    report.write(
        sys.stdout, gpushare_texts.details(found) if arguments.details else gpushare_texts.summary(found)
    )
    return 0


def _listed(source: _Source, path: str, selector: str = "") -> Iterator[object]:
    """Yield the objects of the list at PATH, page by page."""
    from cdigen.kubeapi.calls import query_path  # noqa: PLC0415 - not for --help
    from cdigen.kubeapi.lists import ListPage, PageSize  # noqa: PLC0415 - likewise

    token, size = "", PageSize(source.page)
    while True:
        query = {"limit": str(size.limit), "fieldSelector": selector, "continue": token}
        page = ListPage(source.fetch(query_path(path, query)))
        yield from page.items()
        size.received(page)
        token = page.next_page
        if not token:
            return


def _source(kubeconfig: str | None) -> _Source:
    from cdigen.kubeapi.credentials import from_kubeconfig, in_cluster  # noqa: PLC0415 - not for --help

    named = [kubeconfig] if kubeconfig else os.environ.get("KUBECONFIG", "").split(":")
    files = [file for file in named if file] or [os.path.expanduser("~/.kube/config")]
    if len(files) > 1:
        return _through_kubectl(None)
    file = files[0]
    if not os.path.exists(file) and "KUBERNETES_SERVICE_HOST" in os.environ:
        return _by_client(in_cluster())
    try:
        return _by_client(from_kubeconfig(file))
    except ConfigError as error:
        if os.path.exists(file) and _kubectl():
            return _through_kubectl(file)
        raise ConfigError(error.message, hint="set KUBECONFIG to a file that kubectl works with") from None


def _by_client(server: ApiServerConfig) -> _Source:
    from cdigen.kubeapi.calls import Call  # noqa: PLC0415 - not for --help
    from cdigen.kubeapi.client import Client  # noqa: PLC0415 - likewise
    from cdigen.kubeapi.lists import PAGE  # noqa: PLC0415 - likewise

    client = Client(server)

    def fetch(path: str) -> bytes:
        reply = client.send(Call(method="GET", path=path, is_raw=True))
        if not reply.is_done:
            refused = {401, 403}
            raise CdigenError(reply.text, hint=_RIGHTS if reply.status in refused else "")
        return reply.content

    return _Source(fetch=fetch, page=PAGE)


def _through_kubectl(file: str | None) -> _Source:
    """Return kubectl as the source; kubectl uses the kubeconfig FILE, or its default if FILE is None."""
    import subprocess  # noqa: PLC0415 - only here

    program = _kubectl()
    if not program:
        raise ConfigError(
            "KUBECONFIG names several files, which only kubectl can merge, and kubectl is not in PATH",
            hint="KUBECONFIG=FILE",
        )
    chosen = [f"--kubeconfig={file}"] if file else []

    def fetch(path: str) -> bytes:
        command = [program, *chosen, "get", "--raw", path]
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603
        if done.returncode:
            raise CdigenError(f"kubectl: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    return _Source(fetch=fetch, page=KUBECTL_PAGE)


def _kubectl() -> str:
    from shutil import which  # noqa: PLC0415 - only here

    return which("kubectl") or ""
