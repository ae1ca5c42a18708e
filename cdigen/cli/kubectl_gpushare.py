"""``kubectl inspect gpushare``: which pods have how much of which GPU. kubectl finds it by its file's name.

It asks the API server alone, as whoever kubectl would be: no extender, no node, no root. What our client
cannot do (users whom a program vouches for, several files in KUBECONFIG) is asked through kubectl itself.
"""

from __future__ import annotations

import os
import sys
from urllib.parse import quote, urlencode

from cdigen import __version__
from cdigen.cli import options, report
from cdigen.model.errors import CdigenError, ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator, Mapping

    from cdigen.kubeapi.credentials import Server

    # Returns the object at a path of the API; CdigenError: there is none to be had.
    Ask = Callable[[str], Mapping[str, object]]

NAME = "kubectl-inspect-gpushare"
SUMMARY = "show how much of which GPU's memory pods have, as gpushare's command does"
EXAMPLES = """\
  kubectl inspect gpushare             a row for each node that shares its GPUs
  kubectl inspect gpushare -d node1    the pods of a node, and what each has
"""
PAGE = 500
_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
_RIGHTS = "you need the right to get and list nodes, and to list pods of all namespaces"


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
    ask, node = _asker(arguments.kubeconfig), arguments.node
    try:
        nodes = [ask(f"/api/v1/nodes/{quote(node, safe='')}")] if node else _listed(ask, "/api/v1/nodes")
        on_node = f",spec.nodeName={node}" if node else ""
        found = usages(nodes, _listed(ask, "/api/v1/pods", _ENDED + on_node), resources)
    except ValueError as error:
        raise CdigenError(f"what the API server says cannot be read: {error}") from None
    report.write(
        sys.stdout, gpushare_texts.details(found) if arguments.details else gpushare_texts.summary(found)
    )
    return 0


def _add(parser: ArgumentParser, name: str, metavar: str, text: str) -> None:
    parser.add_argument(name, metavar=metavar, type=options.not_empty, help=text)


def _listed(ask: Ask, path: str, selector: str = "") -> Iterator[object]:
    """Yield the objects of the list at PATH, page by page."""
    more = ""
    while True:
        query = {"limit": str(PAGE)} | ({"fieldSelector": selector} if selector else {})
        page = ask(f"{path}?{urlencode(query | ({'continue': more} if more else {}), quote_via=quote)}")
        items, metadata = page.get("items"), page.get("metadata")
        yield from items if isinstance(items, list) else ()
        more = str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""
        if not more:
            return


def _asker(kubeconfig: str | None) -> Ask:
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


def _by_client(server: Server) -> Ask:
    from cdigen.kubeapi.calls import Call  # noqa: PLC0415 - not for --help
    from cdigen.kubeapi.client import Client  # noqa: PLC0415 - likewise

    client = Client(server)

    def ask(path: str) -> Mapping[str, object]:
        reply = client.send(Call(method="GET", path=path))
        if not reply.is_done:
            refused = {401, 403}
            raise CdigenError(reply.text, hint=_RIGHTS if reply.status in refused else "")
        return reply.body

    return ask


def _through_kubectl(file: str | None) -> Ask:
    """Return what asks through kubectl, by FILE or by its own rules."""
    import json  # noqa: PLC0415 - only here
    import subprocess  # noqa: PLC0415 - likewise

    program = _kubectl()
    if not program:
        raise ConfigError(
            "KUBECONFIG names several files, which only kubectl puts together, and it is not in PATH",
            hint="name one file",
        )
    chosen = [f"--kubeconfig={file}"] if file else []

    def ask(path: str) -> Mapping[str, object]:
        command = [program, *chosen, "get", "--raw", path]
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603
        if done.returncode:
            raise CdigenError(f"kubectl: {done.stderr.decode(errors='replace').strip()}")
        body = json.loads(done.stdout)
        if not isinstance(body, dict):
            raise ValueError("no object came")  # noqa: TRY004 - of a document, not of code
        return body

    return ask


def _kubectl() -> str:
    from shutil import which  # noqa: PLC0415 - only here

    return which("kubectl") or ""
