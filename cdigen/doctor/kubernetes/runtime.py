"""Checks of the path from the kubelet to a container: runtime, runtime handlers, kubelet release.

``--for kubelet`` selects the runtime at the kubelet's endpoint, with the configuration that its process
reads. The checks of the runtime itself are in the module ``runtimes``.
"""

from __future__ import annotations

import os

from cdigen.doctor.kubernetes.kubelet import KUBELET, TOPIC, for_nodes, see
from cdigen.doctor.migration.leftovers import VOID, bare_specs, is_of_nvidia
from cdigen.doctor.result import Remedy, listed
from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.kubernetes_node.settings import Kubelet
    from cdigen.doctor.result import CheckResult

RUNTIME, NAMES, CLASS = "kubelet-runtime", "kubelet-names", "kubelet-runtime-class"
INOTIFY, TOPOLOGY = "kubelet-inotify", "kubelet-topology"
# KEP 4009: the field cdi_devices is alpha and off by default in 1.28, and on by default since 1.29.
_CDI_FIELD, _CDI_ON = (1, 28, 0), (1, 29, 0)
_FIELD, _ANNOTATION = "cdi_devices", "annotation"
_CDI_GATE, _PLUGIN_GATE = "DevicePluginCDIDevices", "DevicePlugins"
_INSTANCES = "/proc/sys/fs/inotify/max_user_instances"
# The check fails if the used part of the limit reaches this value. The free part is then enough for only a
# few pods.
_FULL = 0.9
_STRICT = ("restricted", "single-numa-node")


def _runtime(context: Context) -> Iterator[CheckResult]:
    """Report the runtime that the kubelet uses, and whether the runtime injects CDI devices."""
    node = context.node
    if node.kubelet is None:
        return
    name, where = node.runtime, shown(node.endpoint)
    if not name:
        text = f"the kubelet's runtime listens at {where}: its name is unknown, so no runtime was checked"
        yield TOPIC.skipped(RUNTIME, text)
    elif name == "docker":
        text = (
            f"the kubelet uses Docker at {where}: dockershim and older cri-dockerd releases drop the CDI "
            "names of device plugins, so pods start without devices. Use containerd or CRI-O, or Kubernetes "
            "1.28 or later with a cri-dockerd of November 2025 or later"
        )
        yield TOPIC.warning(RUNTIME, see(text))
    elif not context.is_live:
        yield TOPIC.skipped(RUNTIME, f"needs a running system; the kubelet would use {name} at {where}")
    elif node.server is None and os.geteuid() != 0:
        # The address may be in a file, and the process may be hidden from the user.
        text = f"the kubelet uses {name}; only root may see the process that listens at {where}"
        yield TOPIC.skipped(RUNTIME, text)
    elif node.server is None:
        text = f"{name}, the kubelet's runtime, does not listen at {where}: no pod starts"
        yield TOPIC.error(RUNTIME, see(text), because=(KUBELET, f"{name}-running", f"{name}-config"))
    else:
        examined = next((one for one in context.runtimes if one.name == name), None)
        files = examined.settings.files if examined else ()
        text = f"the kubelet uses {examined.shown if examined else name} at {where}"
        if files:
            text += f" (configuration: {listed(map(shown, files))})"
        if examined and examined.is_foreign:
            owner = shown(node.server.unit) or "another program"
            text += f"; the runtime belongs to {owner}, and 'cdigen configure' does not edit it"
        yield TOPIC.passed(RUNTIME, text)


def _names(context: Context) -> Iterator[CheckResult]:
    """Report whether the kubelet accepts CDI names in a field that cdigen uses."""
    node, kubelet = context.node, context.node.kubelet
    if kubelet is None:
        return
    if kubelet.gate(_PLUGIN_GATE) is False:
        text = f"the kubelet's feature gate {_PLUGIN_GATE} is off: the kubelet has no device plugins"
        yield TOPIC.error(NAMES, see(text))
        return
    strategy = context.configuration.kubelet.device_list_strategy
    release = ".".join(map(str, node.release or ()))
    if _ANNOTATION in strategy:
        yield TOPIC.passed(
            NAMES, f"the kubelet{f' {release}' if release else ''} gets CDI names as annotation"
        )
    elif _FIELD not in strategy:
        text = "kubelet.device_list_strategy has no CDI names: containers get devices by its other values"
        yield TOPIC.passed(NAMES, text)
    elif node.release is None:
        text = f"the kubelet's release is unknown; kubelets from 1.28 on read {_FIELD}"
        yield TOPIC.skipped(NAMES, text)
    elif not _reads_field(kubelet, node.release):
        text = (
            f"the kubelet {release} drops {_FIELD}, and kubelet.device_list_strategy has no other CDI names: "
            "pods start without devices. Remove the key from the configuration, or write "
            f"'device_list_strategy: [{_FIELD}, {_ANNOTATION}]'"
        )
        yield TOPIC.error(NAMES, see(text))
    else:
        yield TOPIC.passed(NAMES, f"the kubelet {release} gets CDI names in {_FIELD}")


