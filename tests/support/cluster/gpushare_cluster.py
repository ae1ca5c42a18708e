"""A real Kubernetes cluster with the manifests of examples/kubernetes/gpushare: `running_gpushare`.

The extender runs with the settings of its Deployment, but as a process of the node, because the tests
load no image of cdigen. `cdigen kubelet` uses the kubeconfig that the commands of share-gpu-memory.md create.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import re
import signal
import ssl
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import yaml
from support.cluster.api import ADDRESS, PORT, network_of
from support.cluster.node import NODE, Daemon, Node, running_node
from support.containers.busybox_image import IMAGE
from support.containers.containerd_host import RELEASES, eventually
from support.paths import REPOSITORY
from support.processes import captured, succeeded

from cdigen.gpushare.names import GPUS, Resources, ledger_name
from cdigen.gpushare.nodes import NodeGpu, node_annotation

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

FOLDER = REPOSITORY / "examples/kubernetes/gpushare"
RESOURCES = Resources()
LEDGERS = "cdigen"
OF_DAEMONSET = "cdigen-system"
# The token of the node's kubelet.
NODE_TOKEN = "of-the-node"
FENCED = re.compile(r"^ *```[a-z]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
ROLES = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

# Runs a program as another user. The user may read all files: the tests' Python may be in root's home.
MAY_READ = (f"--{which}=-all,+dac_read_search" for which in ("bounding-set", "inh-caps", "ambient-caps"))
USER = ("setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "--no-new-privs", *MAY_READ)
# Runs a program with a read-only root, as the Deployment's pod has. /run is writable, and has the files from
# `write_pod_files`. $1 is the node's folder, the other arguments are the program.
AS_POD = """
cp -r "$1/pod/." /run/
mkdir -p /run/cdigen-extender && chmod 777 /run/cdigen-extender
mount --bind / / && mount -o remount,bind,ro /
shift
exec "$@"
"""


@contextmanager
def running_gpushare(cache: Path) -> Iterator[Node]:
    """Run a cluster with RBAC, NodeRestriction, the objects of the manifests, and the extender."""
    with running_node(cache, RELEASES["forky"]) as node:
        with (node.folder / "tokens.csv").open("a") as tokens:
            tokens.write(f'{NODE_TOKEN},system:node:{NODE},node,"system:nodes"\n')
        modes = {"--authorization-mode": "Node,RBAC", "--enable-admission-plugins": "NodeRestriction"}
        restart(node, "api-server", **modes)
        node.answers(node.daemons["api-server"], "/readyz")
        # Otherwise nodes without a kubelet would become not ready.
        restart(
            node, "controllers", **{"--node-monitor-grace-period": "1h", "--node-startup-grace-period": "1h"}
        )
        run_commands_of_page(node, "apply -k examples", REPOSITORY)
        run_commands_of_page(node, "create secret", node.folder)
        run_commands_of_page(node, "node-token.yaml", REPOSITORY)
        add_account_of_daemonset(node)
        add_node(node)
        write_pod_files(node)
        start_extender(node)
        start_scheduler(node)
        yield node


def add_account_of_daemonset(node: Node) -> None:
    """Create the ServiceAccount of cdigen's DaemonSet, with the rights of the component `shared-memory`."""
    node.kubectl("create", "namespace", OF_DAEMONSET)
    folder = REPOSITORY / "packaging/kubernetes"
    node.kubectl("--namespace", OF_DAEMONSET, "apply", "--filename", f"{folder}/base/serviceaccount.yaml")
    node.kubectl("apply", "--filename", f"{folder}/components/shared-memory/rights.yaml")


def restart(node: Node, name: str, **flags: str) -> None:
    daemon = node.daemons[name]
    daemon.stop(signal.SIGKILL)  # after SIGTERM, the API server would wait for watches
    kept = [flag for flag in daemon.flags if flag.partition("=")[0] not in flags]
    daemon.flags = [*kept, *(f"{flag}={value}" for flag, value in flags.items())]
    daemon.start()


def add_node(node: Node) -> None:
    """Add the node `guide` (of gpushare's guide) without a kubelet; its two GPUs have 15 GiB and 8 GiB."""
    node.add_bare_node("guide", {"cpu": "64", "memory": "64Gi", "pods": "200"}, address="10.99.0.7")
    set_gpus(node, 15, 8)


