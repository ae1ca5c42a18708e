"""What a configuration says, ``Settings``, with the default of every key (see ``config.keys``)."""

from __future__ import annotations

from cdigen.model.profile import DEFAULT, Profile
from cdigen.value import frozen, replace
from cdigen.vendors.base import NO_OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PATH = "/etc/cdigen/config.yaml"
# Of a configuration file, in bytes.
MAX_SIZE = 1 << 20
# The directories of every CDI library, in rising priority (container-device-interface, pkg/cdi).
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")
STATE_DIR = "/var/lib/cdigen"
# The kinds of host; ``auto`` detects it.
MODES = ("auto", "gpu", "wsl", "csv", "management")
# How a container asks the NRI plugin for devices, the first that does counting alone: by its pod's
# annotations, by mounts of /dev/null, by its environment.
SOURCES = ("annotation", "mounts", "environment")
# Whose annotations count: cdigen's own, those of NVIDIA's plugin, those of NRI's sample device injector.
ANNOTATIONS = ("cdigen", "nvidia", "noderesource")
# How `cdigen kubelet` names CDI devices to the kubelet; families of devices beside GPUs that it may add.
ANSWERS = ("cdi_devices", "annotation")
FAMILIES = ("imex", "gds", "gdrcopy", "mofed")
MIG_STRATEGIES = ("none", "single", "mixed")
MAX_REPLICAS = 5_000


@frozen
class DaemonConfig:
    """How ``cdigen run`` waits (times are seconds), and where it keeps its status."""

    debounce_s: float = 0.2
    max_delay_s: float = 5.0
    settle_timeout_s: float = 30.0
    backoff_min_s: float = 0.5
    backoff_max_s: float = 10.0
    poll_s: float = 1.25
    resync_s: float = 300.0
    stale_specs: str = "withdraw"
    run_dir: str = "/run/cdigen"
    http_port: int = 0
    figure_metrics: bool = False


@frozen
class HealthConfig:
    """What makes a device unhealthy, until when, and what follows of it."""

    quiet_minutes: float = 5.0
    probe_minutes: float = 10.0
    ignore: tuple[str, ...] = ()
    in_spec: bool = True
    kernel_log: bool = True


@frozen
class PageConfig:
    """Whom the daemon's page tells who has which device."""

    names_on_port: bool = False
    sockets: tuple[str, ...] = ()


@frozen
class AllowRule:
    """Which containers may request devices: all conditions must match; no handlers or labels means any.

    ``privileged`` means privileged containers alone.
    No ``kinds`` means those that variables can name: the spec directories have other devices as well, above
    all those of other pods' claims (DRA).
    """

    namespaces: tuple[str, ...]
    runtime_handlers: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    privileged: bool = False
    sources: tuple[str, ...] = SOURCES
    kinds: tuple[str, ...] = ()


def matches(text: str, patterns: tuple[str, ...]) -> bool:
    """Return whether TEXT, a namespace or a kind, is one of PATTERNS, or begins as one that ends in ``*``."""
    # Runtimes without namespaces leave theirs empty; only "*" means these, too.
    return any(
        text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern for pattern in patterns
    )


@frozen
class GpuKind:
    """A kind of NVIDIA GPUs and the driver capabilities that it gives; none means all but compat32."""

    kind: str
    capabilities: tuple[str, ...] = ()


@frozen
class NriConfig:
    """The policy of the NRI plugin; without ``allow`` nobody gets anything.

    No ``gpu_kinds`` means those of the profiles.
    """

    allow: tuple[AllowRule, ...] = ()
    management_namespaces: tuple[str, ...] = ()
    management_kinds: tuple[str, ...] = (
        "nvidia.com/management",
        "nvidia.com/mig",
        "nvidia.com/nvswitch",
        "management.nvidia.com/*",
        "intel.com/gpu-mei",
    )
    annotations: tuple[str, ...] = ANNOTATIONS
    default_action: str = "ignore"
    gpu_kinds: tuple[GpuKind, ...] = ()
    narrow: bool = False
    require: str = "enforce"
    unsupported_cdi: str = "refuse"
    nodes_without_driver: str = "files"
    socket: str = "/var/run/nri/nri.sock"
    index: int = 20
    run_dir: str = "/run/cdigen-nri"
    http_port: int = 0


