"""``KEYS``: every key of the configuration file, with its type and its description.

The reader (``config.reading``) uses this table. From this table, ``make generated`` writes etc/config.yaml,
the JSON schema (schemas/config.schema.json), and docs/reference/configuration.md. The classes in
``config.settings`` have the defaults. Most fields of these classes have the names of the keys.
"""

from __future__ import annotations

from cdigen import page_url
from cdigen.config.service_keys import KUBELET_KEYS, NRI_KEYS
from cdigen.config.settings import (
    MODES,
    DaemonConfig,
    DevicesConfig,
    HealthConfig,
    KubeletConfig,
    NriConfig,
    PageConfig,
)
from cdigen.config.types import (
    ADDRESS,
    CAUSE,
    CLASS,
    FLAG,
    ID,
    MINUTES,
    NAMING,
    NUMBER,
    PATH,
    PATTERN,
    PORT,
    SECONDS,
    TARGET,
    UUID,
    VENDOR,
    VENDOR_OPTIONS,
    Key,
    ListOf,
    Rows,
    Table,
    choice,
)
from cdigen.model.profile import CAPABILITIES, HOOKS, LAYOUTS, STEPS, Profile
from cdigen.vendors.context import DeviceFilter

# One row for each key, in as few lines as possible.
# fmt: off
PROFILE_KEYS = (
    Key(name="name", type=CLASS, is_required=True,
        text="the value for `--profile`: 2 to 63 letters, digits, `_` or `-`; a letter first, a letter or "
        "digit last"),
    Key(name="class", type=CLASS, is_required=True, field="device_class",
        text="the part of the kind after the slash; two profiles must have different classes"),
    Key(name="capabilities", type=ListOf(item=choice(*CAPABILITIES)), default="all",
        text="the driver capabilities of the kind: compute, utility, graphics, video, display, ngx"),
    Key(name="names", type=ListOf(item=NAMING, at_least=1), default="depends on the vendor",
        text="the device names, in order: `index`, `uuid`, `type-index`, `pci`, `minor`, `card`. The "
        "default for NVIDIA is index and uuid, for AMD index, uuid and pci, for Intel index, pci and "
        "card. Examples: `type-index`: `gpu0`, `mig0:1` (a MIG instance without a name of NVML is "
        "`0:gi9-ci0`); `pci`: `0000:65:00.0`, for Intel `0000-03-00-0-0x56c0`; `minor`: `minor0`; "
        "`card`: `card0`. A vendor of another package in `vendors` adds its namings"),
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
        text="how containers get the driver's files: `files`, `view`, `hwcaps` or `auto`"),
    Key(name="hook", type=choice(*HOOKS),
        text="the hook that runs when a container starts: `cdigen`, `none`, `nvidia` or `auto`"),
    Key(name="hook_steps", type=ListOf(item=choice(*STEPS)),
        default="all except `disable-device-node-modification`", text="the steps of the hook"),
    Key(name="required_hook_steps", type=ListOf(item=choice(*STEPS)),
        text="the steps of the hook that must succeed; if one of them fails, the container does not start"),
    Key(name="target", type=ListOf(item=TARGET), default="the key `target` of the file",
        text="the runtime releases that read this kind, instead of the key `target` of the file"),
)

EXCLUDE_KEYS = (
    Key(name="vendor", type=VENDOR, default="any", text="only devices of this vendor, such as `intel`"),
    Key(name="index", type=NUMBER, default="any",
        text="only devices with this index, as in `cdigen inspect`; each vendor and class of device has its "
        "own indices"),
    Key(name="uuid", type=UUID, default="any", text="only the GPU or the partition with this UUID"),
    Key(name="address", type=ADDRESS, default="any",
        text="only the devices or the partition with this address, as in `cdigen inspect`: `0000:65:00.0`, "
        "`65:00.0`, `amdgpu_xcp_2`"),
    Key(name="model", type=PATTERN, default="any",
        text="only devices of this model, as in `cdigen inspect`, in upper or lower case: `*T400*`"),
    Key(name="display", type=FLAG,
        text="`true`: only GPUs with a connected display; if the driver has no connectors, the GPU of the "
        "firmware's display"),
)

DEVICES_KEYS = (
    Key(name="exclude", type=Rows(keys=EXCLUDE_KEYS, cls=DeviceFilter),
        text="the devices that no container gets, such as `[{vendor: nvidia, index: 0}]`"),
)

DAEMON_KEYS = (
    Key(name="debounce_s", type=SECONDS,
        text="time from the last event to the start of a cycle"),
    Key(name="max_delay_s", type=SECONDS,
        text="longest time from the first event to the start of a cycle, even if more events follow"),
    Key(name="settle_timeout_s", type=SECONDS,
        text="longest wait for a changing host (libraries of another version than the module, missing "
        "nodes, a package manager)"),
    Key(name="backoff_min_s", type=SECONDS,
        text="time until the first recheck of a host that is changing; each later wait is longer"),
    Key(name="backoff_max_s", type=SECONDS, text="the longest wait between two checks of a changing host"),
    Key(name="poll_s", type=SECONDS,
        text="interval of checks of kernel state that sends no events: the driver's version, MIG's "
        "capability files"),
    Key(name="resync_s", type=SECONDS, text="interval of cycles without an event, in case events were lost"),
    Key(name="stale_specs", type=choice("withdraw", "keep"),
        text="a spec whose files or nodes are gone: `withdraw` removes it; with `keep`, containers fail "
        "during their start"),
    Key(name="run_dir", type=PATH,
        text="the folder of status.json, inventory.json, the HTTP socket and the daemon's lock"),
    Key(name="http_port", type=PORT,
        text="a port of 127.0.0.1 for the page, /metrics, /healthz and /readyz, in addition to the socket; "
        "0: none"),
    Key(name="device_metrics", type=FLAG,
        text="whether /metrics has device stats (memory, utilization, temperature, power, ...) for a "
        "scrape with `?collect[]=devices`"),
)

