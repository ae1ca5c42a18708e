"""``KEYS``: every key of the configuration file, with its type, its meaning and its former name.

This table is the source of the reader (``config.reading``) and, by ``make generated``, of the JSON schema
(schemas/config.schema.json), the tables of docs/configuration.md and etc/config.yaml. Defaults are those of
the classes in ``config.settings``, whose fields have the names of the keys.
"""

from __future__ import annotations

from cdigen.config.settings import ANNOTATIONS, MODES, SOURCES, AllowRule, DaemonConfig, GpuKind, NriConfig
from cdigen.config.types import (
    CLASS,
    FLAG,
    HANDLER,
    ID,
    KIND,
    KIND_PATTERN,
    LABELS,
    NAMESPACE,
    NAMING,
    PATH,
    PORT,
    SECONDS,
    VENDOR,
    VENDOR_OPTIONS,
    ListOf,
    Rows,
    Table,
    choice,
    number,
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
        default="all except `disable-device-node-modification`",
        text="what the hook does"),
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
        text="after how long it first looks at such a host again; each wait is longer than the "
        "last"),
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
        text="a port of 127.0.0.1 for /metrics, /healthz, /readyz, beside the socket; 0: none. If it is in "
        "use, the daemon tries again and again, and everything else works meanwhile"),
)

ALLOW_KEYS = (
    Key(name="namespaces", type=ListOf(item=NAMESPACE, at_least=1), is_required=True,
        text="the pod's namespace is one of these: names, or their beginning and `*`"),
    Key(name="runtime_handlers", type=ListOf(item=HANDLER), default="any",
        text="and its runtime handler one of these, as RuntimeClasses name them"),
    Key(name="labels", type=LABELS, text="and it has these labels; the value `*` matches any"),
    Key(name="sources", type=ListOf(item=choice(*SOURCES), at_least=1), text="what counts"),
    Key(name="kinds", type=ListOf(item=KIND_PATTERN, at_least=1), default="what variables can name",
        text='for which kinds, such as `nvidia.com/gpu*`; never `management_kinds`. The default is '
        '`gpu_kinds`, `amd.com/gpu`, `nvidia.com/imex-channel`, `gds`, `mofed`, `gdrcopy`. Any other kind '
        'must be named. `"*"` allows all that the spec directories define, the devices of other pods\' '
        'claims (DRA) included'),
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
        text="the namespaces that may have `management_kinds`, by annotation and environment; nothing in "
        "`allow` permits them anywhere else"),
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
    Key(name="require", type=choice("enforce", "warn", "off"),
        text="what happens to a container whose image requires another driver or GPU (`NVIDIA_REQUIRE_*`): "
        "`enforce` refuses it, `warn` starts and counts it, `off` does not check. The same applies if it "
        "is unknown, because the daemon does not run, or its inventory is missing or of another driver"),
    Key(name="unsupported_cdi", type=choice("refuse", "raw"), old="dropper",
        text="what happens to a container that requests devices, if the runtime is one that drops CDI "
        "devices and reports nothing: `refuse` stops it; `raw` gives it nodes, mounts and variables of the "
        "spec instead"),
    Key(name="socket", type=PATH, text="where the runtime listens for plugins"),
    Key(name="index", type=number(99),
        text="the plugin's place among others, 0 to 99; a plugin that the runtime starts itself has it in "
        "its file name"),
    Key(name="run_dir", type=PATH, text="the folder of status.json, the HTTP socket and the plugin's lock"),
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
        text="where cdigen records which spec files are its own, what NVML called MIG instances, and keeps "
        "views (`views/`). A user who writes into a spec directory of their own (`--spec-dir`) has it in "
        "`$XDG_STATE_HOME/cdigen`"),
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
        text="options of single vendors, see below: `{amd: {rocm_libraries: true}, intel: {vfio: "
        "true}}`"),
    Key(name="profiles", type=Rows(keys=PROFILE_KEYS, cls=Profile, row="profile", at_least=1),
        default="one, `gpu`, with everything", example="[{name: default, class: gpu}]",
        text="the kinds of specs, see below"),
    Key(name="daemon", type=Table(keys=DAEMON_KEYS, cls=DaemonConfig), default="see below",
        text="how `cdigen run` waits, and where it keeps its status"),
    Key(name="nri", type=Table(keys=NRI_KEYS, cls=NriConfig), default="nobody gets anything",
        text="which devices the NRI plugin gives to which containers, see below"),
)
# fmt: on
