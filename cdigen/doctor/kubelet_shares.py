"""The check of shares by memory: whether pods can be told apart, and the node says what is offered.

Where the host is this machine, the API server is asked as the plugin asks it, with its kubeconfig.
"""

from __future__ import annotations

import os
import posixpath
import socket
import stat
from urllib.parse import quote

from cdigen.doctor.authority import ways
from cdigen.doctor.commands import file_command, give_to_root
from cdigen.doctor.kubelet import PLUGIN, TOPIC, for_nodes, see
from cdigen.gpushare import names
from cdigen.gpushare.nodes import read_annotation
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.kubeapi.calls import Call
from cdigen.kubeapi.client import Client
from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.model.errors import ConfigError
from cdigen.runtimes.daemon_service import KUBELET_UNIT
from cdigen.runtimes.spec_directories import is_link
from cdigen.runtimes.units import command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.config import SharedMemory
    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult, Remedy
    from cdigen.kubeapi.credentials import Server

SHARES, NODE, SECRET = "kubelet-shares", "kubelet-shares-node", "kubelet-shares-secret"
_QUESTION = 21
_TIMEOUT_S = 3.0
# What the plugin does: (verb, resource); ConfigMaps are of the ledgers' namespace.
RIGHTS = (
    ("list", "pods"),
    ("watch", "pods"),
    ("patch", "pods/status"),
    ("get", "configmaps"),
    ("create", "configmaps"),
    ("update", "configmaps"),
    ("get", "nodes"),
    ("patch", "nodes/status"),
)
# Without it, a promise to a pod that is gone counts until the extender removes it.
OPTIONAL_RIGHTS = (("get", "pods"),)
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def _shares(context: Context) -> Iterator[CheckResult]:
    """Report what keeps shares by memory from being given out."""
    settings = context.request.configuration.kubelet.shared_memory
    if settings.unit == "none" or context.node.kubelet is None:
        return
    status = (context.node.status or {}).get("shares")
    said = status if isinstance(status, dict) else {}
    given = command(context.host, KUBELET_UNIT)
    file = (*given.values("--kubeconfig")[-1:], "")[0]
    if not file and not said:
        text = (
            f"{settings.resource} is to be offered, and cdigen kubelet has no --kubeconfig to tell which "
            "pods ask for it: nothing is offered"
        )
        yield TOPIC.error(SHARES, see(text, _QUESTION))
        return
    if not file:
        yield from _told(said)
        return
    try:
        server = from_kubeconfig(context.outer(file))
    except ConfigError as error:
        if context.is_live and os.geteuid() and os.path.exists(file) and not os.access(file, os.R_OK):
            yield TOPIC.unchecked(SHARES, f"only root may read {shown(file)}")
            return
        yield TOPIC.error(SHARES, see(shown(error.message), _QUESTION))
        return
    yield from _secrets(context, server)
    if not context.is_live:
        yield TOPIC.unchecked(SHARES, f"the host is a folder; {shown(file)} can be read")
        return
    default = (*given.values("--node-name")[-1:], socket.gethostname().casefold())[0]
    node = str(said.get("node") or default)
    problem, offered = probe(server, node, settings)
    if problem:
        yield TOPIC.error(SHARES, see(shown(problem), _QUESTION))
        return
    yield from _told(said)
    yield from _node(context, node, settings, offered)


def _secrets(context: Context, server: Server) -> Iterator[CheckResult]:
    """Report whether others than root may read or change the files with the plugin's credentials."""
    failed = False
    for file in server.secret_files:
        path = file.removeprefix(context.host.outer)
        if problem := untrusted(path, base=context.host.outer) or _reader(context, path):
            failed = True
            text = f"{shown(path)} has the credentials of cdigen kubelet, and {problem}"
            yield TOPIC.warning(SECRET, text, _close(context, path))
    if not failed:
        yield TOPIC.good(SECRET, "only root may read and change the credentials of cdigen kubelet")


def _reader(context: Context, path: str) -> str:
    """Return how another user than root may read the file PATH; empty if none may."""
    real = context.host.resolve(path)
    *folders, status = (context.host.stat(way) for way in ("/", *ways(real)))
    if status.st_mode & stat.S_IROTH and all(folder.st_mode & stat.S_IXOTH for folder in folders):
        return "every user may read it"
    if status.st_mode & stat.S_IRGRP and status.st_gid:
        return f"the group {status.st_gid} may read it"
    return ""


