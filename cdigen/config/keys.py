"""``KEYS``: every key of the configuration file, with its type and its description.

The reader (``config.reading``) uses this table. From this table, ``make generated`` writes etc/config.yaml,
the JSON schema (schemas/config.schema.json), and the tables in docs/configuration.md. The classes in
``config.settings`` have the defaults. Most fields of these classes have the names of the keys.
"""

from __future__ import annotations

from cdigen.config.settings import (
    ANNOTATIONS,
    DEVICE_LIST_STRATEGIES,
    FAMILIES,
    MAX_REPLICAS,
    MIG_STRATEGIES,
    MODES,
    SOURCES,
    AllowRule,
    DaemonConfig,
    GpuKind,
    HealthConfig,
    KubeletConfig,
    NriConfig,
    PageConfig,
    ResourceRow,
    SharedMemory,
    SharingRow,
)
from cdigen.config.types import (
    CAUSE,
    CLASS,
    DEVICE,
    FLAG,
    HANDLER,
    ID,
    KIND,
    KIND_PATTERN,
    LABELS,
    MINUTES,
    NAMESPACE,
    NAMING,
    PATH,
    PATTERN,
    PORT,
    RESOURCE,
    SECONDS,
    TARGET,
    VENDOR,
    VENDOR_OPTIONS,
    ListOf,
    Rows,
    Table,
    choice,
    number,
    text,
)  # fmt: skip
from cdigen.model.profile import CAPABILITIES, HOOKS, LAYOUTS, STEPS, Profile
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config.types import Scalar


@frozen
class Key:
    """A key of the configuration; ``text`` is its description in Markdown.

    ``default`` describes the default value, if the value itself is not clear. ``field`` is the field of the
    settings class, if the field has another name than the key. ``example`` is a value for etc/config.yaml, if
    the key has no default.
    """

    name: str
    type: Scalar | ListOf | Table | Rows
    text: str
    default: str = ""
    field: str = ""
    example: str = ""
    is_required: bool = False


# One row for each key, in as few lines as possible.
# fmt: off
PROFILE_KEYS = (
    Key(name="name", type=CLASS, is_required=True,
        text="the value for `--profile`: 2 to 63 letters, digits, `_` or `-`, beginning with a letter and "
        "ending with a letter or digit"),
    Key(name="class", type=CLASS, is_required=True, field="device_class",
        text="the part of the kind after the slash; two profiles must have different classes"),
    Key(name="capabilities", type=ListOf(item=choice(*CAPABILITIES)), default="all",
        text="the driver capabilities of the kind: compute, utility, graphics, video, display, ngx"),
    Key(name="names", type=ListOf(item=NAMING, at_least=1), default="depends on the vendor",
        text="the device names, in order: `index`, `uuid`, `type-index` (`gpu0`, `mig0:1`; "
        "a MIG instance that NVML has never numbered is `0:gi9-ci0`), `pci` (`0000:65:00.0`; for Intel "
        "`0000-03-00-0-0x56c0`, as in Intel's tools), `minor` (`minor0`), `card` (`card0`). The default for "
        "NVIDIA is index and uuid, for AMD index, uuid and pci, for Intel index, pci and card. If `vendors` "
        "contains a vendor of another package, its namings are also permitted (`npu`: `npu0`)"),
    Key(name="graphics", type=FLAG, text="include the files that only graphics programs need"),
    Key(name="x11", type=FLAG, text="include the X server's modules and configuration"),
    Key(name="firmware", type=FLAG, text="include the GPUs' firmware"),
    Key(name="sockets", type=FLAG,
        text="include the sockets of nvidia-persistenced and nvidia-fabricmanager"),
    Key(name="mps", type=FLAG,
        text="include the pipe directory of the Multi-Process Service (`mps_pipe_dir`)"),
    Key(name="compat32", type=FLAG, text="include 32-bit libraries"),
    Key(name="whole_gpus", type=FLAG, text="also write a GPU in MIG mode as a whole device"),
    Key(name="layout", type=choice(*LAYOUTS),
        text="how containers get the driver's files: `files`, `view` or `hwcaps`, see below"),
    Key(name="hook", type=choice(*HOOKS),
        text="the hook that runs when a container starts: `cdigen` (docs/hook.md), `none` or `nvidia`"),
    Key(name="hook_steps", type=ListOf(item=choice(*STEPS)),
        default="all except `disable-device-node-modification`", text="the steps of the hook"),
    Key(name="required_hook_steps", type=ListOf(item=choice(*STEPS)),
        text="the steps of the hook that must succeed; if one of them fails, the container does not start"),
    Key(name="target", type=ListOf(item=TARGET), default="the key `target` of the file",
        text="the runtime releases that read this kind, instead of the key `target` of the file"),
)

