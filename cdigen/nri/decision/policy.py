"""Which requests for devices count: ``Policy``, by the configuration's ``nri:``, and its ``Grant`` to a pod.

A request counts by its source (annotation, mounts or environment) and the kind of device; kinds for
administrators only where their own list of namespaces says so, whatever else is allowed.
"""

from __future__ import annotations

from cdigen.config import GpuKind, matches
from cdigen.model.profile import CAPABILITIES, narrowed
from cdigen.model.view import DEFAULT_KIND
from cdigen.nri.decision import environment, mounts
from cdigen.nri.decision.annotations import PREFIXES, requesting_annotations
from cdigen.nri.decision.makers import makers_of
from cdigen.nri.decision.privileged import is_privileged
from cdigen.nri.decision.refusal import Refusal
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import AllowRule, NriConfig, Settings
    from cdigen.model.profile import Profile
    from cdigen.nri.decision.makers import Makers
    from cdigen.nri.pods import Container, Pod

NVIDIA = "nvidia.com"
# How a container requests devices.
ANNOTATION, MOUNTS, ENVIRONMENT = "annotation", "mounts", "environment"
# What variables name besides GPUs and single channels; NVSwitches are for those who administer them.
_FAMILIES = tuple(kind for _, kind, _ in environment.SWITCHES.values() if kind != "nvidia.com/nvswitch")
_SHOWN = 6


class Policy:
    """What SETTINGS allow; ``gpu_kinds`` are the kinds of NVIDIA GPUs, fewest capabilities first.

    PARTS are kinds that give a part of ``nvidia.com/gpu`` each. They are among the kinds where that one is,
    and allowed to whom it is: they give the same GPUs with less of the driver. ``makers`` are those whose
    variables count besides NVIDIA's.
    """

    def __init__(
        self,
        settings: NriConfig,
        gpu_kinds: tuple[GpuKind, ...],
        makers: Makers,
        parts: tuple[GpuKind, ...] = (),
    ) -> None:
        self.settings = settings
        self.makers = makers
        named = {row.kind for row in gpu_kinds}
        self._parts = tuple(row.kind for row in parts)
        more = [row for row in parts if row.kind not in named and DEFAULT_KIND in named]
        full = [replace(row, capabilities=row.capabilities or CAPABILITIES) for row in (*gpu_kinds, *more)]
        self.gpu_kinds = tuple(sorted(full, key=lambda row: len(row.capabilities)))
        usual = (*[row.kind for row in self.gpu_kinds], environment.IMEX_KIND, *_FAMILIES, *makers.usual)
        self._allow = tuple(
            replace(row, kinds=self._with_parts(row.kinds) or usual) for row in settings.allow
        )
        self._management_kinds = self._with_parts(settings.management_kinds)

    def grant(self, pod: Pod, container: Container | None = None) -> Grant:
        """Return what counts for CONTAINER of POD, without one what may count for any of its containers."""
        return Grant(
            rows=tuple(row for row in self._allow if _fits(row, pod, container)),
            administers=matches(pod.namespace, self.settings.management_namespaces),
            management_kinds=self._management_kinds,
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

    def _with_parts(self, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """Return the patterns KINDS, with the parts of the kind ``nvidia.com/gpu`` where they match it."""
        return (*kinds, *self._parts) if matches(DEFAULT_KIND, kinds) else kinds


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
        if matches(kind, self.management_kinds):
            return self.administers
        return any(source in row.sources and matches(kind, row.kinds) for row in self.rows)


def policy_of(settings: Settings) -> Policy:
    """Return the policy that a configuration states; its profiles are the kinds where it names none."""
    profiles = settings.offered_profiles
    kinds, parts = settings.nri.gpu_kinds or _kinds_of(profiles), _kinds_of(narrowed(profiles))
    return Policy(settings.nri, kinds, makers_of(settings.vendors), parts)


def _kinds_of(profiles: tuple[Profile, ...]) -> tuple[GpuKind, ...]:
    return tuple(
        GpuKind(
            kind=f"{NVIDIA}/{profile.device_class}",
            capabilities=(*(profile.capabilities or CAPABILITIES), *(("compat32",) * profile.compat32)),
        )
        for profile in profiles
    )


def needs_decision(pod: Pod, container: Container, policy: Policy) -> bool:
    """Return whether CONTAINER may get a device or be refused by POLICY, whatever the host has.

    Most containers request nothing: they are answered at once.
    """
    grant = policy.grant(pod, container)
    is_annotated = requesting_annotations(pod.annotations, container.name, policy.settings.annotations)
    if is_annotated and (grant.counts(ANNOTATION) or policy.settings.default_action == "refuse"):
        return True
    if grant.counts(MOUNTS) and mounts.lists_devices(container.mounts):
        return True
    return grant.counts(ENVIRONMENT) and _by_variable(container, policy.makers)


def requests_devices(pod: Pod, container: Container) -> bool:
    """Return whether CONTAINER requests devices in any way, whether that counts or not.

    Not by the variables of vendors that other packages add: which those are nobody knows without a policy.
    """
    return (
        bool(requesting_annotations(pod.annotations, container.name, tuple(PREFIXES)))
        or mounts.lists_devices(container.mounts)
        or _by_variable(container, makers_of())
    )


def _by_variable(container: Container, makers: Makers) -> bool:
    return environment.requests_devices(environment.variables(container.env, makers))


def _fits(row: AllowRule, pod: Pod, container: Container | None) -> bool:
    return (
        matches(pod.namespace, row.namespaces)
        and (not row.runtime_handlers or pod.runtime_handler in row.runtime_handlers)
        and all(name in pod.labels and value in {pod.labels[name], "*"} for name, value in row.labels)
        and (not row.privileged or container is None or is_privileged(container))
    )