def _close(context: Context, path: str) -> tuple[Remedy, ...]:
    """Return the commands that make PATH root's alone, if only root may change the folders above it."""
    folder = posixpath.dirname(path)
    if (
        untrusted(folder, base=context.host.outer)
        or is_link(context.host, path)
        or not context.host.exists(path)
    ):
        return ()
    file = context.outer(path)
    return (*give_to_root(file), file_command("let root alone read it", "chmod", "go-rwx", file))


def _told(said: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Report what the plugin SAID of itself."""
    problems = [str(said[key]) for key in ("problem", "node_problem", "promise_problem") if said.get(key)]
    for text in problems:
        yield TOPIC.error(SHARES, see(f"cdigen kubelet says: {shown(text)}", _QUESTION), because=(PLUGIN,))
    if said and not problems:
        yield TOPIC.good(SHARES, f"pods of node {shown(str(said.get('node')))} that ask for memory are known")


def _node(context: Context, node: str, settings: SharedMemory, offered: object) -> Iterator[CheckResult]:
    """Report whether NODE's annotation OFFERED is what the kubelet is told."""
    rows = [row for row in context.node.resources if row["resource"] == settings.resource]
    if not rows:
        return
    count = rows[0].get("count")
    try:
        units = 0 if offered is None else sum(gpu.units for gpu in read_annotation(offered))
    except ValueError as error:
        text = f"node {node}: its annotation {names.GPUS} is torn: {error}; cdigen kubelet writes it anew"
        yield TOPIC.warning(NODE, see(shown(text), _QUESTION), because=(SHARES,))
        return
    if units != count:
        text = (
            f"node {node}: its annotation {names.GPUS} has {units} units, and the kubelet has {count}; "
            "the extender places pods by the annotation, which cdigen kubelet writes within a minute"
        )
        yield TOPIC.warning(NODE, see(shown(text), _QUESTION), because=(SHARES,))
    else:
        yield TOPIC.good(NODE, f"the annotation of node {shown(node)} has what is offered, {units} units")


def probe(server: Server, node: str, settings: SharedMemory) -> tuple[str, object]:
    """Return why SERVER does not let the plugin of NODE do its work, "" if it does, and NODE's annotation."""
    client = Client(server, timeout_s=_TIMEOUT_S)
    try:
        reply = client.send(Call(method="GET", path=f"/api/v1/nodes/{quote(node, safe='')}"))
        at = f"the API server at {server.host}:{server.port}"
        if reply.status == 404:
            return f"{at} knows no node {node}: give cdigen kubelet its name by --node-name", None
        if reply.status == 401:
            return f"{at} does not know who the kubeconfig says that we are: {reply.text}", None
        if not reply.is_done and reply.status != 403:
            return f"{at} cannot be used: {reply.text}", None
        missing = [right for right in RIGHTS if not _may(client, *right, node, settings.namespace)]
        if missing or reply.status == 403:
            rights = ", ".join(f"{verb} {resource}" for verb, resource in missing or [("get", "nodes")])
            return f"{at} forbids what cdigen kubelet needs: {rights} (examples/kubernetes/gpushare)", None
        metadata = reply.body.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        return "", annotations.get(names.GPUS) if isinstance(annotations, dict) else None
    finally:
        client.close()


def _may(client: Client, verb: str, resource: str, node: str, namespace: str) -> bool:
    """Return whether the account may VERB a RESOURCE of NODE; also if the server does not say."""
    kind, _, part = resource.partition("/")
    attributes: dict[str, object] = {"verb": verb, "resource": kind, "version": "v1", "subresource": part}
    if kind == "configmaps":
        attributes["namespace"] = namespace
    if kind == "nodes":
        attributes["name"] = node
    if kind == "pods" and not part:
        # From 1.32 on a node may list only its own pods (AuthorizeNodeWithSelectors). 1.30 ignores it.
        own = {"key": "spec.nodeName", "operator": "In", "values": [node]}
        attributes["fieldSelector"] = {"requirements": [own]}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
    reply = client.send(Call(method="POST", path=_REVIEW, body=body))
    status = reply.body.get("status")
    return not (reply.is_done and isinstance(status, dict) and status.get("allowed") is False)


CHECKS = (for_nodes(_shares),)
