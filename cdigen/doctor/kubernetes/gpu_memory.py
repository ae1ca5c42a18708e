"""The check of GPU memory sharing: whether requests can be assigned to pods, and the Node's annotation.

If the host is this machine, the check sends requests to the API server with the plugin's kubeconfig.
"""

from __future__ import annotations

import os
import posixpath
import socket
import stat
from urllib.parse import quote

from cdigen import page_url
from cdigen.doctor.commands import file_command, give_to_root
from cdigen.doctor.kubernetes.kubelet import PLUGIN, TOPIC, for_nodes
from cdigen.doctor.remedy_safety import ways
from cdigen.gpushare import names
from cdigen.gpushare.nodes import read_annotation
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.kubeapi.calls import Call
from cdigen.kubeapi.client import Client
from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.model.errors import ConfigError
from cdigen.runtimes.daemon_service import KUBELET_UNIT
from cdigen.runtimes.units import command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.config import SharedMemory
    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult, Remedy
    from cdigen.kubeapi.credentials import ApiServerConfig

GPU_MEMORY, NODE, SECRET = "kubelet-gpu-memory", "kubelet-gpu-memory-node", "kubelet-gpu-memory-secret"
_TIMEOUT_S = 3.0
# The rights that the plugin needs, as (verb, resource). ConfigMaps are in the namespace of the ledgers.
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
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def _gpu_memory(context: Context) -> Iterator[CheckResult]:
    """Report problems that prevent the allocation of memory units."""
    settings = context.request.configuration.kubelet.shared_memory
    if settings.unit == "none" or context.node.kubelet is None:
        return
    status = (context.node.status or {}).get("shared_memory")
    reported = status if isinstance(status, dict) else {}
    line = command(context.host, KUBELET_UNIT)
    file = (*line.values("--kubeconfig")[-1:], "")[0]
    if not file and not reported:
        text = (
            f"{settings.resource} is not advertised: cdigen kubelet has no --kubeconfig, so it "
            "cannot assign requests to pods"
        )
        yield TOPIC.error(GPU_MEMORY, _see(text))
        return
    if not file:
        yield from _reported(reported)
        return
    try:
        server = from_kubeconfig(context.outer(file))
    except ConfigError as error:
        if context.is_live and os.geteuid() and os.path.exists(file) and not os.access(file, os.R_OK):
            yield TOPIC.skipped(GPU_MEMORY, f"only root may read {shown(file)}")
            return
        yield TOPIC.error(GPU_MEMORY, _see(shown(error.message)))
        return
    yield from _secrets(context, server)
    if not context.is_live:
        yield TOPIC.skipped(GPU_MEMORY, f"needs a running system; {shown(file)} can be read")
        return
    default = (*line.values("--node-name")[-1:], socket.gethostname().casefold())[0]
    node = str(reported.get("node") or default)
    problem, annotation = probe(server, node, settings)
    if problem:
        yield TOPIC.error(GPU_MEMORY, _see(shown(problem)))
        return
    yield from _reported(reported)
    yield from _node(context, node, settings, annotation)


def _see(text: str) -> str:
    """Return TEXT with a reference to the documentation of GPU memory sharing."""
    return f"{text} ({page_url('how-to/kubernetes/share-gpu-memory')})"


def _secrets(context: Context, server: ApiServerConfig) -> Iterator[CheckResult]:
    """Report whether users other than root may read or change the files with the plugin's credentials."""
    failed = False
    for file in server.secret_files:
        path = file.removeprefix(context.host.outer)
        if problem := untrusted(path, base=context.host.outer) or _reader(context, path):
            failed = True
            text = f"{shown(path)} has the credentials of cdigen kubelet, and {problem}"
            yield TOPIC.warning(SECRET, text, _restrict_commands(context, path))
    if not failed:
        yield TOPIC.passed(SECRET, "only root may read and change the credentials of cdigen kubelet")


def _reader(context: Context, path: str) -> str:
    """Return a message that names the users who may read PATH; empty if only root may read PATH."""
    real = context.host.resolve(path)
    *folders, status = (context.host.stat(each) for each in ("/", *ways(real)))
    if status.st_mode & stat.S_IROTH and all(folder.st_mode & stat.S_IXOTH for folder in folders):
        return "every user may read it"
    if status.st_mode & stat.S_IRGRP and status.st_gid:
        return f"the group {status.st_gid} may read it"
    return ""


