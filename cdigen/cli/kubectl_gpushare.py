"""``kubectl inspect gpushare``: which pods have how much of which GPU. kubectl finds it by its file's name.

It asks the API server alone, as whoever kubectl would be: no extender, no node, no root. What our client
cannot do (users whom a program vouches for, several files in KUBECONFIG) is asked through kubectl itself.
"""

from __future__ import annotations

import json
import os
import sys
from urllib.parse import quote, urlencode

from cdigen import __version__
from cdigen.cli import options, report
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator

    from cdigen.kubeapi.credentials import Server

    # Returns the JSON at a path of the API. CdigenError: the API server refuses.
    Ask = Callable[[str], bytes]

NAME = "kubectl-inspect-gpushare"
SUMMARY = "show how much of which GPU's memory pods have, as gpushare's command does"
EXAMPLES = """\
  kubectl inspect gpushare             a row for each node that shares its GPUs
  kubectl inspect gpushare -d node1    the pods of a node, and what each has
"""
# kubectl starts a process for each page, and has this size of a page itself.
KUBECTL_PAGE = 500
_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
_RIGHTS = "you need the right to get and list nodes, and to list pods of all namespaces"


@frozen
class _Source:
    """Where objects are read: ``page`` is the number of objects in a page of a list."""

    ask: Ask
    page: int


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("node", metavar="NODE", nargs="?", type=options.not_empty, help="only this node")
    parser.add_argument("-d", "--details", action="store_true", help="pod by pod")
    _add(
        parser, "--kubeconfig", "FILE", "how the API server is reached (default: KUBECONFIG, ~/.kube/config)"
    )
    _add(parser, "--resource", "NAME", "units of memory (default: aliyun.com/gpu-mem)")
    _add(parser, "--count-resource", "NAME", "number of GPUs (default: aliyun.com/gpu-count)")
    parser.add_argument("--verbose", action="store_true", help="show where an internal error came from")
    parser.add_argument("-V", "--version", action="version", version=f"{NAME} {__version__}",
                        help="show the version")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    from cdigen.cli import gpushare_texts  # noqa: PLC0415 - not for --help
    from cdigen.gpushare.names import Resources  # noqa: PLC0415 - likewise
    from cdigen.gpushare.usage import usages  # noqa: PLC0415 - likewise

    default = Resources()
    resources = Resources(
        memory=arguments.resource or default.memory, count=arguments.count_resource or default.count
    )
    source, node = _source(arguments.kubeconfig), arguments.node
    try:
        path = "/api/v1/nodes"
        nodes = [json.loads(source.ask(f"{path}/{quote(node, safe='')}"))] if node else _listed(source, path)
        on_node = f",spec.nodeName={node}" if node else ""
        found = usages(nodes, _listed(source, "/api/v1/pods", _ENDED + on_node), resources)
    except ValueError as error:
        raise CdigenError(f"what the API server says cannot be read: {error}") from None
    report.write(
        sys.stdout, gpushare_texts.details(found) if arguments.details else gpushare_texts.summary(found)
    )
    return 0


def _add(parser: ArgumentParser, name: str, metavar: str, text: str) -> None:
    parser.add_argument(name, metavar=metavar, type=options.not_empty, help=text)


def _listed(source: _Source, path: str, selector: str = "") -> Iterator[object]:
    """Yield the objects of the list at PATH, page by page."""
    from cdigen.kubeapi.lists import ListPage, PageSize  # noqa: PLC0415 - not for --help

    more, size = "", PageSize(source.page)
    while True:
        query = {"limit": str(size.limit)} | ({"fieldSelector": selector} if selector else {})
        query |= {"continue": more} if more else {}
        page = ListPage(source.ask(f"{path}?{urlencode(query, quote_via=quote)}"))
        yield from page.items()
        size.received(page)
        more = page.next_page
        if not more:
            return


def _source(kubeconfig: str | None) -> _Source:
    from cdigen.kubeapi.credentials import from_kubeconfig, in_cluster  # noqa: PLC0415 - not for --help

    given = [kubeconfig] if kubeconfig else os.environ.get("KUBECONFIG", "").split(":")
    files = [file for file in given if file] or [os.path.expanduser("~/.kube/config")]
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
        raise ConfigError(error.message, hint="name a file that kubectl works with in KUBECONFIG") from None


def _by_client(server: Server) -> _Source:
    from cdigen.kubeapi.calls import Call  # noqa: PLC0415 - not for --help
    from cdigen.kubeapi.client import Client  # noqa: PLC0415 - likewise
    from cdigen.kubeapi.lists import PAGE  # noqa: PLC0415 - likewise

    client = Client(server)

    def ask(path: str) -> bytes:
        reply = client.send(Call(method="GET", path=path, is_raw=True))
        if not reply.is_done:
            refused = {401, 403}
            raise CdigenError(reply.text, hint=_RIGHTS if reply.status in refused else "")
        return reply.content

    return _Source(ask=ask, page=PAGE)


def _through_kubectl(file: str | None) -> _Source:
    """Return kubectl as the source, by FILE or by its own rules."""
    import subprocess  # noqa: PLC0415 - only here

    program = _kubectl()
    if not program:
        raise ConfigError(
            "KUBECONFIG names several files, which only kubectl puts together, and it is not in PATH",
            hint="name one file",
        )
    chosen = [f"--kubeconfig={file}"] if file else []

    def ask(path: str) -> bytes:
        command = [program, *chosen, "get", "--raw", path]
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603
        if done.returncode:
            raise CdigenError(f"kubectl: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    return _Source(ask=ask, page=KUBECTL_PAGE)


def _kubectl() -> str:
    from shutil import which  # noqa: PLC0415 - only here

    return which("kubectl") or ""