def _reads_field(kubelet: Kubelet, release: tuple[int, int, int]) -> bool:
    gate = kubelet.gate(_CDI_GATE)
    return release >= _CDI_FIELD and (release >= _CDI_ON if gate is None else gate)


def _class(context: Context) -> Iterator[CheckResult]:
    """Report NVIDIA's runtime handlers, which inject GPUs a second time into pods with their RuntimeClass."""
    node = context.node
    runtime = next((one for one in context.runtimes if one.name == node.runtime), None)
    if node.kubelet is None or runtime is None:
        return
    handlers = [one for one in runtime.settings.oci_runtimes if is_of_nvidia(one) and not one.is_default]
    if not any(map(is_of_nvidia, runtime.settings.oci_runtimes)):
        # If only a file that the runtime does not read has a handler, oci_programs reports the file.
        text = (
            f"{node.runtime} has no handler of NVIDIA's runtime: pods with its RuntimeClass do not start (no "
            'runtime for "nvidia" is configured). Pods with devices of cdigen need no RuntimeClass'
        )
        yield TOPIC.passed(CLASS, text)
        return
    if not handlers:
        yield TOPIC.passed(CLASS, "NVIDIA's runtime is the default runtime: pods need no RuntimeClass")
        return
    names = listed(f"{one.name} ({one.files[-1]})" for one in handlers)
    if not bare_specs(context):
        text = f"pods with the RuntimeClass of {names} get their GPUs once: the specs set {VOID}"
        yield TOPIC.passed(CLASS, shown(text))
        return
    text = (
        f"pods with the RuntimeClass of {names} also get the GPUs of their image's NVIDIA_VISIBLE_DEVICES "
        f"from NVIDIA's runtime: the specs lack {VOID}. Remove runtimeClassName from the pods"
    )
    yield TOPIC.warning(CLASS, see(shown(text)), because=("double-injection",))


def _inotify(context: Context) -> Iterator[CheckResult]:
    """Report whether root's processes use almost all inotify instances of the kernel (inotify(7))."""
    if not context.is_live:
        return
    try:
        limit = int(context.text(_INSTANCES))
    except ValueError:
        return
    used = _instances()
    if used < limit * _FULL:
        yield TOPIC.passed(INOTIFY, f"root's processes use at least {used} of {limit} inotify instances")
        return
    text = (
        f"root's processes use {used} of {limit} inotify instances: kubelet, runtimes and plugins fail with "
        "'too many open files'. To raise the limit permanently, set fs.inotify.max_user_instances in "
        "/etc/sysctl.d"
    )
    more = ("sysctl", "-w", f"fs.inotify.max_user_instances={max(1024, limit * 4)}")
    yield TOPIC.warning(INOTIFY, see(text), (Remedy(argv=more, why="raise the limit until the next boot"),))


def _instances() -> int:
    """Return the number of inotify instances of root's processes that the user may see."""
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
    """Report the effects of a strict topology manager on pods with devices."""
    node, kubelet = context.node, context.node.kubelet
    if kubelet is None:
        return
    policy = kubelet.topology_policy
    if policy not in _STRICT:
        yield TOPIC.passed(
            TOPOLOGY, f"the kubelet's topology manager refuses no pod (policy {shown(policy)})"
        )
        return
    lists = [row.get("devices") for row in node.resources]
    rows = [one for found in lists if isinstance(found, list) for one in found if isinstance(one, dict)]
    unknown = sum(one.get("numa_node") is None for one in rows)
    text = (
        f"the topology manager's policy is {shown(policy)}: with TopologyAffinityError, the kubelet refuses "
        "a pod that requests more devices than one NUMA node has"
    )
    if unknown:
        text += (
            f"; the NUMA node of {unknown} of {len(rows)} devices is unknown, so these devices fit all nodes"
        )
    yield TOPIC.passed(TOPOLOGY, see(text))


CHECKS = tuple(map(for_nodes, (_runtime, _names, _class, _inotify, _topology)))
