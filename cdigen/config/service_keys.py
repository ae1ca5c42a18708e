"""The keys of the sections ``nri`` and ``kubelet`` (see ``config.keys``)."""

from __future__ import annotations

from cdigen import page_url
from cdigen.config.settings import (
    ANNOTATIONS,
    DEVICE_LIST_STRATEGIES,
    FAMILIES,
    MAX_REPLICAS,
    MIG_STRATEGIES,
    SOURCES,
    AllowRule,
    GpuKind,
    ResourceRow,
    SharedMemory,
    SharingRow,
)
from cdigen.config.types import (
    DEVICE,
    FLAG,
    HANDLER,
    KIND,
    KIND_PATTERN,
    LABELS,
    NAMESPACE,
    PATH,
    PATTERN,
    PORT,
    RESOURCE,
    Key,
    ListOf,
    Rows,
    Table,
    choice,
    number,
    text,
)
from cdigen.model.profile import CAPABILITIES

# fmt: off
ALLOW_KEYS = (
    Key(name="namespaces", type=ListOf(item=NAMESPACE, at_least=1), is_required=True,
        text="the permitted namespaces of the pod: each is a name, or the beginning of a name and `*`"),
    Key(name="runtime_handlers", type=ListOf(item=HANDLER), default="any",
        text='the permitted runtime handlers of the pod, as in RuntimeClasses; `""` means pods without a '
        "RuntimeClass"),
    Key(name="labels", type=LABELS, text="the pod must have these labels; the value `*` matches any value"),
    Key(name="privileged", type=FLAG,
        text="`true`: the runtime must report that the container is privileged "
        f"({page_url('reference/nri')})"),
    Key(name="sources", type=ListOf(item=choice(*SOURCES), at_least=1),
        text="the permitted sources of requests: annotations, device lists by volume mounts, variables"),
    Key(name="kinds", type=ListOf(item=KIND_PATTERN, at_least=1), default="kinds that variables can name",
        text='the permitted kinds, such as `nvidia.com/gpu*`; never `management_kinds`. The default is '
        '`gpu_kinds`, `nvidia.com/imex-channel`, `gds`, `mofed`, `gdrcopy`, and the kinds that the variables '
        'of other vendors select, without kinds of claims. Any other kind must be named. `"*"` permits every '
        'kind of the spec directories, including the devices of other pods\' claims (DRA)'),
)

GPU_KIND_KEYS = (
    Key(name="kind", type=KIND, is_required=True, text="the kind, such as `nvidia.com/gpu-compute`"),
    Key(name="capabilities", type=ListOf(item=choice(*CAPABILITIES, "compat32")),
        default="all except `compat32`",
        text="the driver capabilities of the kind, such as `[compute, utility]`"),
)

NRI_KEYS = (
    Key(name="allow", type=Rows(keys=ALLOW_KEYS, cls=AllowRule), default="none: no request",
        text="the rules of permitted requests; a request is permitted if at least one rule matches"),
    Key(name="management_namespaces", type=ListOf(item=NAMESPACE),
        text="the namespaces whose pods may use `management_kinds`, by any source; `allow` cannot permit "
        "these kinds"),
    Key(name="management_kinds", type=ListOf(item=KIND_PATTERN),
        text="kinds for administrators of GPUs, their firmware and their fabric"),
    Key(name="annotations", type=ListOf(item=choice(*ANNOTATIONS)),
        text="the annotations that the plugin reads, without those that another plugin on this host reads"),
    Key(name="default_action", type=choice("ignore", "refuse"),
        text="the action for a request by annotation that no rule of `allow` permits: `refuse` rejects the "
        "container"),
    Key(name="gpu_kinds", type=Rows(keys=GPU_KIND_KEYS, cls=GpuKind),
        default="the kinds of the profiles",
        text="the kinds of NVIDIA GPUs and their capabilities, for `NVIDIA_DRIVER_CAPABILITIES`"),
    Key(name="restrict_driver_files", type=FLAG,
        text="whether `NVIDIA_DRIVER_CAPABILITIES` restricts the driver's files; needs no other profiles"),
    Key(name="image_requirements", type=choice("enforce", "warn", "off"),
        text="for a container whose image requires another driver or GPU: `enforce` rejects it, `warn` "
        "starts and counts it"),
    Key(name="unsupported_cdi", type=choice("refuse", "raw"),
        text="for a request on a runtime that silently drops CDI devices: `refuse` the container, or inject "
        "`raw`, without CDI"),
    Key(name="nodes_without_driver", type=choice("files", "refuse", "warn"),
        text="for a container with nodes of GPUs, without the driver's files: inject the `files`, `refuse` "
        "it, or start it and `warn`"),
    Key(name="socket", type=PATH, text="the socket on which the runtime listens for plugins"),
    Key(name="index", type=number(99),
        text="the position among the plugins, 0 to 99; the file name of a plugin that the runtime starts "
        "has it instead"),
    Key(name="run_dir", type=PATH, text="the folder of status.json, the HTTP socket and the plugin's lock"),
    Key(name="http_port", type=PORT,
        text="a port of 127.0.0.1 for /metrics, /healthz and /readyz, in addition to the socket; 0: none"),
)

