"""Checks of what lies between a kubelet and a container: the runtime, its handlers, the kubelet's release.

The runtime itself is examined by the checks of its own family: ``--for kubelet`` names the one that serves
the kubelet's endpoint, with the configuration that its process reads.
"""

from __future__ import annotations

import os

from cdigen.doctor.kubelet import KUBELET, TOPIC, for_nodes, see
from cdigen.doctor.others import VOID, bare_specs, is_nvidias
from cdigen.doctor.result import Remedy, listed
from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.kubelet_settings import Kubelet
    from cdigen.doctor.result import CheckResult

RUNTIME, NAMES, CLASS = "kubelet-runtime", "kubelet-names", "kubelet-runtime-class"
INOTIFY, TOPOLOGY = "kubelet-inotify", "kubelet-topology"
# KEP 4009: alpha, off, in 1.28; on from 1.29.
_CDI_FIELD, _CDI_ON = (1, 28, 0), (1, 29, 0)
_FIELD, _ANNOTATION = "cdi_devices", "annotation"
_CDI_GATE, _PLUGIN_GATE = "DevicePluginCDIDevices", "DevicePlugins"
_INSTANCES = "/proc/sys/fs/inotify/max_user_instances"
# Of the limit: what is left is for the next few pods.
_FULL = 0.9
_STRICT = ("restricted", "single-numa-node")


def _runtime(context: Context) -> Iterator[CheckResult]:
    """Report which runtime the kubelet uses, and whether it is one that injects CDI devices."""
    node = context.node
    if node.kubelet is None:
        return
    name, where = node.runtime, shown(node.endpoint)
    if not name:
        text = (
            f"the kubelet's runtime listens at {where}: cdigen does not know which it is, so none was checked"
        )
        yield TOPIC.unchecked(RUNTIME, text)
    elif name == "docker":
        text = (
            f"the kubelet uses Docker, by {where}: dockershim and cri-dockerd drop the CDI names that a "
            "device plugin "
            "answers (cri-dockerd passes them on since Mirantis/cri-dockerd#522, of November 2025, from "
            "Kubernetes "
            "1.28 on), and pods start without devices. Let the kubelet use containerd or CRI-O"
        )
        yield TOPIC.warning(RUNTIME, see(text, 14))
    elif not node.is_live:
        yield TOPIC.unchecked(RUNTIME, f"the host is a folder; the kubelet would use {name}, at {where}")
    elif node.server is None and os.geteuid() != 0:
        # Its address may be in a file, and its process be hidden.
        yield TOPIC.unchecked(RUNTIME, f"the kubelet uses {name}; only root may see who listens at {where}")
    elif node.server is None:
        text = f"the kubelet's runtime, {name}, does not listen at {where}: no pod starts"
        yield TOPIC.error(RUNTIME, see(text, 14), because=(KUBELET, f"{name}-running", f"{name}-config"))
    else:
        examined = next((one for one in context.runtimes if one.name == name), None)
        files = examined.settings.files if examined else ()
        text = f"the kubelet uses {examined.shown if examined else name}, at {where}"
        if files:
            text += f", which reads {listed(map(shown, files))}"
        if examined and examined.is_foreign:
            owner = shown(node.server.unit) or "another program"
            text += f"; it is {owner}'s, and 'cdigen configure' does not edit it"
        yield TOPIC.good(RUNTIME, text)


def _names(context: Context) -> Iterator[CheckResult]:
    """Report whether the kubelet takes CDI names in a way that we tell them."""
    node, kubelet = context.node, context.node.kubelet
    if kubelet is None:
        return
    if kubelet.gate(_PLUGIN_GATE) is False:
        text = f"the kubelet's feature gate {_PLUGIN_GATE} is off: it knows no device plugins"
        yield TOPIC.error(NAMES, see(text, 15))
        return
    answer = context.configuration.kubelet.answer
    release = ".".join(map(str, node.release or ()))
    if _ANNOTATION in answer:
        yield TOPIC.good(
            NAMES, f"the kubelet{f', {release},' if release else ''} is told CDI names by annotation"
        )
    elif _FIELD not in answer:
        yield TOPIC.good(NAMES, "kubelet.answer has no CDI names: containers get what other keys say")
    elif node.release is None:
        yield TOPIC.unchecked(NAMES, f"the kubelet's release is not known; from 1.28 on it takes {_FIELD}")
    elif not _takes_field(kubelet, node.release):
        text = (
            f"the kubelet, {release}, drops {_FIELD}, the only way in which kubelet.answer tells it CDI "
            "names: pods "
            f"start without devices. Take the key out of the configuration, or write 'answer: [{_FIELD}, "
            f"{_ANNOTATION}]'"
        )
        yield TOPIC.error(NAMES, see(text, 15))
    else:
        yield TOPIC.good(NAMES, f"the kubelet, {release}, takes CDI names in its own field")