def _restrict_commands(context: Context, path: str) -> tuple[Remedy, ...]:
    """Return the commands that restrict PATH to root; empty if other users may change the folders above."""
    folder = posixpath.dirname(path)
    if (
        untrusted(folder, base=context.host.outer)
        or context.host.is_link(path)
        or not context.host.exists(path)
    ):
        return ()
    file = context.outer(path)
    return (*give_to_root(file), file_command("let root alone read it", "chmod", "go-rwx", file))


def _reported(status: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Report the problems in STATUS, the plugin's own status of GPU memory."""
    keys = ("problem", "node_problem", "reservation_problem")
    problems = [str(status[key]) for key in keys if status.get(key)]
    for text in problems:
        yield TOPIC.error(GPU_MEMORY, _see(f"cdigen kubelet reports: {shown(text)}"), because=(PLUGIN,))
    if status and not problems:
        text = f"requests for GPU memory on node {shown(str(status.get('node')))} can be assigned to pods"
        yield TOPIC.passed(GPU_MEMORY, text)


def _node(context: Context, node: str, settings: SharedMemory, annotation: object) -> Iterator[CheckResult]:
    """Report whether ANNOTATION of NODE and the kubelet have the same number of units."""
    rows = [row for row in context.node.resources if row["resource"] == settings.resource]
    if not rows:
        return
    count = rows[0].get("count")
    try:
        units = 0 if annotation is None else sum(gpu.units for gpu in read_annotation(annotation))
    except ValueError as error:
        text = f"node {node}: annotation {names.GPUS} is invalid: {error}; cdigen kubelet will replace it"
        yield TOPIC.warning(NODE, _see(shown(text)), because=(GPU_MEMORY,))
        return
    if units != count:
        text = (
            f"node {node}: annotation {names.GPUS} has {units} units, and the kubelet has {count}; "
            "the extender places pods by the annotation, which cdigen kubelet writes within a minute"
        )
        yield TOPIC.warning(NODE, _see(shown(text)), because=(GPU_MEMORY,))
    else:
        yield TOPIC.passed(NODE, f"the annotation of node {shown(node)} has the advertised {units} units")


def probe(server: ApiServerConfig, node: str, settings: SharedMemory) -> tuple[str, object]:
    """Return the reason why the plugin of NODE cannot use SERVER, and the annotation of NODE.

    The reason is empty if the plugin can use SERVER.
    """
    client = Client(server, timeout_s=_TIMEOUT_S)
    try:
        reply = client.send(Call(method="GET", path=f"/api/v1/nodes/{quote(node, safe='')}"))
        at = f"the API server at {server.host}:{server.port}"
        if reply.status == 404:
            return f"{at} has no node {node}: set its name with --node-name of cdigen kubelet", None
        if reply.status == 401:
            return f"{at} rejects the credentials of the kubeconfig: {reply.text}", None
        if not reply.is_done and reply.status != 403:
            return f"{at} cannot be used: {reply.text}", None
        missing = [right for right in RIGHTS if not _may(client, *right, node, settings.namespace)]
        if missing or reply.status == 403:
            rights = ", ".join(f"{verb} {resource}" for verb, resource in missing or [("get", "nodes")])
            return f"{at} denies rights that cdigen kubelet needs: {rights}", None
        metadata = reply.body.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        return "", annotations.get(names.GPUS) if isinstance(annotations, dict) else None
    finally:
        client.close()


def _may(client: Client, verb: str, resource: str, node: str, namespace: str) -> bool:
    """Return whether the account has the right VERB RESOURCE; true if the server returns no decision."""
    kind, _, part = resource.partition("/")
    attributes: dict[str, object] = {"verb": verb, "resource": kind, "version": "v1", "subresource": part}
    if kind == "configmaps":
        attributes["namespace"] = namespace
    if kind == "nodes":
        attributes["name"] = node
    if kind == "pods" and not part:
        # Since Kubernetes 1.32, the account of a node may list only the node's own pods
        # (AuthorizeNodeWithSelectors). Kubernetes 1.30 ignores the selector.
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


CHECKS = (for_nodes(_gpu_memory),)