DAEMON_KEYS = (
    Key(name="debounce_s", type=SECONDS,
        text="time from the last event to the start of a cycle; the events of a package manager have shorter "
        "intervals than this time"),
    Key(name="max_delay_s", type=SECONDS,
        text="longest time from the first event to the start of a cycle, even if more events follow"),
    Key(name="settle_timeout_s", type=SECONDS,
        text="how long the daemon waits for a host that is changing (libraries of another version than the "
        "module, nodes that do not exist yet, a running package manager) before it uses the present state"),
    Key(name="backoff_min_s", type=SECONDS,
        text="time until the first recheck of a host that is changing; each later wait is longer"),
    Key(name="backoff_max_s", type=SECONDS, text="the longest wait between two checks of a changing host"),
    Key(name="poll_s", type=SECONDS,
        text="interval of checks of kernel state that sends no events: the driver's version, MIG's "
        "capability files"),
    Key(name="resync_s", type=SECONDS, text="interval of cycles without an event, in case events were lost"),
    Key(name="stale_specs", type=choice("withdraw", "keep"),
        text="the action for a spec whose files or nodes are gone: `withdraw` removes it, and the runtime "
        "rejects containers with a clear error; with `keep` containers fail during their start"),
    Key(name="run_dir", type=PATH,
        text="the folder of status.json, inventory.json, the HTTP socket and the daemon's lock. A change of "
        "`run_dir`, `poll_s` or `http_port` takes effect at the next start"),
    Key(name="http_port", type=PORT,
        text="a port of 127.0.0.1 for the page, /metrics, /healthz and /readyz, in addition to the socket; "
        "0: none. While another process uses the port, the daemon retries, and its other functions work"),
    Key(name="device_metrics", type=FLAG,
        text="whether /metrics has device stats (memory, utilization, temperature, power, ...) for a "
        "scrape with `?collect[]=devices` (docs/operations.md)"),
)

HEALTH_KEYS = (
    Key(name="clear_after_minutes", type=MINUTES,
        text="the time without errors after which some causes end. Most of these causes end only if the "
        "driver also reports that no action is necessary (docs/health.md)"),
    Key(name="probe_minutes", type=MINUTES,
        text="shortest interval between queries of a vendor's library. Queries run in a separate process. "
        "After an error in the kernel log, cdigen queries the library at once. cdigen never queries a "
        "suspended device"),
    Key(name="ignore", type=ListOf(item=CAUSE),
        text="causes that do not affect health, such as `[xid-63]`; docs/health.md lists all causes"),
    Key(name="unhealthy_in_spec", type=FLAG,
        text="whether unhealthy devices stay in the specs: with `true`, each service decides which "
        "containers get these devices; with `false`, the specs do not contain these devices"),
    Key(name="kernel_log", type=FLAG,
        text="whether cdigen reads the kernel's log, where drivers report most errors; a change takes "
        "effect at the next start"),
)

PAGE_KEYS = (
    Key(name="http_port_shows_names", type=FLAG,
        text="whether the page at `http_port` shows the names of pods, containers and processes to every "
        "user of the host and to containers in its network. The page at the socket, which only root can "
        "open, always shows the names"),
    Key(name="sockets", type=ListOf(item=PATH),
        text="API sockets of podman and Docker: `[/run/podman/podman.sock, /run/docker.sock]`. While the "
        "page is open, the daemon queries these sockets for the containers that use devices"),
)