def _takes_field(kubelet: Kubelet, release: tuple[int, int, int]) -> bool:
    gate = kubelet.gate(_CDI_GATE)
    return release >= _CDI_FIELD and (release >= _CDI_ON if gate is None else gate)


def _class(context: Context) -> Iterator[CheckResult]:
    """Report a handler of NVIDIA's, for pods with a RuntimeClass, that gives GPUs a second time."""
    node = context.node
    runtime = next((one for one in context.runtimes if one.name == node.runtime), None)
    if node.kubelet is None or runtime is None:
        return
    handlers = [one for one in runtime.settings.oci_runtimes if is_nvidias(one) and not one.is_default]
    if not handlers:
        yield TOPIC.good(CLASS, "no handler of NVIDIA's is there for a RuntimeClass")
        return
    names = listed(f"{one.name} ({one.files[-1]})" for one in handlers)
    if not bare_specs(context):
        text = f"pods with the RuntimeClass of {names} get their GPUs once: the specs set {VOID}"
        yield TOPIC.good(CLASS, shown(text))
        return
    text = (
        f"pods with the RuntimeClass of {names} get GPUs from NVIDIA's runtime as well, those that their "
        "image's "
        f"NVIDIA_VISIBLE_DEVICES names: the specs lack {VOID}. Take runtimeClassName out of them"
    )
    yield TOPIC.warning(CLASS, see(shown(text), 16), because=("double-injection",))


def _inotify(context: Context) -> Iterator[CheckResult]:
    """Report whether root's processes have used up the kernel's inotify instances (inotify(7))."""
    if not context.is_live:
        return
    try:
        limit = int(context.text(_INSTANCES))
    except ValueError:
        return
    used = _instances()
    if used < limit * _FULL:
        yield TOPIC.good(INOTIFY, f"root's processes have at least {used} of {limit} inotify instances")
        return
    text = (
        f"root's processes have {used} of {limit} inotify instances: kubelet, runtimes and plugins fail "
        "with 'too many "
        f"open files'. To keep more after a boot, set fs.inotify.max_user_instances in /etc/sysctl.d"
    )
    more = ("sysctl", "-w", f"fs.inotify.max_user_instances={max(1024, limit * 4)}")
    yield TOPIC.warning(
        INOTIFY, see(text, 18), (Remedy(argv=more, why="allow more of them, until the next boot"),)
    )


def _instances() -> int:
    """Return how many inotify instances root's processes have, as far as we may see them."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        folder = f"/proc/{pid}/fd"
        try:
            if os.stat(f"/proc/{pid}").st_uid != 0:
                continue
            count += sum(os.readlink(f"{folder}/{fd}") == "anon_inode:inotify" for fd in os.listdir(folder))
        except OSError:
            continue
    return count


def _topology(context: Context) -> Iterator[CheckResult]:
    """Report what a strict topology manager makes of our devices."""
    node, kubelet = context.node, context.node.kubelet
    if kubelet is None:
        return
    policy = kubelet.topology_policy
    if policy not in _STRICT:
        yield TOPIC.good(
            TOPOLOGY, f"the kubelet's topology manager refuses no pod: its policy is {shown(policy)}"
        )
        return
    lists = [row.get("devices") for row in node.resources]
    rows = [one for found in lists if isinstance(found, list) for one in found if isinstance(one, dict)]
    unknown = sum(one.get("numa_node") is None for one in rows)
    text = (
        f"the topology manager's policy is {shown(policy)}: a pod that asks for more devices than one "
        "NUMA node has "
        "is refused with TopologyAffinityError"
    )
    if unknown:
        text += (
            f"; {unknown} of {len(rows)} devices have no NUMA node that is known, and count as near to all"
        )
    yield TOPIC.good(TOPOLOGY, see(text, 19))


CHECKS = tuple(map(for_nodes, (_runtime, _names, _class, _inotify, _topology)))
