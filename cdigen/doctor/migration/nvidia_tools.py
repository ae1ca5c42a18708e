"""The files and settings of NVIDIA's tools for containers, which inject GPUs without cdigen."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.doctor.context import Context
    from cdigen.doctor.spec_documents import ExaminedSpec
    from cdigen.runtimes.settings.oci_runtimes import OciRuntime

# nvidia-container-toolkit 1.18 and later have both units.
REFRESH_UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
PODMAN_HOOKS = (
    "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "/etc/containers/oci/hooks.d/oci-nvidia-hook.json",
)
VOID = "NVIDIA_VISIBLE_DEVICES=void"


def bare_specs(context: Context) -> list[ExaminedSpec]:
    """Return the specs of NVIDIA's devices that are in use and do not set ``VOID``."""
    used = [spec for spec in context.specs if spec.is_used and "nvidia" in spec.kind]
    return [spec for spec in used if VOID not in spec.edits("env")]


def is_of_nvidia(runtime: OciRuntime) -> bool:
    """Return whether RUNTIME is NVIDIA's wrapper of runc, under any name."""
    return "nvidia" in f"{runtime.name} {runtime.path}"
