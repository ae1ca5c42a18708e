"""``InjectionPolicy`` and ``Grant``: the requests that the section ``nri:`` of the configuration permits.

A rule permits requests by their source (annotation, mounts or environment) and by the kind of device. The
management kinds are permitted only in ``management_namespaces``, even if another rule permits these kinds.
"""

from __future__ import annotations

from cdigen.config import GpuKind, matches
from cdigen.model.profile import CAPABILITIES, capability_profiles
from cdigen.model.view import DEFAULT_KIND
from cdigen.nri.decision.limits.existing_devices import is_privileged
from cdigen.nri.decision.request import environment, mounts
from cdigen.nri.decision.request.annotations import PREFIXES, requesting_annotations
from cdigen.nri.decision.request.refusal import InjectionRefusal
from cdigen.nri.decision.request.vendor_variables import vendor_variables_of
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import AllowRule, NriConfig, Settings
    from cdigen.model.profile import Profile
    from cdigen.nri.decision.request.vendor_variables import VendorVariables
    from cdigen.nri.pods import Container, Pod

# The vendor part of the GPU kinds.
_VENDOR = DEFAULT_KIND.partition("/")[0]
# The sources of requests.
ANNOTATION, MOUNTS, ENVIRONMENT = "annotation", "mounts", "environment"
# The kinds of SWITCHES, without the kind of NVSwitches, which is a management kind.
_FAMILIES = tuple(kind for _, kind, _ in environment.SWITCHES.values() if kind != "nvidia.com/nvswitch")
_SHOWN = 6