def set_gpus(node: Node, *sizes: int) -> None:
    """Set the memory of each GPU of the node `guide` to SIZES, in units."""
    gpus = [NodeGpu(index=index, units=units, uuid=f"GPU-{index}") for index, units in enumerate(sizes)]
    node.api.patch("/api/v1/nodes/guide", {"metadata": {"annotations": {GPUS: node_annotation(gpus)}}})
    amounts = {RESOURCES.memory: str(sum(sizes)), RESOURCES.count: str(len(sizes))}
    node.api.patch("/api/v1/nodes/guide/status", {"status": {"capacity": amounts, "allocatable": amounts}})


def write_pod_files(node: Node) -> None:
    """Write the files that the kubelet would mount into the extender's pod; AS_POD copies them to /run."""
    account = node.folder / "pod/secrets/kubernetes.io/serviceaccount"
    account.mkdir(parents=True)
    (account / "token").write_text(token_of(node, "cdigen-extender"))
    (account / "ca.crt").write_bytes((node.folder / "api-server/apiserver.crt").read_bytes())
    (account / "namespace").write_text(LEDGERS)
    for key, content in secret_of(node).items():
        (node.folder / "pod" / key).write_bytes(content)


def token_of(node: Node, account: str, namespace: str = LEDGERS) -> str:
    def found() -> Any:
        rows = node.api.get(f"/api/v1/namespaces/{namespace}/secrets")["items"]
        for row in rows:
            owner = row["metadata"].get("annotations", {}).get("kubernetes.io/service-account.name")
            if owner == account and "token" in row.get("data", {}):
                return base64.b64decode(row["data"]["token"]).decode()
        return None

    return str(eventually(found, f"the token of {account}", details=str))


def secret_of(node: Node) -> dict[str, bytes]:
    """Return the Secret of extender and scheduler that the commands of share-gpu-memory.md create."""
    found = node.api.get(f"/api/v1/namespaces/{LEDGERS}/secrets/cdigen-extender")
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


def deployment() -> dict[str, Any]:
    documents = yaml.safe_load_all((FOLDER / "extender.yaml").read_text())
    found: dict[str, Any] = next(each for each in documents if each["kind"] == "Deployment")
    return found


def start_extender(node: Node) -> None:
    container = deployment()["spec"]["template"]["spec"]["containers"][0]
    arguments = [each.replace("/etc/cdigen-extender/", "/run/") for each in container["args"]]
    api = (f"KUBERNETES_SERVICE_HOST={ADDRESS}", f"KUBERNETES_SERVICE_PORT={PORT}")
    program = (*container["command"][1:], *arguments)
    flags = ("--mount", "bash", "-euc", AS_POD, "pod", str(node.folder), *USER, "env", *api)
    daemon = Daemon(
        enter=node.enter,
        program=Path("/usr/bin/unshare"),
        flags=[*flags, sys.executable, "-m", "cdigen", *program],
        log_file=node.folder / "extender.log",
    )
    node.daemons["extender"] = daemon
    begin_extender(node)