@frozen
class ResourceRow:
    """Which devices pods ask for by the resource ``name``: all conditions must match, none matches any.

    ``kind`` also says which of their CDI names they are given by. In ``models`` and ``profiles`` a ``*``
    stands for any text, and the profile ``none`` for whole devices; ``devices`` are UUIDs, PCI addresses,
    indices or CDI names.
    """

    name: str
    kind: str = ""
    models: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    min_memory_gb: int = 0
    max_memory_gb: int = 0


@frozen
class SharingRow:
    """By how many containers a device of ``resource`` may be used at a time; no ``devices`` means all.

    Shared ones are units of the resource ``rename``, if it is given. ``mps``: by way of a control daemon of
    NVIDIA's Multi-Process Service.
    """

    resource: str
    replicas: int
    devices: tuple[str, ...] = ()
    rename: str = ""
    mps: bool = False


@frozen
class SharedMemory:
    """Which GPUs are offered by their memory: ``unit`` is ``none``, or a unit's size (``GiB``, ``256MiB``).

    ``devices`` are UUIDs, PCI addresses, indices or CDI names, none means all; ``resource`` are the units,
    ``count`` is the number of GPUs in the node's status. ``namespace`` has the ledgers of the extender.
    ``mps``: by way of a control daemon of NVIDIA's Multi-Process Service, which limits each process.
    """

    unit: str = "none"
    devices: tuple[str, ...] = ()
    resource: str = "aliyun.com/gpu-mem"
    count: str = "aliyun.com/gpu-count"
    namespace: str = "cdigen"
    mps: bool = False


@frozen
class KubeletConfig:
    """What `cdigen kubelet` offers to the kubelet, and what it answers."""

    mig_strategy: str = "mixed"
    amd_strategy: str = "single"
    resources: tuple[ResourceRow, ...] = ()
    ignore: tuple[str, ...] = ()
    sharing: tuple[SharingRow, ...] = ()
    shared_memory: SharedMemory = SharedMemory()
    rename_shared: bool = False
    single_shares: bool = False
    shared_allocation: str = "distributed"
    nvidia_config: str = ""
    answer: tuple[str, ...] = ("cdi_devices", "annotation")
    environment: bool = False
    device_nodes: bool = False
    families: tuple[str, ...] = ()
    mps_root: str = "/run/nvidia/mps"
    labels: str = ""
    run_dir: str = "/run/cdigen-kubelet"
    http_port: int = 0


@frozen
class Settings:
    """The configuration; the field names are the keys of the file."""

    vendors: tuple[str, ...] = ()
    spec_dirs: tuple[str, ...] = SPEC_DIRS
    state_dir: str = STATE_DIR
    driver_root: str = "/"
    dev_root: str = ""
    container_driver_root: str = "/"
    library_search_paths: tuple[str, ...] = ()
    binary_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()
    mode: str = "auto"
    nvml: str = "auto"
    create_nodes: bool = False
    mps_pipe_dir: str = ""
    mps_uid: int = 0
    hook: str = "/usr/libexec/cdigen/cdigen-hook"
    hook_python: str = "/usr/bin/python3"
    nvidia_hook: str = "/usr/bin/nvidia-cdi-hook"
    view_copies: bool = False
    vendor_options: Mapping[str, Mapping[str, bool | str]] = NO_OPTIONS
    profiles: tuple[Profile, ...] = (DEFAULT,)
    daemon: DaemonConfig = DaemonConfig()
    health: HealthConfig = HealthConfig()
    page: PageConfig = PageConfig()
    nri: NriConfig = NriConfig()
    kubelet: KubeletConfig = KubeletConfig()

    @property
    def offered_profiles(self) -> tuple[Profile, ...]:
        """The profiles, that of the class ``gpu`` narrow where ``nri`` says so."""
        return tuple(
            replace(profile, narrow=self.nri.narrow and profile.device_class == DEFAULT.device_class)
            for profile in self.profiles
        )
