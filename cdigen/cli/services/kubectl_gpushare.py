"""The program ``kubectl inspect gpushare``: the GPU memory that pods use on each GPU.

kubectl finds this plugin by its file name. The plugin reads only from the API server, with the same
credentials as kubectl. The plugin needs no extender, no access to nodes and no root rights. cdigen's API
client does not support credential plugins or a KUBECONFIG with several files. In these cases, the plugin
sends its requests with ``kubectl get --raw``.

The tables have the columns and texts of gpushare. Source: AliyunContainerService/gpushare-device-plugin,
cmd/inspect/display.go. The total of the cluster does not include cordoned nodes, because no pod can be
scheduled there. A cordoned node has a row in the table. The line after the total lists the cordoned nodes.
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
from cdigen.host.root import shown
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cdigen.gpushare.free_capacity import NodeUsage
    from cdigen.gpushare.reservations import Reservation
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
_GAP = 2
# The unit is MiB if a GPU has more units than this limit.
_MOST_GIB = 100
_TOTAL = "Allocated/Total GPU Memory In Cluster:"
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
    from cdigen.gpushare.free_capacity import node_usages  # noqa: PLC0415 - not for --help
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
    report.write(sys.stdout, _details(found) if arguments.details else _summary(found))
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


def _summary(found: Sequence[NodeUsage]) -> str:
    """Return a table with a row for each node, and the total."""
    count = max((_columns(usage) for usage in found), default=0)
    has_pending = any(usage.free.unplaced for usage in found)
    header = ["NAME", "IPADDRESS", *(f"GPU{gpu}(Allocated/Total)" for gpu in range(count))]
    rows = [[*header, *(["PENDING(Allocated)"] if has_pending else []), f"GPU Memory({_unit(found)})"]]
    for usage in found:
        sizes, used = {gpu.index: gpu.units for gpu in usage.node.gpus}, dict(usage.free.used)
        cells = [f"{used.get(gpu, 0)}/{sizes.get(gpu, 0)}" for gpu in range(count)]
        pending = [str(usage.free.unplaced or "")] if has_pending else []
        total = f"{usage.free.reserved}/{usage.node.capacity}"
        rows.append([shown(usage.node.name), _address(usage), *cells, *pending, total])
    lines = _aligned(rows)
    total = _ratio(*_sums(found))
    return _text([*lines, _ruler(lines), _TOTAL, total, *_cordoned(found)])


def _details(found: Sequence[NodeUsage]) -> str:
    """Return a table of pods for each node, and the total."""
    lines: list[str] = []
    for usage in found:
        lines += ["", *_aligned([["NAME:", shown(usage.node.name)], ["IPADDRESS:", _address(usage)]]), ""]
        lines += _node(usage)
    return _text([*lines, "", "", f"{_TOTAL}  {_ratio(*_sums(found))}", *_cordoned(found)])


def _node(usage: NodeUsage) -> list[str]:
    count = _columns(usage)
    header = ["NAME", "NAMESPACE", *(f"GPU{gpu}(Allocated)" for gpu in range(count))]
    rows = [[*header, *(["Pending(Allocated)"] if usage.free.unplaced else [])]]
    for pod, reservation in usage.pods:
        cells = _cells(usage, reservation, count)
        rows.append([shown(pod.name), shown(pod.namespace), *(cells if usage.free.unplaced else cells[:-1])])
    used = usage.free.reserved
    rows.append(["Allocated :", f"{used} ({_percent(used, usage.node.capacity)}%)"])
    rows.append(["Total :", str(usage.node.capacity)])
    lines = _aligned(rows)
    return [*lines, _ruler(lines)]


def _cells(usage: NodeUsage, reservation: Reservation, count: int) -> list[str]:
    """Return the units of RESERVATION for each GPU. The last cell has the units without a known GPU."""
    known, on, pending = {gpu.index for gpu in usage.node.gpus}, [0] * count, reservation.unplaced
    for gpu, units in reservation.on:
        if gpu in known:
            on[gpu] += units
        else:
            pending += units
    return [str(units) for units in (*on, pending)]


def _columns(usage: NodeUsage) -> int:
    return max((gpu.index + 1 for gpu in usage.node.gpus), default=0)


def _unit(found: Iterable[NodeUsage]) -> str:
    is_mib = any(gpu.units > _MOST_GIB for usage in found for gpu in usage.node.gpus)
    return "MiB" if is_mib else "GiB"


def _address(usage: NodeUsage) -> str:
    return shown(usage.node.address) or "unknown"


def _sums(found: Iterable[NodeUsage]) -> tuple[int, int]:
    usages = [usage for usage in found if not usage.node.is_cordoned]
    return sum(usage.free.reserved for usage in usages), sum(usage.node.capacity for usage in usages)


def _cordoned(found: Iterable[NodeUsage]) -> list[str]:
    out = [f"{shown(each.node.name)} {each.free.reserved}/{each.node.capacity}"
           for each in found if each.node.is_cordoned]  # fmt: skip
    return [f"Cordoned, not in the total: {', '.join(out)}"] if out else []


def _ratio(used: int, total: int) -> str:
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    return used * 100 // total if total else 0


def _aligned(rows: list[list[str]]) -> list[str]:
    """Return ROWS as lines with aligned columns. The rows can have different numbers of cells."""
    widths = [0] * max(map(len, rows))
    for row in rows:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], len(cell))
    return ["".join(f"{cell:{width + _GAP}}" for cell, width in zip(row, widths, strict=False)).rstrip()
            for row in rows]  # fmt: skip


def _ruler(lines: list[str]) -> str:
    return "-" * max(map(len, lines))


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