def begin_extender(node: Node) -> None:
    """Start the extender, and wait until the readiness probe of the Deployment succeeds."""

    def is_ready() -> bool | None:
        node.daemons["extender"].check()
        try:
            with network_of(node.holder):
                connection = http.client.HTTPSConnection("127.0.0.1", 12345, timeout=5, context=context)
                connection.connect()
            connection.request("GET", probe["path"])
            with closing(connection):
                return connection.getresponse().status == 200 or None
        except OSError:
            return None

    probe = deployment()["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]
    assert probe["scheme"] == "HTTPS"
    context = ssl.create_default_context(cafile=node.folder / "pod/tls.crt")
    node.daemons["extender"].start()
    eventually(is_ready, "the extender is ready", details=lambda: logs(node))


def start_scheduler(node: Node) -> None:
    node.daemons["scheduler"].stop()
    text = (FOLDER / "scheduler-v1beta1.yaml").read_text()
    config = node.folder / "scheduler.yaml"
    config.write_text(adapted_configuration(node, text))
    node.start("scheduler", "kube-scheduler", config=str(config))


def adapted_configuration(node: Node, text: str) -> str:
    """Return TEXT, a scheduler's configuration, with the files, the token and the port of this cluster."""
    token = secret_of(node)["token"].decode()
    for words, replacement in (
        ("/etc/kubernetes/scheduler.conf", f"{node.folder}/kubeconfig"),
        ("/etc/kubernetes/cdigen-extender.crt", f"{node.folder}/pod/tls.crt"),
        ("cdigen:TOKEN@", f"cdigen:{token}@"),
        (":32766/", ":12345/"),
    ):
        assert words in text or words.endswith(".conf")
        text = text.replace(words, replacement)
    return text


def create(node: Node, name: str, units: int, **spec: Any) -> None:
    limits = {"limits": {RESOURCES.memory: str(units)}}
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "resources": limits}
    document = {"containers": [container], "automountServiceAccountToken": False, **spec}
    metadata = {"name": name, "namespace": "default"}
    node.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": document})


def delete(node: Node, name: str) -> None:
    node.api.delete(f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")


def logs(node: Node, name: str = "extender") -> str:
    return f"{node.daemons[name].log}\n{node.daemons['scheduler'].log[-1500:]}"


def wait_for_log(node: Node, name: str, text: str) -> None:
    """Wait until the log of a program contains TEXT."""
    log = node.daemons[name].log_file
    eventually(lambda: text in log.read_text() or None, text, details=lambda: logs(node, name))


def wait_for_message(node: Node, name: str, text: str) -> str:
    """Wait until the message of a pod's event or status contains TEXT; return the message."""

    def found() -> str | None:
        rows = node.api.get("/api/v1/namespaces/default/events")["items"]
        texts = [row["message"] for row in rows if row["involvedObject"]["name"] == name]
        texts.append(str(node.pods("default")[name]["status"].get("message")))
        return next((each for each in texts if text in each), None)

    def details() -> str:
        programs = (
            f"== {each}\n{node.daemons[each].log}" for each in ("plugin", "kubelet") if each in node.daemons
        )
        return "\n".join((logs(node), json.dumps(node.pods("default")[name]["status"]), *programs))

    return str(eventually(found, f"message of {name}: {text}", details=details))


@contextmanager
def without_verbs(node: Node, role: str, resource: str, *verbs: str) -> Iterator[None]:
    """Remove VERBS on RESOURCE from ROLE for the body, which starts after the API server uses the change."""
    before = node.api.get(role)
    rules = json.loads(json.dumps(before["rules"]))
    found = [rule for rule in rules if resource in rule["resources"] and set(verbs) <= set(rule["verbs"])]
    assert len(found) == 1, (role, resource, verbs)
    others = [each for each in found[0]["resources"] if each != resource]
    rest = [verb for verb in found[0]["verbs"] if verb not in verbs]
    rules.remove(found[0])
    if others:
        rules.append({**found[0], "resources": others})
    if rest:
        rules.append({**found[0], "resources": [resource], "verbs": rest})
    rights = list(itertools.product(subjects_of(node, role), verbs))
    node.api.patch(role, {"rules": rules})
    try:
        for subject, verb in rights:
            wait_for_access(node, role, subject, resource, verb, allowed=False)
        yield
    finally:
        node.api.patch(role, {"rules": before["rules"]})
    for subject, verb in rights:
        wait_for_access(node, role, subject, resource, verb, allowed=True)


def subjects_of(node: Node, role: str) -> list[dict[str, str]]:
    """Return the subjects of the RoleBindings of ROLE."""
    path, _, name = role.rpartition("/")
    bindings = node.api.get(path.removesuffix("roles") + "rolebindings")["items"]
    return [each for row in bindings if row["roleRef"]["name"] == name for each in row["subjects"]]


def wait_for_access(
    node: Node, role: str, subject: dict[str, str], resource: str, verb: str, *, allowed: bool
) -> None:
    """Wait until the API server uses a changed ROLE for SUBJECT: it reads roles by a watch."""
    kind, _, part = resource.partition("/")
    namespace = role.partition("/namespaces/")[2].partition("/")[0] or "default"
    attributes = {"namespace": namespace, "verb": verb, "resource": kind, "subresource": part}
    name = subject["name"]
    accounts: dict[str, dict[str, object]] = {
        "ServiceAccount": {"user": f"system:serviceaccount:{subject.get('namespace')}:{name}"},
        "User": {"user": name},
        "Group": {"user": "anyone", "groups": [name]},
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"resourceAttributes": attributes, **accounts[subject["kind"]]},
    }

    def is_used() -> bool | None:
        found = node.api.call("POST", REVIEWS, review)["status"]
        return found["allowed"] == allowed or None

    eventually(is_used, f"{subject}: {verb} {resource}: {allowed}")