RESOURCE_KEYS = (
    Key(name="name", type=RESOURCE, is_required=True,
        text="the resource that pods request, such as `nvidia.com/a100`"),
    Key(name="kind", type=KIND, default="any",
        text="only devices of this kind, such as `nvidia.com/gpu-compute`; containers get the CDI names of "
        "this kind"),
    Key(name="models", type=ListOf(item=PATTERN, at_least=1), default="any",
        text="only devices of these models, as in `cdigen inspect`, in upper or lower case: `*A100*`"),
    Key(name="profiles", type=ListOf(item=PATTERN, at_least=1), default="any",
        text="only partitions of these profiles: `1g.10gb`, `*g.20gb`; `none`: whole devices"),
    Key(name="devices", type=ListOf(item=DEVICE, at_least=1), default="any",
        text="only these devices: UUIDs, PCI addresses, indices or CDI names; the name of a GPU also selects "
        "its partitions"),
    Key(name="min_memory_gb", type=number(1_000_000),
        text="only devices with at least this memory in GB; 0: any. For AMD, and for Intel with xe, it is "
        "the GiB of the kernel. For NVIDIA it is the number in the profile or model (`1g.10gb`, `H100 "
        "80GB`), else the GiB of NVML. A device of unknown memory matches no limit"),
    Key(name="max_memory_gb", type=number(1_000_000),
        text="only devices with at most this memory in GB; 0: any"),
)

SHARING_KEYS = (
    Key(name="resource", type=RESOURCE, is_required=True,
        text="the resource whose devices are shared, such as `nvidia.com/gpu`"),
    Key(name="replicas", type=number(MAX_REPLICAS, minimum=1), is_required=True,
        text=f"how many containers can use a device at a time, 1 to {MAX_REPLICAS}; 1: not shared"),
    Key(name="devices", type=ListOf(item=DEVICE, at_least=1), default="all",
        text="only these devices: UUIDs, PCI addresses, indices or CDI names; such a row has priority"),
    Key(name="rename", type=RESOURCE, default="the value of `resource`",
        text="the resource by which pods request a replica"),
    Key(name="mps", type=FLAG,
        text="share by NVIDIA's Multi-Process Service, whose control daemon must run (`mps_root`); not for "
        "MIG instances"),
)

