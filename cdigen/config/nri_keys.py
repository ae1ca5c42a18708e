"""The keys of the section ``nri`` (see ``config.keys``)."""

from __future__ import annotations

from cdigen.config.settings import ANNOTATIONS, SOURCES, AllowRule, GpuKind
from cdigen.config.types import (
    FLAG,
    HANDLER,
    KIND,
    KIND_PATTERN,
    LABELS,
    NAMESPACE,
    PATH,
    PORT,
    Key,
    ListOf,
    Rows,
    choice,
    number,
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
    Key(name="allow", type=Rows(keys=ALLOW_KEYS, cls=AllowRule), default="none: no request",
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
    Key(name="gpu_kinds", type=Rows(keys=GPU_KIND_KEYS, cls=GpuKind),
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