def remove_ledger(node: Node, name: str) -> None:
    node.api.delete(f"/api/v1/namespaces/{LEDGERS}/configmaps/{ledger_name(name)}")


def inspect(node: Node, config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the result of `kubectl inspect gpushare` as an ordinary user, with the kubeconfig CONFIG."""
    programs = node.folder / "programs"
    if not programs.exists():
        programs.mkdir()
        starter = (REPOSITORY / "etc/kubectl-inspect-gpushare.starter").read_text()
        plugin = programs / "kubectl-inspect-gpushare"
        plugin.write_text(starter.replace("@python@", sys.executable).replace("@tree@", str(REPOSITORY)))
        plugin.chmod(0o755)
    environment = (f"PATH={programs}:/usr/bin:/bin", f"KUBECONFIG={config}", "HOME=/nowhere")
    kubectl = node.tree / "bin/kubectl"
    command: tuple[str | Path, ...] = (kubectl, "inspect", "gpushare", *arguments)
    return captured(node.enter(*USER, "env", *environment, *command))


def user_of(node: Node, name: str) -> Path:
    """Create the service account NAME in the namespace `default`; return its kubeconfig, readable by all."""
    metadata = {"name": name, "namespace": "default"}
    node.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    document = json.loads((node.folder / "kubeconfig").read_text())
    document["users"] = [{"name": "admin", "user": {"token": token_of(node, name, "default")}}]
    node.folder.chmod(0o711)
    config = node.folder / f"{name}.conf"
    config.write_text(json.dumps(document))
    config.chmod(0o644)
    return config


def kubeconfig_of_the_page(node: Node, kubectl: Path) -> Path:
    """Create kubelet.conf by the commands of share-gpu-memory.md with KUBECTL (1.24 or later); return it."""
    work = node.folder / "work"
    (work / "bin").mkdir(parents=True)
    (work / "bin/kubectl").symlink_to(kubectl)
    run_commands_of_page(node, "set-cluster", work, programs=f"{work}/bin")
    made = work / "kubelet.conf"
    assert made.stat().st_mode & 0o077 == 0
    return made


def kubeconfig_of_the_kubelet(node: Node) -> Path:
    """Write a kubeconfig with the identity of the node's kubelet; return the file."""
    document = json.loads((node.folder / "kubeconfig").read_text())
    document["users"] = [{"name": "admin", "user": {"token": NODE_TOKEN}}]
    config = node.folder / "kubelet.conf"
    config.write_text(json.dumps(document))
    return config


def run_commands_of_page(node: Node, words: str, folder: Path, *, programs: str = "/nowhere") -> None:
    """Run share-gpu-memory.md's only code block with WORDS, in FOLDER and as the cluster's administrator."""
    page = (REPOSITORY / "docs/how-to/kubernetes/share-gpu-memory.md").read_text()
    (commands,) = [dedent(block) for block in FENCED.findall(page) if words in block]
    admin = json.loads((node.folder / "kubeconfig").read_text())
    authority = f"{node.folder}/api-server/apiserver.crt"
    server = {"server": f"https://{ADDRESS}:{PORT}", "certificate-authority": authority}
    admin["clusters"] = [{"name": "node", "cluster": server}]
    config = node.folder / "admin.conf"
    config.write_text(json.dumps(admin))
    environment = (f"PATH={programs}:{node.tree}/bin:/usr/bin:/bin", f"KUBECONFIG={config}")
    command = node.enter("env", *environment, "bash", "-euc", f"cd {folder}\n{commands}")
    succeeded(command)