SHARED_MEMORY_KEYS = (
    Key(name="unit", type=text("none, or a size such as GiB, MiB or 256MiB", r"none|[0-9]{0,6}[MG]iB"),
        text="the size of a memory unit: `GiB`, `MiB`, or a multiple of these (`256MiB`); `none`: no GPU is "
        "shared by memory"),
    Key(name="devices", type=ListOf(item=DEVICE, at_least=1), default="all GPUs",
        text="the GPUs that are advertised in memory units, and not as whole GPUs: UUIDs, PCI addresses, "
        "indices or CDI names"),
    Key(name="resource", type=RESOURCE, text="the resource by which pods request memory units"),
    Key(name="count", type=RESOURCE, text="the resource with the number of shared GPUs in the node's status"),
    Key(name="namespace", type=text("a namespace", r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"),
        text="the namespace in which `cdigen extender` stores its reservations"),
    Key(name="mps", type=FLAG,
        text="share by MPS, whose control daemon must run (`mps_root`): each process is limited to the "
        "memory of the units"),
)

KUBELET_KEYS = (
    Key(name="mig_strategy", type=choice(*MIG_STRATEGIES),
        text="`mixed`: MIG instances as `nvidia.com/mig-<profile>`; `single`: as `nvidia.com/gpu`; `none`: "
        "not at all"),
    Key(name="amd_strategy", type=choice("single", "mixed"),
        text="`single`: partitions as `amd.com/gpu`; `mixed`: as `amd.com/<compute>_<memory>`, also whole "
        "GPUs (`spx_nps1`)"),
    Key(name="resources", type=Rows(keys=RESOURCE_KEYS, cls=ResourceRow),
        default="the resources of the vendors",
        text="other resources for some devices; the first row that matches a device applies"),
    Key(name="ignore", type=ListOf(item=DEVICE),
        text="devices that are not advertised: UUIDs, PCI addresses, CDI names, or indices, which apply to "
        "every vendor"),
    Key(name="sharing", type=Rows(keys=SHARING_KEYS, cls=SharingRow),
        default="none: one container for each device",
        text="the devices that several containers can use at a time; this limits neither memory nor time"),
    Key(name="shared_memory", type=Table(keys=SHARED_MEMORY_KEYS, cls=SharedMemory), default="none",
        example="{}",
        text=f"the GPUs that are shared by memory ({page_url('how-to/kubernetes/share-gpu-memory')})"),
    Key(name="rename_shared", type=FLAG,
        text="whether replicas are advertised as `<resource>.shared` if their row of `sharing` has no "
        "`rename`"),
    Key(name="fail_requests_greater_than_one", type=FLAG,
        text="whether a container that requests several replicas is rejected; they do not give it more time"),
    Key(name="shared_allocation", type=choice("distributed", "packed"),
        text="the replicas that a container gets: of the least used device (`distributed`), or of few "
        "devices (`packed`)"),
    Key(name="nvidia_config", type=PATH, default="none", example="/etc/nvidia/k8s-device-plugin.yaml",
        text="a configuration file of NVIDIA's device plugin (`version: v1`), which takes priority over "
        "these keys"),
    Key(name="device_list_strategy", type=ListOf(item=choice(*DEVICE_LIST_STRATEGIES), at_least=1),
        text="how the kubelet gets CDI names: in its own field (Kubernetes 1.28), by an annotation for the "
        "runtime, or both"),
    Key(name="environment", type=FLAG,
        text="whether containers also get `NVIDIA_VISIBLE_DEVICES`, for clusters that need it"),
    Key(name="device_nodes", type=FLAG,
        text="whether containers also get device nodes from the kubelet, which are the old nodes after a "
        "driver upgrade"),
    Key(name="families", type=ListOf(item=choice(*FAMILIES)),
        text="further NVIDIA devices for each container with an NVIDIA GPU, such as `gdrcopy`"),
    Key(name="mps_root", type=PATH,
        text="the folder of the control daemons of NVIDIA's Multi-Process Service; `<resource>/pipe` is the "
        "pipe directory of a daemon"),
    Key(name="labels", type=PATH, default="none",
        example="/etc/kubernetes/node-feature-discovery/features.d/cdigen",
        text="the file of node labels that Node Feature Discovery reads "
        f"({page_url('how-to/kubernetes/node-labels')})"),
    Key(name="run_dir", type=PATH, text="the folder of status.json, the HTTP socket and the process's lock"),
    Key(name="http_port", type=PORT,
        text="a port of 127.0.0.1 for /metrics, /healthz and /readyz, in addition to the socket; 0: none"),
)
