"""What a configuration says, ``Settings``, with the default of every key (see ``config.keys``)."""

from __future__ import annotations

from cdigen.model.profile import DEFAULT, Profile
from cdigen.value import frozen
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
# How a container asks the NRI plugin for devices: by its pod's annotations, or by its environment.
SOURCES = ("annotation", "environment")
# Whose annotations count: cdigen's own, those of NVIDIA's plugin, those of NRI's sample device injector.
ANNOTATIONS = ("cdigen", "nvidia", "noderesource")


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


@frozen
class AllowRule:
    """Which containers may request devices: all conditions must match; no handlers or labels means any.

    No ``kinds`` means those that variables can name: the spec directories have other devices as well, above
    all those of other pods' claims (DRA).
    """

    namespaces: tuple[str, ...]
    runtime_handlers: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = SOURCES
    kinds: tuple[str, ...] = ()


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
    require: str = "enforce"
    unsupported_cdi: str = "refuse"
    socket: str = "/var/run/nri/nri.sock"
    index: int = 20
    run_dir: str = "/run/cdigen-nri"
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
    nri: NriConfig = NriConfig()
