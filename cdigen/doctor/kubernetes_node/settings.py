"""The command line and the configuration files of a host's kubelet.

Sources: kubernetes cmd/kubelet/app/options (flags have precedence over files) and kubelet/config/v1beta1; k3s
pkg/daemons/agent and pkg/cli/cmds; microk8s default-args/kubelet; k0s pkg/component/worker.
"""

from __future__ import annotations

import posixpath

from cdigen.config.tree import NoTreeError, compose, pairs_of, text_of
from cdigen.config.types import node_type
from cdigen.doctor.processes import roots_processes
from cdigen.host.root import reason, shown
from cdigen.runtimes.units import Command, command, has_unit
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import yaml

    from cdigen.host.root import Root

# The kubelet's files from kubeadm and from packages have 1 to 4 kB.
_MAX_FILE = 1 << 18
_FOLDER = "/var/lib/kubelet"
_SNAP = {
    "$SNAP_COMMON": "/var/snap/microk8s/common",
    "$SNAP_DATA": "/var/snap/microk8s/current",
    "$SNAP": "/snap/microk8s/current",
}
_RANCHERS_ENDPOINT = "unix:///run/k3s/containerd/containerd.sock"
_CRI_DOCKERD = "unix:///run/k3s/cri-dockerd/cri-dockerd.sock"
_TRUE = {"1", "t", "true"}


@frozen
class Distribution:
    """A program that is or contains a kubelet, with the program's default settings.

    ``config`` is the file with the settings of the program; some of them are for the kubelet. ``drop_ins`` is
    the folder with the kubelet's own configuration files. ``has_version_option`` is true if the program has
    an option --version that only prints the version.
    """

    name: str
    root_dir: str = _FOLDER
    endpoint: str = ""
    units: tuple[str, ...] = ()
    config: str = ""
    drop_ins: str = ""
    has_version_option: bool = True


KUBERNETES = Distribution(name="kubelet", units=("kubelet.service",))
# hyperkube (until Kubernetes 1.18) has an option --version only after the name of its part.
_HYPERKUBE = replace(KUBERNETES, has_version_option=False)
_K3S = Distribution(
    name="k3s",
    endpoint=_RANCHERS_ENDPOINT,
    units=("k3s.service", "k3s-agent.service"),
    config="/etc/rancher/k3s/config.yaml",
    drop_ins="/var/lib/rancher/k3s/agent/etc/kubelet.conf.d",
)
# The kubelet of RKE2 is a separate process with all settings in its arguments. These values apply only if no
# kubelet is running.
_RKE2 = Distribution(
    name="RKE2",
    endpoint=_RANCHERS_ENDPOINT,
    units=("rke2-server.service", "rke2-agent.service"),
    config="/etc/rancher/rke2/config.yaml",
    drop_ins="/var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
)
_MICROK8S = Distribution(
    name="microk8s",
    root_dir="/var/snap/microk8s/common/var/lib/kubelet",
    endpoint="unix:///var/snap/microk8s/common/run/containerd.sock",
    units=("snap.microk8s.daemon-kubelite.service",),
    has_version_option=False,
)
# These values apply only if no kubelet is running, as for RKE2.
_K0S = Distribution(
    name="k0s",
    root_dir="/var/lib/k0s/kubelet",
    endpoint="unix:///run/k0s/containerd.sock",
    units=("k0sworker.service", "k0scontroller.service"),
)
# The default folders of kubelets.
KNOWN_FOLDERS = frozenset(one.root_dir for one in (KUBERNETES, _K0S, _MICROK8S))
# Name of the process (proc(5), comm) -> distribution.
_PROCESSES = {
    "kubelet": KUBERNETES,
    "hyperkube": _HYPERKUBE,
    "k3s-server": _K3S,
    "k3s-agent": _K3S,
    "kubelite": _MICROK8S,
}


@frozen
class Kubelet:
    """A kubelet: its folder, the endpoint of its runtime, and its settings for devices.

    ``began_s`` is None if the kubelet is not running on this machine. ``program`` is the binary of the
    kubelet, and ``unit`` is its service. Both are empty if unknown. ``endpoint`` is empty if it is not
    configured. ``problems`` are the reasons why configuration files were not read.
    """

    distribution: Distribution
    root_dir: str
    endpoint: str = ""
    program: str = ""
    unit: str = ""
    began_s: float | None = None
    gates: tuple[tuple[str, bool], ...] = ()
    topology_policy: str = "none"
    problems: tuple[str, ...] = ()

    @property
    def brings_runtime(self) -> bool:
        """Whether the runtime is a part of the distribution, not a separate installation."""
        return bool(self.endpoint) and self.endpoint in {self.distribution.endpoint, _CRI_DOCKERD}

    def gate(self, name: str) -> bool | None:
        """Return whether the feature gate NAME is on; None if the default of the release applies."""
        return dict(self.gates).get(name)


def running_kubelet(host: Root) -> Kubelet | None:
    """Return the kubelet that runs on this machine; None if no kubelet runs."""
    for process in roots_processes(_PROCESSES):
        if process.name == "hyperkube" and "kubelet" not in process.line.words:
            continue  # another part of Kubernetes
        found = _kubelet(host, _PROCESSES[process.name], process.line)
        return replace(found, program=process.program, unit=process.unit, began_s=process.began_s)
    return None


