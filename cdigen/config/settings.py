"""``Settings``: the values of the configuration, with the default of every key (see ``config.keys``)."""

from __future__ import annotations

from cdigen.model.profile import DEFAULT, Profile
from cdigen.value import frozen, replace
from cdigen.vendors.context import NO_OPTIONS, DeviceFilter
from cdigen.vendors.registry import MANAGEMENT_KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PATH = "/etc/cdigen/config.yaml"
# The largest configuration file, in bytes.
MAX_SIZE = 1 << 20
# The spec directories of every CDI library, in rising priority (container-device-interface, pkg/cdi).
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")
# The kinds of host; ``auto`` means that cdigen detects the kind.
MODES = ("auto", "gpu", "wsl", "csv", "management")
# The sources of requests to the NRI plugin, in order of priority: annotations of the pod, mounts of
# /dev/null, the environment of the container. Only the first source with a request applies.
SOURCES = ("annotation", "mounts", "environment")
# The annotations that the NRI plugin reads: the annotations of cdigen, of NVIDIA's plugin, and of NRI's
# sample device injector.
ANNOTATIONS = ("cdigen", "nvidia", "noderesource")
# The fields in which `cdigen kubelet` passes CDI names to the kubelet. FAMILIES are groups of other devices
# that a container with a GPU can also get.
DEVICE_LIST_STRATEGIES = ("cdi_devices", "annotation")
FAMILIES = ("imex", "gds", "gdrcopy", "mofed")
MIG_STRATEGIES = ("none", "single", "mixed")
# With more replicas, the list of a single device would be too long for the kubelet (4 MiB, with 63 characters
# in an id and 40 other bytes for each replica).
MAX_REPLICAS = 40_000


@frozen
class DevicesConfig:
    """The devices that no container gets."""

    exclude: tuple[DeviceFilter, ...] = ()


@frozen
class DaemonConfig:
    """The times (in seconds) and the run directory of ``cdigen run``."""

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
    device_metrics: bool = False


@frozen
class HealthConfig:
    """The rules of device health: which causes apply, when they clear, and the effect on specs."""

    clear_after_minutes: float = 5.0
    probe_minutes: float = 10.0
    ignore: tuple[str, ...] = ()
    unhealthy_in_spec: bool = True
    kernel_log: bool = True


@frozen
class PageConfig:
    """The configuration of the daemon's page: the API sockets of engines, and the display of names."""

    http_port_shows_names: bool = False
    sockets: tuple[str, ...] = ()


@frozen
class AllowRule:
    """A rule that permits requests of containers; all conditions of the rule must match.

    Empty ``runtime_handlers`` or ``labels`` match any pod. ``privileged`` permits only privileged containers.
    Empty ``kinds`` permit only the kinds that environment variables can request. The spec directories also
    contain other kinds, such as the devices of other pods' claims (DRA).
    """

    namespaces: tuple[str, ...]
    runtime_handlers: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    privileged: bool = False
    sources: tuple[str, ...] = SOURCES
    kinds: tuple[str, ...] = ()


def matches(text: str, patterns: tuple[str, ...]) -> bool:
    """Return whether TEXT (a namespace or kind) matches one of PATTERNS, which may end with ``*``."""
    # Runtimes without namespaces report an empty namespace. Only "*" matches an empty namespace.
    return any(
        text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern for pattern in patterns
    )


@frozen
class GpuKind:
    """A kind of NVIDIA GPUs; empty ``capabilities`` mean all driver capabilities except compat32."""

    kind: str
    capabilities: tuple[str, ...] = ()


@frozen
class NriConfig:
    """The policy of the NRI plugin; if ``allow`` is empty, no container gets a device.

    Empty ``gpu_kinds`` mean the kinds of the profiles.
    """

    allow: tuple[AllowRule, ...] = ()
    management_namespaces: tuple[str, ...] = ()
    management_kinds: tuple[str, ...] = MANAGEMENT_KINDS
    annotations: tuple[str, ...] = ANNOTATIONS
    default_action: str = "ignore"
    gpu_kinds: tuple[GpuKind, ...] = ()
    restrict_driver_files: bool = False
    image_requirements: str = "enforce"
    unsupported_cdi: str = "refuse"
    nodes_without_driver: str = "files"
    socket: str = "/var/run/nri/nri.sock"
    index: int = 20
    run_dir: str = "/run/cdigen-nri"
    http_port: int = 0