HEALTH_KEYS = (
    Key(name="clear_after_minutes", type=MINUTES,
        text=f"the time without errors after which some causes end ({page_url('reference/health-causes')})"),
    Key(name="probe_minutes", type=MINUTES,
        text="shortest interval between queries of a vendor's library, except after an error in the kernel "
        "log"),
    Key(name="ignore", type=ListOf(item=CAUSE),
        text="causes that do not affect health, such as `[xid-63]`"),
    Key(name="unhealthy_in_spec", type=FLAG,
        text="whether unhealthy devices stay in the specs. With `true`, each service decides which "
        "containers get these devices"),
    Key(name="kernel_log", type=FLAG,
        text="whether cdigen reads the kernel's log, where drivers report most errors; a change takes "
        "effect at the next start"),
)

PAGE_KEYS = (
    Key(name="http_port_shows_names", type=FLAG,
        text="whether the page at `http_port`, which every user can read, shows names of pods, containers "
        "and processes"),
    Key(name="sockets", type=ListOf(item=PATH),
        text="API sockets of engines that the open page queries: `[/run/podman/podman.sock, "
        "/run/docker.sock]`"),
)

KEYS = (
    Key(name="vendors", type=ListOf(item=VENDOR),
        default="nvidia, amd, intel", example="[nvidia, amd, intel]",
        text="the vendors whose devices cdigen discovers, such as `[nvidia]`; vendors of other packages must "
        "be named"),
    Key(name="spec_dirs", type=ListOf(item=PATH, at_least=1),
        text="the spec directories in rising priority; cdigen writes specs into the last directory"),
    Key(name="state_dir", type=PATH,
        text="the folder of cdigen's records and views; a user who may not write it uses "
        "`$XDG_STATE_HOME/cdigen`"),
    Key(name="driver_root", type=PATH,
        text="the folder that contains the driver's files, such as `/run/nvidia/driver` of a driver "
        "container"),
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
        text="the kind of host: `auto`, `gpu`, `wsl` (WSL2), `csv` (Tegra); `management`: only the kind for "
        "administrators"),
    Key(name="nvml", type=choice("auto", "off", or_path="the path of a library"),
        text="whether cdigen queries NVML: `auto`, `off`, or the path of a library. With `auto`, cdigen "
        "loads the host's own library, never a library below another root or driver root. NVML has the MIG "
        "UUIDs and numbers, and the UUIDs of GPUs that are not used yet. The library, its folders and links "
        "must belong to root, and only root may write to them"),
    Key(name="target", type=ListOf(item=TARGET),
        text="the runtime releases that read the specs, such as `[podman-4.2]`"),
    Key(name="mps_pipe_dir", type=PATH, default="none", example="/tmp/nvidia-mps",  # noqa: S108 - NVIDIA's default
        text="the pipe directory of the Multi-Process Service, for profiles with `mps: true`; the path must "
        "not contain a link"),
    Key(name="mps_uid", type=ID, text="the user besides root who may own `mps_pipe_dir`"),
    Key(name="hook", type=PATH, text="the hook that `make install-hook` installs"),
    Key(name="hook_python", type=PATH,
        text="the Python that runs the hook; may be a copy that containers cannot read "
        f"({page_url('how-to/start-up-hook')})"),
    Key(name="nvidia_hook", type=PATH, text="NVIDIA's hook, for profiles with `hook: nvidia`"),
    Key(name="copy_driver_files", type=FLAG,
        text="whether cdigen may copy the driver's files (some 700 MB) into a view if links and reflinks "
        "are impossible"),
    Key(name="vendor_options", type=VENDOR_OPTIONS, default="none",
        text="options of single vendors: `{amd: {rocm_libraries: true}, intel: {vfio: true}}`"),
    Key(name="devices", type=Table(keys=DEVICES_KEYS, cls=DevicesConfig), default="see its section",
        text="the devices that no container gets"),
    Key(name="profiles", type=Rows(keys=PROFILE_KEYS, cls=Profile, at_least=1),
        default="one, `gpu`, with everything", example="[{name: default, class: gpu}]",
        text="the kinds of specs"),
    Key(name="daemon", type=Table(keys=DAEMON_KEYS, cls=DaemonConfig), default="see its section",
        text="the times and the run directory of `cdigen run`"),
    Key(name="health", type=Table(keys=HEALTH_KEYS, cls=HealthConfig), default="see its section",
        text="the rules of device health"),
    Key(name="page", type=Table(keys=PAGE_KEYS, cls=PageConfig), default="see its section",
        text="settings of the daemon's page, which shows the users of devices"),
    Key(name="nri", type=Table(keys=NRI_KEYS, cls=NriConfig), default="no container gets a device",
        text="the devices that the NRI plugin injects into containers"),
    Key(name="kubelet", type=Table(keys=KUBELET_KEYS, cls=KubeletConfig), default="see its section",
        text="the resources that `cdigen kubelet` advertises to the kubelet"),
)
# fmt: on
