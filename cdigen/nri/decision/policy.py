"""Which requests for devices count: ``Policy``, by the configuration's ``nri:``, and its ``Grant`` to a pod.

A request counts by its source (annotation or environment) and the kind of device; kinds for administrators
only where their own list of namespaces says so, whatever else is allowed.
"""

from __future__ import annotations

from cdigen.config import GpuKind
from cdigen.model.profile import CAPABILITIES
from cdigen.nri.decision import request
from cdigen.nri.decision.refusal import Refusal
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import AllowRule, NriConfig, Settings
    from cdigen.nri.pods import Container, Pod

NVIDIA = "nvidia.com"
# How a container requests devices.
ANNOTATION, ENVIRONMENT = "annotation", "environment"
# What variables name besides GPUs and single channels; NVSwitches are for those who administer them.
_FAMILIES = tuple(kind for _, kind, _ in request.SWITCHES.values() if kind != "nvidia.com/nvswitch")
_SHOWN = 6


class Policy:
    """What SETTINGS allow; ``gpu_kinds`` are the kinds of NVIDIA GPUs, fewest capabilities first."""

    def __init__(self, settings: NriConfig, gpu_kinds: tuple[GpuKind, ...]) -> None:
        self.settings = settings
        full = [replace(row, capabilities=row.capabilities or CAPABILITIES) for row in gpu_kinds]
        self.gpu_kinds = tuple(sorted(full, key=lambda row: len(row.capabilities)))
        usual = (*[row.kind for row in self.gpu_kinds], request.AMD_KIND, request.IMEX_KIND, *_FAMILIES)
        self._allow = tuple(row if row.kinds else replace(row, kinds=usual) for row in settings.allow)

    def grant(self, pod: Pod) -> Grant:
        """Return what counts for the containers of POD."""
        return Grant(
            rows=tuple(row for row in self._allow if _fits(row, pod)),
            administers=_matches(pod.namespace, self.settings.management_namespaces),
            management_kinds=self.settings.management_kinds,
        )

    def kinds_giving(self, capabilities: tuple[str, ...], grant: Grant, source: str) -> tuple[str, ...]:
        """Return the kinds of GPUs that give CAPABILITIES and are granted, those that give least first.

        Raises Refusal where there is none.
        """
        giving = [row.kind for row in self.gpu_kinds if set(capabilities) <= set(row.capabilities)]
        if not giving:
            offered = "; ".join(
                f"{row.kind}: {','.join(row.capabilities)}" for row in self.gpu_kinds[:_SHOWN]
            )
            text = f"no kind of GPUs gives {','.join(capabilities)} ({offered})"
            raise Refusal("no_kind", f"{text}; 'profiles' in the configuration of cdigen make such kinds")
        granted = tuple(kind for kind in giving if grant.permits(source, kind))
        if not granted:
            text = f"{' or '.join(giving[:_SHOWN])} would give {','.join(capabilities)}"
            raise Refusal("not_permitted", f"{text}, and the policy does not allow that")
        return granted


@frozen
class Grant:
    """What counts for one pod: the rows of the policy that fit it, and whether it administers GPUs."""

    rows: tuple[AllowRule, ...]
    administers: bool
    management_kinds: tuple[str, ...]

    def counts(self, source: str) -> bool:
        """Return whether what SOURCE says counts at all."""
        return self.administers or any(source in row.sources for row in self.rows)

    def permits(self, source: str, kind: str) -> bool:
        """Return whether SOURCE may ask for devices of KIND."""
        if _matches(kind, self.management_kinds):
            return self.administers
        return any(source in row.sources and _matches(kind, row.kinds) for row in self.rows)


def policy_of(settings: Settings) -> Policy:
    """Return the policy that a configuration states; its profiles are the kinds where it names none."""
    profiles = tuple(
        GpuKind(
            kind=f"{NVIDIA}/{profile.device_class}",
            capabilities=(*(profile.capabilities or CAPABILITIES), *(("compat32",) * profile.compat32)),
        )
        for profile in settings.profiles
    )
    return Policy(settings.nri, settings.nri.gpu_kinds or profiles)


def needs_decision(pod: Pod, container: Container, policy: Policy) -> bool:
    """Return whether CONTAINER may get a device or be refused by POLICY, whatever the host has.

    Most containers request nothing: they are answered at once.
    """
    grant = policy.grant(pod)
    is_annotated = request.requesting_annotations(
        pod.annotations, container.name, policy.settings.annotations
    )
    if is_annotated and (grant.counts(ANNOTATION) or policy.settings.default_action == "refuse"):
        return True
    return grant.counts(ENVIRONMENT) and _by_variable(container)


def requests_devices(pod: Pod, container: Container) -> bool:
    """Return whether CONTAINER requests devices in any way, whether that counts or not."""
    return bool(
        request.requesting_annotations(pod.annotations, container.name, tuple(request.PREFIXES))
    ) or _by_variable(container)


def _by_variable(container: Container) -> bool:
    return request.environment_requests_devices(request.variables(container.env))


def _fits(row: AllowRule, pod: Pod) -> bool:
    return (
        _matches(pod.namespace, row.namespaces)
        and (not row.runtime_handlers or pod.runtime_handler in row.runtime_handlers)
        and all(name in pod.labels and value in {pod.labels[name], "*"} for name, value in row.labels)
    )


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    """Return whether TEXT is one of PATTERNS, or begins as one that ends in ``*`` does."""
    # Runtimes without namespaces leave theirs empty; only "*" means these, too.
    return any(
        text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern for pattern in patterns
    )