def installed_kubelet(host: Root) -> Kubelet | None:
    """Return the kubelet that a unit of HOST starts; None if no unit starts a kubelet."""
    for distribution in (KUBERNETES, _K3S, _RKE2, _K0S, _MICROK8S):
        for unit in distribution.units:
            if has_unit(host, unit):
                has_arguments = distribution is KUBERNETES or distribution.config
                line = command(host, unit) if has_arguments else Command()
                return replace(_kubelet(host, distribution, line), unit=unit)
    return None


def _kubelet(host: Root, distribution: Distribution, line: Command) -> Kubelet:
    problems: list[str] = []
    line = _with_arguments(host, distribution, line, problems)
    settings: dict[str, Any] = {}
    for path in _files(host, distribution, line):
        for key, value in _document(host, path, problems).items():
            # Mappings, such as the feature gates, are merged. Other values are replaced.
            former = settings.get(key)
            both = isinstance(former, dict) and isinstance(value, dict)
            settings[key] = former | value if both else value
    texts = {
        flag: (*line.values(f"--{flag}")[-1:], _text(settings.get(key)))[0] for flag, key in _FLAGS.items()
    }
    default = _CRI_DOCKERD if line.flag("--docker") and distribution.config else distribution.endpoint
    endpoint = texts["container-runtime-endpoint"] or default
    return Kubelet(
        distribution=distribution,
        root_dir=_absolute((*line.values("--root-dir")[-1:], distribution.root_dir)[0]),
        endpoint=f"unix://{endpoint}" if endpoint.startswith("/") else endpoint,
        gates=_gates(settings.get("featureGates"), line.values("--feature-gates")),
        topology_policy=texts["topology-manager-policy"] or "none",
        problems=tuple(problems),
    )


# Flag -> key of the configuration file for the same setting.
_FLAGS = {
    "container-runtime-endpoint": "containerRuntimeEndpoint",
    "topology-manager-policy": "topologyManagerPolicy",
}


# A distribution's flags that select the runtime.
_OWN = ("docker", "container-runtime-endpoint")


def _absolute(path: str) -> str:
    return posixpath.normpath(path) if path.startswith("/") else _FOLDER


def _with_arguments(host: Root, distribution: Distribution, line: Command, problems: list[str]) -> Command:
    """Return LINE with the kubelet's arguments that the distribution stores in its own files."""
    words: list[str] = []
    if distribution.config:
        # Each flag of the distribution can be a key of the file. Flags have precedence over the file.
        document = _document(host, distribution.config, problems, is_needed=False)
        own = [f"--{key}={document[key]}" for key in _OWN if isinstance(document.get(key), str)]
        line = replace(line, words=(*own, *line.words))
        listed = document.get("kubelet-arg")
        listed = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else []
        words = [f"--{argument}" for argument in (*listed, *line.values("--kubelet-arg"))]
    if distribution is _MICROK8S:
        for path in line.values("--kubelet-args-file")[-1:]:
            words = _lines(host, path, problems)
    return replace(line, words=(*line.words, *words))


def _lines(host: Root, path: str, problems: list[str]) -> list[str]:
    text = _read(host, path, problems)
    for name, value in _SNAP.items():
        text = text.replace(f"${{{name[1:]}}}", value).replace(name, value)
    return [word for row in text.splitlines() if not row.lstrip().startswith("#") for word in row.split()]


def _files(host: Root, distribution: Distribution, line: Command) -> Iterator[str]:
    """Yield the files of the configuration in rising precedence."""
    # In the arguments of a distribution, --config is the distribution's own file.
    yield from line.values("--config")[-1:] if not distribution.config else ()
    default = (distribution.drop_ins,) if distribution.drop_ins else ()
    for folder in line.values("--config-dir")[-1:] or default:
        names = [name for name in host.names(folder) if name.endswith(".conf")]
        yield from (f"{folder}/{name}" for name in names[:100])


def _read(host: Root, path: str, problems: list[str], *, is_needed: bool = True) -> str:
    try:
        return host.read(path, limit=_MAX_FILE).decode()
    except FileNotFoundError:
        if is_needed:
            problems.append(f"{shown(path)} does not exist")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{shown(path)}: {reason(error)}")
    return ""


def _document(host: Root, path: str, problems: list[str], *, is_needed: bool = True) -> dict[str, Any]:
    """Return the keys of a YAML file.

    A value is a text, a list of texts or a mapping of texts. Deeper values are omitted or empty.
    """
    text = _read(host, path, problems, is_needed=is_needed)
    try:
        root = compose(text.encode(), path)
    except NoTreeError as error:
        problems.append(f"{shown(path)}: {shown(error.finding.message)}")
        return {}
    pairs = pairs_of(root) if root is not None and node_type(root) == "mapping" else ()
    return {text_of(key): _plain(value) for key, value in pairs}


def _plain(node: yaml.Node) -> str | list[str] | dict[str, str]:
    if node_type(node) == "mapping":
        return {text_of(key): text_of(value) for key, value in pairs_of(node)}
    return list(filter(None, map(text_of, node.value))) if node_type(node) == "list" else text_of(node)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _gates(of_file: object, flags: tuple[str, ...]) -> tuple[tuple[str, bool], ...]:
    found = (
        {name: text.lower() in _TRUE for name, text in of_file.items()} if isinstance(of_file, dict) else {}
    )
    for word in ",".join(flags).split(","):
        name, equals, text = word.strip().partition("=")
        if equals:
            found[name.strip()] = text.strip().lower() in _TRUE
    return tuple(sorted(found.items()))