class InjectionPolicy:
    """The rules in SETTINGS.

    ``gpu_kinds`` are the kinds of NVIDIA GPUs. The kinds with the fewest capabilities come first. Each of
    CAPABILITY_KINDS has the GPUs of ``nvidia.com/gpu`` and a part of its driver files. ``gpu_kinds`` contains
    CAPABILITY_KINDS if it contains ``nvidia.com/gpu``. A rule that permits ``nvidia.com/gpu`` also permits
    CAPABILITY_KINDS. ``vendor_variables`` are the variables of other vendors.
    """

    def __init__(
        self,
        settings: NriConfig,
        gpu_kinds: tuple[GpuKind, ...],
        vendor_variables: VendorVariables,
        capability_kinds: tuple[GpuKind, ...] = (),
    ) -> None:
        self.settings = settings
        self.vendor_variables = vendor_variables
        named = {row.kind for row in gpu_kinds}
        self._capability_kinds = tuple(row.kind for row in capability_kinds)
        more = [row for row in capability_kinds if row.kind not in named and DEFAULT_KIND in named]
        full = [replace(row, capabilities=row.capabilities or CAPABILITIES) for row in (*gpu_kinds, *more)]
        self.gpu_kinds = tuple(sorted(full, key=lambda row: len(row.capabilities)))
        default_kinds = (
            *[row.kind for row in self.gpu_kinds],
            environment.IMEX_KIND,
            *_FAMILIES,
            *vendor_variables.default_kinds,
        )
        self._allow = tuple(
            replace(row, kinds=self._with_capability_kinds(row.kinds) or default_kinds)
            for row in settings.allow
        )
        self._management_kinds = self._with_capability_kinds(settings.management_kinds)

    def grant(self, pod: Pod, container: Container | None = None) -> Grant:
        """Return the permissions of CONTAINER in POD.

        If CONTAINER is None, the result has all permissions that a container of POD can have.
        """
        return Grant(
            rows=tuple(row for row in self._allow if _fits(row, pod, container)),
            administers=matches(pod.namespace, self.settings.management_namespaces),
            management_kinds=self._management_kinds,
        )

    def is_management(self, kind: str) -> bool:
        """Return whether KIND is permitted only in ``management_namespaces``."""
        return matches(kind, self._management_kinds)

    def kinds_with(self, capabilities: tuple[str, ...], grant: Grant, source: str) -> tuple[str, ...]:
        """Return the permitted kinds of GPUs that have all CAPABILITIES.

        The kinds with the fewest capabilities come first. Raise InjectionRefusal if there is no such kind.
        """
        fitting = [row.kind for row in self.gpu_kinds if set(capabilities) <= set(row.capabilities)]
        if not fitting:
            known = "; ".join(f"{row.kind}: {','.join(row.capabilities)}" for row in self.gpu_kinds[:_SHOWN])
            text = f"no kind of GPUs has {','.join(capabilities)} ({known})"
            raise InjectionRefusal(
                "no_kind", f"{text}; add such a kind to 'profiles' in cdigen's configuration"
            )
        permitted = tuple(kind for kind in fitting if grant.permits(source, kind))
        if not permitted:
            text = f"no rule permits {' or '.join(fitting[:_SHOWN])}"
            raise InjectionRefusal("not_permitted", f"{text} for the capabilities {','.join(capabilities)}")
        return permitted

    def _with_capability_kinds(self, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """Return the patterns KINDS, and the capability kinds if KINDS match ``nvidia.com/gpu``."""
        return (*kinds, *self._capability_kinds) if matches(DEFAULT_KIND, kinds) else kinds


@frozen
class Grant:
    """The permissions of one pod or container.

    ``rows`` are the matching rules. ``administers`` is true if the namespace is one of
    ``management_namespaces``.
    """

    rows: tuple[AllowRule, ...]
    administers: bool
    management_kinds: tuple[str, ...]

    def permits_source(self, source: str) -> bool:
        """Return whether at least one kind may be requested by SOURCE."""
        return self.administers or any(source in row.sources for row in self.rows)

    def permits(self, source: str, kind: str) -> bool:
        """Return whether a request for devices of KIND by SOURCE is permitted."""
        if matches(kind, self.management_kinds):
            return self.administers
        return any(source in row.sources and matches(kind, row.kinds) for row in self.rows)


def policy_of(settings: Settings) -> InjectionPolicy:
    """Return the policy of SETTINGS.

    If SETTINGS have no ``gpu_kinds``, the policy has the kinds of the profiles.
    """
    profiles = settings.effective_profiles
    kinds = settings.nri.gpu_kinds or _kinds_of(profiles)
    capability_kinds = _kinds_of(capability_profiles(profiles))
    return InjectionPolicy(settings.nri, kinds, vendor_variables_of(settings.vendors), capability_kinds)


def _kinds_of(profiles: tuple[Profile, ...]) -> tuple[GpuKind, ...]:
    return tuple(
        GpuKind(
            kind=f"{_VENDOR}/{profile.device_class}",
            capabilities=(*(profile.capabilities or CAPABILITIES), *(("compat32",) * profile.compat32)),
        )
        for profile in profiles
    )


def needs_decision(pod: Pod, container: Container, policy: InjectionPolicy) -> bool:
    """Return whether cdigen with POLICY may inject devices into CONTAINER, or may refuse CONTAINER.

    The result does not depend on the host. Most containers request nothing, and do not need a decision.
    """
    grant = policy.grant(pod, container)
    is_annotated = requesting_annotations(pod.annotations, container.name, policy.settings.annotations)
    if is_annotated and (grant.permits_source(ANNOTATION) or policy.settings.default_action == "refuse"):
        return True
    if grant.permits_source(MOUNTS) and mounts.lists_devices(container.mounts):
        return True
    return grant.permits_source(ENVIRONMENT) and _by_variable(container, policy.vendor_variables)


def requests_devices(pod: Pod, container: Container) -> bool:
    """Return whether CONTAINER requests devices by any source.

    The result does not depend on permissions. The variables of vendors in other Python packages are not
    checked, because only a policy lists these vendors.
    """
    return (
        bool(requesting_annotations(pod.annotations, container.name, tuple(PREFIXES)))
        or mounts.lists_devices(container.mounts)
        or _by_variable(container, vendor_variables_of())
    )


def _by_variable(container: Container, vendor_variables: VendorVariables) -> bool:
    return environment.requests_devices(environment.read_variables(container.env, vendor_variables))


def _fits(row: AllowRule, pod: Pod, container: Container | None) -> bool:
    return (
        matches(pod.namespace, row.namespaces)
        and (not row.runtime_handlers or pod.runtime_handler in row.runtime_handlers)
        and all(name in pod.labels and value in {pod.labels[name], "*"} for name, value in row.labels)
        and (not row.privileged or container is None or is_privileged(container))
    )