ALLOW_KEYS = (
    Key(name="namespaces", type=ListOf(item=NAMESPACE, at_least=1), is_required=True,
        text="the permitted namespaces of the pod: each is a name, or the beginning of a name and `*`"),
    Key(name="runtime_handlers", type=ListOf(item=HANDLER), default="any",
        text='the permitted runtime handlers of the pod, as in RuntimeClasses; `""` means pods without a '
        "RuntimeClass"),
    Key(name="labels", type=LABELS, text="the pod must have these labels; the value `*` matches any value"),
    Key(name="privileged", type=FLAG,
        text="`true`: the runtime must report that the container is privileged (docs/nri.md)"),
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
    Key(name="allow", type=Rows(keys=ALLOW_KEYS, cls=AllowRule, row="allow"), default="none: no request",
        text="the rules of permitted requests; a request is permitted if at least one rule matches"),
    Key(name="management_namespaces", type=ListOf(item=NAMESPACE),
        text="the namespaces whose pods may use `management_kinds`, by any source of requests; `allow` "
        "cannot permit these kinds in another namespace"),
    Key(name="management_kinds", type=ListOf(item=KIND_PATTERN),
        text="kinds for administrators of GPUs, their firmware and their fabric"),
    Key(name="annotations", type=ListOf(item=choice(*ANNOTATIONS)),
        text="the annotations that the plugin reads. Omit the annotations that another plugin on this host "
        "reads, because a container does not start if two plugins inject the same device"),
    Key(name="default_action", type=choice("ignore", "refuse"),
        text="the action for a request by annotation that no rule of `allow` permits: `refuse` rejects the "
        "container"),
    Key(name="gpu_kinds", type=Rows(keys=GPU_KIND_KEYS, cls=GpuKind, row="gpu_kinds"),
        default="the kinds of the profiles",
        text="the kinds of NVIDIA GPUs and their capabilities, for `NVIDIA_DRIVER_CAPABILITIES`"),
    Key(name="restrict_driver_files", type=FLAG,
        text="whether `NVIDIA_DRIVER_CAPABILITIES` restricts the driver's files; needs no other profiles. "
        "With `true`, the daemon and `generate` also write the capability kinds `nvidia.com/gpu-compute` "
        "(compute, utility) and `nvidia.com/gpu-graphics` (compute, utility, graphics, display), see below"),
    Key(name="image_requirements", type=choice("enforce", "warn", "off"),
        text="the action for a container whose image requires another driver or GPU (`NVIDIA_REQUIRE_*`): "
        "`enforce` rejects it, `warn` starts and counts it, `off` does not check. The same applies if the "
        "driver is unknown: the daemon does not run, or its inventory is missing or for another driver"),
    Key(name="unsupported_cdi", type=choice("refuse", "raw"),
        text="the action for a container that requests devices on a runtime that silently drops CDI "
        "devices: `refuse` rejects it; `raw` injects the nodes, mounts and variables of the spec instead"),
    Key(name="nodes_without_driver", type=choice("files", "refuse", "warn"),
        text="the action for a container that requests GPUs and has their nodes, but not the driver's "
        "files. A device plugin with `PASS_DEVICE_SPECS` relies on NVIDIA's runtime for these files. `files` "
        "injects the device `none`, which has the driver's files but no GPU, or rejects the container if no "
        "spec has the device `none`. `refuse` rejects the container. `warn` starts and counts the container"),
    Key(name="socket", type=PATH, text="the socket on which the runtime listens for plugins"),
    Key(name="index", type=number(99),
        text="the position among the plugins, 0 to 99. If the runtime starts the plugin, the file name of "
        "the plugin contains the position"),
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
        text="only devices with at least this memory in GB. For AMD, and for Intel with xe: the GiB that the "
        "kernel reports. For NVIDIA: the number in the profile or model (`1g.10gb`, `H100 80GB`, `T4`), else "
        "the GiB that NVML reports. A device of unknown memory matches no limit, and cdigen reports this. "
        "0: any"),
    Key(name="max_memory_gb", type=number(1_000_000),
        text="only devices with at most this memory in GB; 0: any"),
)

SHARING_KEYS = (
    Key(name="resource", type=RESOURCE, is_required=True,
        text="the resource whose devices are shared, such as `nvidia.com/gpu`"),
    Key(name="replicas", type=number(MAX_REPLICAS, minimum=1), is_required=True,
        text=f"how many containers can use a device at a time, 1 to {MAX_REPLICAS}; 1: not shared"),
    Key(name="devices", type=ListOf(item=DEVICE, at_least=1), default="all",
        text="only these devices: UUIDs, PCI addresses, indices or CDI names; a row with `devices` has "
        "priority over a row without `devices`"),
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
        text="share by NVIDIA's Multi-Process Service, whose control daemon must run (`mps_root`). It limits "
        "each process of a container to the memory of the container's units"),
)

