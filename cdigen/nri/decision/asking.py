"""Whether a container asks for anything that counts: ``needs_decision``. Pure, and needs nothing of the host.

Most containers do not: they are answered at once, whatever state the specs are in.
"""

from __future__ import annotations

from cdigen.nri.decision import request
from cdigen.nri.decision.decide import ANNOTATION, ENVIRONMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.decision.policy import Policy
    from cdigen.nri.pods import Container, Pod


def needs_decision(pod: Pod, container: Container, policy: Policy) -> bool:
    """Return whether what CONTAINER asks for may give it a device, or refuse it, by POLICY."""
    grant = policy.grant(pod)
    is_annotated = request.requesting_annotations(
        pod.annotations, container.name, policy.settings.annotations
    )
    if is_annotated and (grant.counts(ANNOTATION) or policy.settings.default_action == "refuse"):
        return True
    return grant.counts(ENVIRONMENT) and _by_variable(container)


def requests_devices(pod: Pod, container: Container) -> bool:
    """Return whether CONTAINER asks for anything in any way, wherever that counts."""
    return bool(
        request.requesting_annotations(pod.annotations, container.name, tuple(request.PREFIXES))
    ) or _by_variable(container)


def _by_variable(container: Container) -> bool:
    return request.environment_requests_devices(request.variables(container.env))