@frozen
class ResourceRow:
    """The conditions for devices of the resource ``name``; all must match; an empty condition matches always.

    ``kind`` also selects the CDI names with which the devices are injected. In ``models`` and ``profiles``, a
    ``*`` matches any text. The profile ``none`` matches whole devices. ``devices`` are UUIDs, PCI addresses,
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
    """The number of containers (``replicas``) that can use a device of ``resource`` at the same time.

    Empty ``devices`` mean all devices. The replicas belong to the resource ``rename``, if ``rename`` is set.
    With ``mps``, containers share a device through a control daemon of NVIDIA's Multi-Process Service.
    """

    resource: str
    replicas: int
    devices: tuple[str, ...] = ()
    rename: str = ""
    mps: bool = False


@frozen
class SharedMemory:
    """The GPUs that are advertised in memory units; ``unit`` is ``none`` or a size (``GiB``, ``256MiB``).

    ``devices`` are UUIDs, PCI addresses, indices or CDI names; empty means all GPUs. ``resource`` is the
    resource of the units. ``count`` is the resource with the number of GPUs in the node's status.
    ``namespace`` contains the ledgers of the extender. With ``mps``, containers share a GPU through a control
    daemon of NVIDIA's Multi-Process Service, which limits each process.
    """

    unit: str = "none"
    devices: tuple[str, ...] = ()
    resource: str = "aliyun.com/gpu-mem"
    count: str = "aliyun.com/gpu-count"
    namespace: str = "cdigen"
    mps: bool = False


@frozen
class KubeletConfig:
    """The resources that ``cdigen kubelet`` advertises, and its responses to the kubelet."""

    mig_strategy: str = "mixed"
    amd_strategy: str = "single"
    resources: tuple[ResourceRow, ...] = ()
    ignore: tuple[str, ...] = ()
    sharing: tuple[SharingRow, ...] = ()
    shared_memory: SharedMemory = SharedMemory()
    rename_shared: bool = False
    fail_requests_greater_than_one: bool = False
    shared_allocation: str = "distributed"
    nvidia_config: str = ""
    device_list_strategy: tuple[str, ...] = ("cdi_devices", "annotation")
    environment: bool = False
    device_nodes: bool = False
    families: tuple[str, ...] = ()
    mps_root: str = "/run/nvidia/mps"
    labels: str = ""
    run_dir: str = "/run/cdigen-kubelet"
    http_port: int = 0


@frozen
class Settings:
    """The configuration; the fields have the names of the keys."""

    vendors: tuple[str, ...] = ()
    spec_dirs: tuple[str, ...] = SPEC_DIRS
    state_dir: str = "/var/lib/cdigen"
    driver_root: str = "/"
    dev_root: str = ""
    container_driver_root: str = "/"
    library_search_paths: tuple[str, ...] = ()
    binary_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()
    mode: str = "auto"
    nvml: str = "auto"
    target: tuple[str, ...] = ()
    mps_pipe_dir: str = ""
    mps_uid: int = 0
    hook: str = "/usr/libexec/cdigen/cdigen-hook"
    hook_python: str = "/usr/bin/python3"
    nvidia_hook: str = "/usr/bin/nvidia-cdi-hook"
    copy_driver_files: bool = False
    vendor_options: Mapping[str, Mapping[str, bool | str]] = NO_OPTIONS
    devices: DevicesConfig = DevicesConfig()
    profiles: tuple[Profile, ...] = (DEFAULT,)
    daemon: DaemonConfig = DaemonConfig()
    health: HealthConfig = HealthConfig()
    page: PageConfig = PageConfig()
    nri: NriConfig = NriConfig()
    kubelet: KubeletConfig = KubeletConfig()

    @property
    def effective_profiles(self) -> tuple[Profile, ...]:
        """The profiles; ``nri.restrict_driver_files`` adds capability kinds to the class ``gpu``."""
        return tuple(
            replace(
                profile,
                has_capability_kinds=self.nri.restrict_driver_files
                and profile.device_class == DEFAULT.device_class,
            )
            for profile in self.profiles
        )
