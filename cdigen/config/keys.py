"""``KEYS``: every key of the configuration file, with its type, its meaning and its former name.

This table is the source of the reader (``config.reading``) and, by ``make generated``, of the JSON schema
(schemas/config.schema.json), the tables of docs/configuration.md and etc/config.yaml. Defaults are those of
the classes in ``config.settings``, whose fields have the names of the keys.
"""

from __future__ import annotations

from cdigen.config.settings import (
    ANNOTATIONS,
    ANSWERS,
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
    """A key: its type, and in Markdown its meaning, and its default if the value does not show it.

    ``old``: its name in the first release, accepted for one more release. ``field``: the field of its class,
    if it has another name. ``example``: a value for etc/config.yaml if there is no default.
    """

    name: str
    type: Scalar | ListOf | Table | Rows
    text: str
    default: str = ""
    old: str = ""
    field: str = ""
    example: str = ""
    is_required: bool = False


# One row for each key, in as few lines as possible.
# fmt: off
PROFILE_KEYS = (
    Key(name="name", type=CLASS, is_required=True,
        text="for `--profile`: 2 to 63 letters, digits and inner `_ -`, the first a letter"),
    Key(name="class", type=CLASS, is_required=True, field="device_class",
        text="the part of the kind after the slash; no two profiles have the same"),
    Key(name="capabilities", type=ListOf(item=choice(*CAPABILITIES)), default="all",
        text="the driver capabilities that it gives, of compute, utility, graphics, video, display, ngx"),
    Key(name="names", type=ListOf(item=NAMING, at_least=1), default="the vendor's own",
        text="how devices are named, in the order wanted: `index`, `uuid`, `type-index` (`gpu0`, `mig0:1`; "
        "a MIG instance that NVML has never numbered is `0:gi9-ci0`), `pci` (`0000:65:00.0`; Intel's is "
        "`0000-03-00-0-0x56c0`, as its tools have it), `minor` (`minor0`), `card` (`card0`). The default of "
        "NVIDIA is index and uuid, of AMD index, uuid and pci, of Intel index, pci and card. A vendor of "
        "another package, which `vendors` names, may have others (`npu`: `npu0`)"),
    Key(name="graphics", type=FLAG, text="what only graphics programs need"),
    Key(name="x11", type=FLAG, text="the X server's modules and configuration"),
    Key(name="firmware", type=FLAG, text="the GPUs' firmware"),
    Key(name="sockets", type=FLAG, text="the sockets of nvidia-persistenced and nvidia-fabricmanager"),
    Key(name="mps", type=FLAG, text="the pipe directory of the Multi-Process Service (`mps_pipe_dir`)"),
    Key(name="compat32", type=FLAG, text="32-bit libraries"),
    Key(name="whole_gpus", type=FLAG, text="offer a GPU in MIG mode as a whole, too"),
    Key(name="layout", type=choice(*LAYOUTS),
        text="how the driver's files reach a container: `files`, `view`, `hwcaps`, see below"),
    Key(name="hook", type=choice(*HOOKS),
        text="what runs when a container starts: `cdigen` (docs/hook.md), `none`, or `nvidia`"),
    Key(name="hook_steps", type=ListOf(item=choice(*STEPS)),
        default="all except `disable-device-node-modification`", text="what the hook does"),
    Key(name="hook_required", type=ListOf(item=choice(*STEPS)),
        text="steps without which a container must not start"),
)

DAEMON_KEYS = (
    Key(name="debounce_s", type=SECONDS, old="quiet_s",
        text="how long after the last event the daemon begins a cycle: a package manager's events come "
        "closer together"),
    Key(name="max_delay_s", type=SECONDS, old="bound_s",
        text="how long after the first event it begins a cycle at the latest, however many follow"),
    Key(name="settle_timeout_s", type=SECONDS, old="settle_s",
        text="how long it waits for a host that is changing (libraries of another version than the "
        "module, nodes that are not there yet, a package manager at work) before it takes the host as it is"),
    Key(name="backoff_min_s", type=SECONDS, old="settle_first_s",
        text="after how long it first looks at such a host again; each wait is longer than the last"),
    Key(name="backoff_max_s", type=SECONDS, old="settle_most_s", text="the longest of these waits"),
    Key(name="poll_s", type=SECONDS,
        text="how often it compares kernel state without events: the driver's version, MIG's capability "
        "files"),
    Key(name="resync_s", type=SECONDS, old="look_s",
        text="how often it runs a cycle without an event, in case events were lost"),
    Key(name="stale_specs", type=choice("withdraw", "keep"), old="on_gone",
        text="what happens to a spec whose files or nodes are gone: `withdraw` removes it, so that "
        "the runtime clearly refuses containers; with `keep` they fail half-way"),
    Key(name="run_dir", type=PATH,
        text="the folder of status.json, inventory.json, the HTTP socket and the daemon's lock; as with "
        "`poll_s` and `http_port`, a change takes effect at the next start"),
    Key(name="http_port", type=PORT,
        text="a port of 127.0.0.1 for the page, /metrics, /healthz, /readyz, beside the socket; 0: none. If "
        "it is in use, the daemon tries again and again, and everything else works meanwhile"),
    Key(name="figure_metrics", type=FLAG,
        text="whether /metrics has what the devices do (memory, utilization, temperature, power, ...) for a "
        "scrape that asks with `?collect[]=figures` (docs/operations.md)"),
)

HEALTH_KEYS = (
    Key(name="quiet_minutes", type=MINUTES,
        text="how long nothing more may have happened before a cause that needs quiet ends; most also need "
        "the driver's word that nothing has to be done (docs/health.md)"),
    Key(name="probe_minutes", type=MINUTES,
        text="how often a vendor's library is asked, in a separate process: at most so often while nothing "
        "happens, at once after an error, and never a device that sleeps"),
    Key(name="ignore", type=ListOf(item=CAUSE),
        text="causes that do not count, such as `[xid-63]`; docs/health.md lists them"),
    Key(name="in_spec", type=FLAG,
        text="whether unhealthy devices stay in the specs: then front ends decide who gets none; `false` "
        "leaves them out"),
    Key(name="kernel_log", type=FLAG,
        text="whether the kernel's log is listened to, where drivers tell of most errors; a change takes "
        "effect at the next start"),
)

PAGE_KEYS = (
    Key(name="names_on_port", type=FLAG,
        text="whether pods, containers and processes are named to whoever asks at `http_port`: every user of "
        "the host, and containers in its network; at the socket, which is root's, they always are"),
    Key(name="sockets", type=ListOf(item=PATH),
        text="API sockets of podman and Docker that are asked which containers have devices, while somebody "
        "looks at the page: `[/run/podman/podman.sock, /run/docker.sock]`"),
)

ALLOW_KEYS = (
    Key(name="namespaces", type=ListOf(item=NAMESPACE, at_least=1), is_required=True,
        text="the pod's namespace is one of these: names, or their beginning and `*`"),
    Key(name="runtime_handlers", type=ListOf(item=HANDLER), default="any",
        text='and its runtime handler one of these, as RuntimeClasses name them; `""` are pods without a '
        "RuntimeClass"),
    Key(name="labels", type=LABELS, text="and it has these labels; the value `*` matches any"),
    Key(name="privileged", type=FLAG,
        text="`true`: and the container is privileged, as far as its runtime shows that (docs/nri.md)"),
    Key(name="sources", type=ListOf(item=choice(*SOURCES), at_least=1),
        text="what counts: annotations, device lists by volume mounts, variables"),
    Key(name="kinds", type=ListOf(item=KIND_PATTERN, at_least=1), default="what variables can name",
        text='for which kinds, such as `nvidia.com/gpu*`; never `management_kinds`. The default is '
        '`gpu_kinds`, `nvidia.com/imex-channel`, `gds`, `mofed`, `gdrcopy`, and those of other makers\' '
        'variables except what is of claims, see below. Any other kind must be named. `"*"` allows all that '
        'the spec directories define, the devices of other pods\' claims (DRA) included'),
)

GPU_KIND_KEYS = (
    Key(name="kind", type=KIND, is_required=True, text="the kind, such as `nvidia.com/gpu-compute`"),
    Key(name="capabilities", type=ListOf(item=choice(*CAPABILITIES, "compat32")),
        default="all except `compat32`",
        text="what it gives, such as `[compute, utility]`"),
)

NRI_KEYS = (
    Key(name="allow", type=Rows(keys=ALLOW_KEYS, cls=AllowRule, row="allow"), default="none: nowhere",
        text="which requests are allowed: rows, one of which has to match"),
    Key(name="management_namespaces", type=ListOf(item=NAMESPACE),
        text="the namespaces that may have `management_kinds`, however they ask; nothing in `allow` permits "
        "them anywhere else"),
    Key(name="management_kinds", type=ListOf(item=KIND_PATTERN),
        text="kinds for administrators of GPUs, their firmware and their fabric"),
    Key(name="annotations", type=ListOf(item=choice(*ANNOTATIONS)),
        text="whose annotations are read; leave out those that another plugin here serves, since a device "
        "that two plugins inject stops the container"),
    Key(name="default_action", type=choice("ignore", "refuse"), old="elsewhere",
        text="what happens to a request by annotation that no row allows: `refuse` stops the container"),
    Key(name="gpu_kinds", type=Rows(keys=GPU_KIND_KEYS, cls=GpuKind, row="gpu_kinds"),
        default="those of the profiles",
        text="the kinds of NVIDIA GPUs by what they give, for `NVIDIA_DRIVER_CAPABILITIES`"),
    Key(name="narrow", type=FLAG,
        text="whether `NVIDIA_DRIVER_CAPABILITIES` narrows the driver's files without a profile for it: "
        "the daemon and `generate` also write `nvidia.com/gpu-compute` (compute, utility) and "
        "`nvidia.com/gpu-graphics` (these, graphics, display), see below"),
    Key(name="require", type=choice("enforce", "warn", "off"),
        text="what happens to a container whose image requires another driver or GPU (`NVIDIA_REQUIRE_*`): "
        "`enforce` refuses it, `warn` starts and counts it, `off` does not check. The same applies if it "
        "is unknown, because the daemon does not run, or its inventory is missing or of another driver"),
    Key(name="unsupported_cdi", type=choice("refuse", "raw"), old="dropper",
        text="what happens to a container that requests devices, if the runtime is one that drops CDI "
        "devices and reports nothing: `refuse` stops it; `raw` gives it nodes, mounts and variables of the "
        "spec instead"),
    Key(name="nodes_without_driver", type=choice("files", "refuse", "warn"),
        text="what happens to a container that requests GPUs and has their nodes, but not the driver's "
        "files, as from a device plugin that relies on NVIDIA's runtime (`PASS_DEVICE_SPECS`): `files` "
        "gives it these by the device `none` of a kind, or refuses it if no spec has one; `refuse` stops "
        "it; `warn` starts and counts it"),
    Key(name="socket", type=PATH, text="where the runtime listens for plugins"),
    Key(name="index", type=number(99),
        text="the plugin's place among others, 0 to 99; a plugin that the runtime starts itself has it in "
        "its file name"),
    Key(name="run_dir", type=PATH, text="the folder of status.json, the HTTP socket and the plugin's lock"),
    Key(name="http_port", type=PORT,
        text="a port of 127.0.0.1 for /metrics, /healthz, /readyz, beside the socket; 0: none"),
)

RESOURCE_KEYS = (
    Key(name="name", type=RESOURCE, is_required=True, text="what pods ask for, such as `nvidia.com/a100`"),
    Key(name="kind", type=KIND, default="any",
        text="devices of this kind, such as `nvidia.com/gpu-compute`; they are given by their names of it"),
    Key(name="models", type=ListOf(item=PATTERN, at_least=1), default="any",
        text="and of one of these models, as `cdigen inspect` has them, in any case of letters: `*A100*`"),
    Key(name="profiles", type=ListOf(item=PATTERN, at_least=1), default="any",
        text="and partitions of one of these profiles: `1g.10gb`, `*g.20gb`; `none`: whole devices"),
    Key(name="devices", type=ListOf(item=DEVICE, at_least=1), default="any",
        text="and these alone: UUIDs, PCI addresses, indices or CDI names; a GPU's is also that of its "
        "partitions"),
    Key(name="min_memory_gb", type=number(1_000_000),
        text="and with at least so many GB: of AMD's, and of Intel's with xe, the GiB that the kernel tells, "
        "of NVIDIA's what they are sold by, as profile or model says (`1g.10gb`, `H100 80GB`, `T4`), else "
        "the GiB that NVML tells. Where it is not known no limit matches, which is reported; 0: any"),
    Key(name="max_memory_gb", type=number(1_000_000), text="and with at most so many; 0: any"),
)

SHARING_KEYS = (
    Key(name="resource", type=RESOURCE, is_required=True,
        text="the resource whose devices are shared, such as `nvidia.com/gpu`"),
    Key(name="replicas", type=number(MAX_REPLICAS, minimum=1), is_required=True,
        text=f"how many containers may have a device at a time, 1 to {MAX_REPLICAS}; 1: it is not shared"),
    Key(name="devices", type=ListOf(item=DEVICE, at_least=1), default="all",
        text="these alone: UUIDs, PCI addresses, indices or CDI names; a row with devices comes before one "
        "without"),
    Key(name="rename", type=RESOURCE, default="the same", text="what pods ask for to get a share"),
    Key(name="mps", type=FLAG,
        text="share by NVIDIA's Multi-Process Service, whose control daemon has to run (`mps_root`); not for "
        "MIG instances"),
)

SHARED_MEMORY_KEYS = (
    Key(name="unit", type=text("none, or a size such as GiB, MiB or 256MiB", r"none|[0-9]{0,6}[MG]iB"),
        text="what a unit is: `GiB`, `MiB`, or so many (`256MiB`); `none`: no GPU is shared so"),
    Key(name="devices", type=ListOf(item=DEVICE, at_least=1), default="all GPUs",
        text="the GPUs that are offered in units, and then not whole: UUIDs, PCI addresses, indices or CDI "
        "names"),
    Key(name="resource", type=RESOURCE, text="what pods ask for, in units"),
    Key(name="count", type=RESOURCE, text="the number of these GPUs in the node's status"),
    Key(name="namespace", type=text("a namespace", r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"),
        text="where `cdigen extender` keeps what it promised"),
    Key(name="mps", type=FLAG,
        text="share by NVIDIA's Multi-Process Service, whose control daemon has to run (`mps_root`): it lets "
        "each process of a container have the memory of its units, and no more"),
)

KUBELET_KEYS = (
    Key(name="mig_strategy", type=choice(*MIG_STRATEGIES),
        text="how MIG instances are offered: `mixed`: as `nvidia.com/mig-<profile>`; `single`: as "
        "`nvidia.com/gpu`, those GPUs alone that are split as most are; `none`: not at all"),
    Key(name="amd_strategy", type=choice("single", "mixed"),
        text="how partitions of AMD's GPUs are offered: `single`: as `amd.com/gpu`, those GPUs alone that "
        "are split as most are; `mixed`: as `amd.com/<compute>_<memory>`, whole ones that could be split too "
        "(`spx_nps1`)"),
    Key(name="resources", type=Rows(keys=RESOURCE_KEYS, cls=ResourceRow, row="resources"),
        default="the vendors' own names",
        text="other names for some devices: rows, the first of which that matches a device counts"),
    Key(name="ignore", type=ListOf(item=DEVICE),
        text="devices that are not offered: UUIDs, PCI addresses, CDI names, or indices, which count "
        "in each vendor"),
    Key(name="sharing", type=Rows(keys=SHARING_KEYS, cls=SharingRow, row="sharing"),
        default="none: one container a device",
        text="which devices several containers may have at a time; neither memory nor time is limited by it"),
    Key(name="shared_memory", type=Table(keys=SHARED_MEMORY_KEYS, cls=SharedMemory), default="none",
        example="{}", text="which GPUs are shared by memory, see docs/sharing.md"),
    Key(name="rename_shared", type=FLAG,
        text="whether shares are offered as `<resource>.shared` where `sharing` does not rename them"),
    Key(name="single_shares", type=FLAG,
        text="whether a container that asks for more than one share is refused: more give it no more time"),
    Key(name="shared_allocation", type=choice("distributed", "packed"),
        text="which shares a container gets: those of the device with the fewest in use, or of as few "
        "devices as possible"),
    Key(name="nvidia_config", type=PATH, default="none", example="/etc/nvidia/k8s-device-plugin.yaml",
        text="a configuration file of NVIDIA's device plugin (`version: v1`), whose words come before those "
        "here; what cdigen does not do of it is reported"),
    Key(name="answer", type=ListOf(item=choice(*ANSWERS), at_least=1),
        text="how the kubelet is told the CDI names: in its own field (from Kubernetes 1.28 on), by an "
        "annotation that the runtime reads, or both"),
    Key(name="environment", type=FLAG,
        text="whether containers also get `NVIDIA_VISIBLE_DEVICES`, for clusters that need it"),
    Key(name="device_nodes", type=FLAG,
        text="whether containers also get device nodes from the kubelet, for clusters that need them; after "
        "a driver's upgrade these are the old ones"),
    Key(name="families", type=ListOf(item=choice(*FAMILIES)),
        text="what a container with a GPU of NVIDIA's gets besides it"),
    Key(name="mps_root", type=PATH,
        text="the folder of the control daemons of NVIDIA's Multi-Process Service, with the pipe directory "
        "`<resource>/pipe` of each"),
    Key(name="labels", type=PATH, default="none",
        example="/etc/kubernetes/node-feature-discovery/features.d/cdigen",
        text="the file with the node's labels for Node Feature Discovery to read (docs/kubernetes.md)"),
    Key(name="run_dir", type=PATH, text="the folder of status.json, the HTTP socket and the process's lock"),
    Key(name="http_port", type=PORT,
        text="a port of 127.0.0.1 for /metrics, /healthz, /readyz, beside the socket; 0: none"),
)

KEYS = (
    Key(name="vendors", type=ListOf(item=VENDOR),
        default="nvidia, amd, intel", example="[nvidia, amd, intel]",
        text="the vendors to look for, such as `[nvidia]`. Vendors that other packages add must be named "
        "(docs/adding-a-vendor.md). A named vendor that this host lacks is reported"),
    Key(name="spec_dirs", type=ListOf(item=PATH, at_least=1),
        text="the spec directories in rising priority; specs are written into the last"),
    Key(name="state_dir", type=PATH,
        text="where cdigen records which spec files are its own, what NVML called MIG instances, how GPUs "
        "are linked, and keeps views (`views/`). A user who writes into a spec directory of their own "
        "(`--spec-dir`) has it in `$XDG_STATE_HOME/cdigen`"),
    Key(name="driver_root", type=PATH,
        text="the driver's files are below this folder, as with a driver container"),
    Key(name="dev_root", type=PATH, default="the driver root if it has the nodes, else `/`", example="/",
        text="the device nodes are below this folder"),
    Key(name="container_driver_root", type=PATH, text="containers get the driver's files below this folder"),
    Key(name="library_search_paths", type=ListOf(item=PATH),
        default="the distributions' folders and ld.so.cache",
        text="look for libraries only in these folders of the driver root"),
    Key(name="binary_search_paths", type=ListOf(item=PATH), default="the distributions' folders",
        text="look for the driver's programs (nvidia-smi, ...) only in these folders of the driver root"),
    Key(name="config_search_paths", type=ListOf(item=PATH), default="the distributions' folders",
        text="look for data files (EGL, Vulkan, ...) only in these folders of the driver root"),
    Key(name="mode", type=choice(*MODES),
        text="the kind of host: `auto` detects it; `gpu`, `wsl` (WSL2), `csv` (Tegra); `management`: "
        "only the kind for administrators of GPUs"),
    Key(name="nvml", type=choice("auto", "off", or_path="the path of a library"),
        text="whether NVML is asked, in a separate process, for what /proc and /sys lack: MIG UUIDs and "
        "numbers, UUIDs before first use. `auto`: the host's own library, never below another root or "
        "driver root; `off`; or the path of a library. The library, its folders and links must belong to "
        "root and be writable to nobody else"),
    Key(name="create_nodes", type=FLAG,
        text="whether `generate --write` makes missing device nodes, with the numbers of "
        "the kernel's files and the owner and mode of /proc/driver/nvidia/params; of AMD and Intel with "
        "mode 0660 and the groups video and render, as udev does"),
    Key(name="mps_pipe_dir", type=PATH, default="none", example="/tmp/nvidia-mps",  # noqa: S108 - where NVIDIA's daemon has it
        text="the pipe directory of the Multi-Process Service, for profiles with `mps: true`; no link may "
        "lead there"),
    Key(name="mps_uid", type=ID, text="the user who may own `mps_pipe_dir` besides root"),
    Key(name="hook", type=PATH,
        text="cdigen's start-up hook, where `make install-hook` put it (docs/hook.md)"),
    Key(name="hook_python", type=PATH,
        text="the Python that runs it; may be a copy that containers cannot read (docs/hook.md)"),
    Key(name="nvidia_hook", type=PATH, text="NVIDIA's hook, for profiles with `hook: nvidia`"),
    Key(name="view_copies", type=FLAG,
        text="whether `generate --write` and the daemon may copy the driver's files into a view where they "
        "can neither hard-link nor reflink them: some 700 MB for each driver. Files of up to 1 MiB are "
        "copied in any case"),
    Key(name="vendor_options", type=VENDOR_OPTIONS, default="none",
        text="options of single vendors, see below: `{amd: {rocm_libraries: true}, intel: {vfio: true}}`"),
    Key(name="profiles", type=Rows(keys=PROFILE_KEYS, cls=Profile, row="profile", at_least=1),
        default="one, `gpu`, with everything", example="[{name: default, class: gpu}]",
        text="the kinds of specs, see below"),
    Key(name="daemon", type=Table(keys=DAEMON_KEYS, cls=DaemonConfig), default="see below",
        text="how `cdigen run` waits, and where it keeps its status"),
    Key(name="health", type=Table(keys=HEALTH_KEYS, cls=HealthConfig), default="see below",
        text="which devices are unhealthy, and what follows, see below"),
    Key(name="page", type=Table(keys=PAGE_KEYS, cls=PageConfig), default="see below",
        text="who has which device, on the daemon's page, see below"),
    Key(name="nri", type=Table(keys=NRI_KEYS, cls=NriConfig), default="nobody gets anything",
        text="which devices the NRI plugin gives to which containers, see below"),
    Key(name="kubelet", type=Table(keys=KUBELET_KEYS, cls=KubeletConfig), default="see below",
        text="which resources `cdigen kubelet` offers to the kubelet, see below"),
)
# fmt: on