KUBELET_KEYS = (
    Key(name="mig_strategy", type=choice(*MIG_STRATEGIES),
        text="how MIG instances are advertised: `mixed`: as `nvidia.com/mig-<profile>`; `single`: as "
        "`nvidia.com/gpu`, only of GPUs with the most frequent partitioning; `none`: not at all"),
    Key(name="amd_strategy", type=choice("single", "mixed"),
        text="how partitions of AMD GPUs are advertised: `single`: as `amd.com/gpu`, only of GPUs with the "
        "most frequent partitioning; `mixed`: as `amd.com/<compute>_<memory>`, including whole GPUs that can "
        "be partitioned (`spx_nps1`)"),
    Key(name="resources", type=Rows(keys=RESOURCE_KEYS, cls=ResourceRow, row="resources"),
        default="the resources of the vendors",
        text="other resources for some devices; the first row that matches a device applies"),
    Key(name="ignore", type=ListOf(item=DEVICE),
        text="devices that are not advertised: UUIDs, PCI addresses, CDI names, or indices, which apply to "
        "every vendor"),
    Key(name="sharing", type=Rows(keys=SHARING_KEYS, cls=SharingRow, row="sharing"),
        default="none: one container for each device",
        text="the devices that several containers can use at a time; this limits neither memory nor time"),
    Key(name="shared_memory", type=Table(keys=SHARED_MEMORY_KEYS, cls=SharedMemory), default="none",
        example="{}", text="the GPUs that are shared by memory, see docs/sharing.md"),
    Key(name="rename_shared", type=FLAG,
        text="whether replicas are advertised as `<resource>.shared` if their row of `sharing` has no "
        "`rename`"),
    Key(name="fail_requests_greater_than_one", type=FLAG,
        text="whether a container that requests more than one replica is rejected, because several replicas "
        "do not give a container more time"),
    Key(name="shared_allocation", type=choice("distributed", "packed"),
        text="the replicas that a container gets: `distributed`: of the device with the fewest replicas in "
        "use; `packed`: of as few devices as possible"),
    Key(name="nvidia_config", type=PATH, default="none", example="/etc/nvidia/k8s-device-plugin.yaml",
        text="a configuration file of NVIDIA's device plugin (`version: v1`), which takes priority over the "
        "keys here; keys that cdigen does not support are reported"),
    Key(name="device_list_strategy", type=ListOf(item=choice(*DEVICE_LIST_STRATEGIES), at_least=1),
        text="how the kubelet receives the CDI names: in its own field (from Kubernetes 1.28 on), by an "
        "annotation that the runtime reads, or both"),
    Key(name="environment", type=FLAG,
        text="whether containers also get `NVIDIA_VISIBLE_DEVICES`, for clusters that need it"),
    Key(name="device_nodes", type=FLAG,
        text="whether containers also get device nodes from the kubelet, for clusters that need them; after "
        "a driver upgrade these are the old nodes"),
    Key(name="families", type=ListOf(item=choice(*FAMILIES)),
        text="further NVIDIA devices for each container with an NVIDIA GPU, such as `gdrcopy`"),
    Key(name="mps_root", type=PATH,
        text="the folder of the control daemons of NVIDIA's Multi-Process Service; `<resource>/pipe` is the "
        "pipe directory of a daemon"),
    Key(name="labels", type=PATH, default="none",
        example="/etc/kubernetes/node-feature-discovery/features.d/cdigen",
        text="the file of node labels that Node Feature Discovery reads (docs/kubernetes.md)"),
    Key(name="run_dir", type=PATH, text="the folder of status.json, the HTTP socket and the process's lock"),
    Key(name="http_port", type=PORT,
        text="a port of 127.0.0.1 for /metrics, /healthz and /readyz, in addition to the socket; 0: none"),
)

KEYS = (
    Key(name="vendors", type=ListOf(item=VENDOR),
        default="nvidia, amd, intel", example="[nvidia, amd, intel]",
        text="the vendors whose devices cdigen discovers, such as `[nvidia]`. Vendors of other packages must "
        "be named (docs/adding-a-vendor.md). A named vendor without devices on this host is reported"),
    Key(name="spec_dirs", type=ListOf(item=PATH, at_least=1),
        text="the spec directories in rising priority; cdigen writes specs into the last directory"),
    Key(name="state_dir", type=PATH,
        text="the folder in which cdigen records its own spec files, the NVML names of MIG instances and the "
        "links of GPUs, and stores views (`views/`). For a user who writes into a spec directory of their "
        "own (`--spec-dir`) it is `$XDG_STATE_HOME/cdigen`"),
    Key(name="driver_root", type=PATH,
        text="the folder that contains the driver's files (of a driver container)"),
    Key(name="dev_root", type=PATH, default="the driver root if it has the nodes, else `/`", example="/",
        text="the folder that contains the device nodes, below `dev`"),
    Key(name="container_driver_root", type=PATH,
        text="the folder in containers that contains the driver's files"),
    Key(name="library_search_paths", type=ListOf(item=PATH),
        default="the distributions' folders and ld.so.cache",
        text="search libraries only in these folders of the driver root"),
    Key(name="binary_search_paths", type=ListOf(item=PATH), default="the distributions' folders",
        text="search the driver's programs (nvidia-smi, ...) only in these folders of the driver root"),
    Key(name="config_search_paths", type=ListOf(item=PATH), default="the distributions' folders",
        text="search data files (EGL, Vulkan, ...) only in these folders of the driver root"),
    Key(name="mode", type=choice(*MODES),
        text="the kind of host: `auto` detects it; `gpu`, `wsl` (WSL2), `csv` (Tegra); `management`: "
        "only the kind for administrators of GPUs"),
    Key(name="nvml", type=choice("auto", "off", or_path="the path of a library"),
        text="whether cdigen queries NVML, in a separate process, for data that /proc and /sys lack: MIG "
        "UUIDs and numbers, and UUIDs of GPUs that are not used yet. `auto`: the host's own library, never a "
        "library below another root or driver root; `off`; or the path of a library. The library, its "
        "folders and links must belong to root, and only root may write to them"),
    Key(name="target", type=ListOf(item=TARGET), text="the runtime releases that read the specs, see below"),
    Key(name="mps_pipe_dir", type=PATH, default="none", example="/tmp/nvidia-mps",  # noqa: S108 - NVIDIA's default
        text="the pipe directory of the Multi-Process Service, for profiles with `mps: true`; the path must "
        "not contain a link"),
    Key(name="mps_uid", type=ID, text="the user besides root who may own `mps_pipe_dir`"),
    Key(name="hook", type=PATH, text="the hook that `make install-hook` installs (docs/hook.md)"),
    Key(name="hook_python", type=PATH,
        text="the Python that runs the hook; may be a copy that containers cannot read (docs/hook.md)"),
    Key(name="nvidia_hook", type=PATH, text="NVIDIA's hook, for profiles with `hook: nvidia`"),
    Key(name="copy_driver_files", type=FLAG,
        text="whether `generate --write` and the daemon may copy the driver's files into a view if neither "
        "hard links nor reflinks are possible. The copies take some 700 MB for each driver. Files of up to "
        "1 MiB are copied in any case"),
    Key(name="vendor_options", type=VENDOR_OPTIONS, default="none",
        text="options of single vendors, see below: `{amd: {rocm_libraries: true}, intel: {vfio: true}}`"),
    Key(name="profiles", type=Rows(keys=PROFILE_KEYS, cls=Profile, row="profile", at_least=1),
        default="one, `gpu`, with everything", example="[{name: default, class: gpu}]",
        text="the kinds of specs, see below"),
    Key(name="daemon", type=Table(keys=DAEMON_KEYS, cls=DaemonConfig), default="see below",
        text="the times and the run directory of `cdigen run`, see below"),
    Key(name="health", type=Table(keys=HEALTH_KEYS, cls=HealthConfig), default="see below",
        text="the rules of device health, see below"),
    Key(name="page", type=Table(keys=PAGE_KEYS, cls=PageConfig), default="see below",
        text="settings of the daemon's page, which shows the users of devices, see below"),
    Key(name="nri", type=Table(keys=NRI_KEYS, cls=NriConfig), default="no container gets a device",
        text="the devices that the NRI plugin injects into containers, see below"),
    Key(name="kubelet", type=Table(keys=KUBELET_KEYS, cls=KubeletConfig), default="see below",
        text="the resources that `cdigen kubelet` advertises to the kubelet, see below"),
)
# fmt: on
