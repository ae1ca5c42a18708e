"""Whether a container asks for anything that counts: ``counts``. Pure, and known before any look at the host.

Most containers do not: they are answered at once, whatever state the specs are in.
"""

from __future__ import annotations

from cdigen.nri import request
from cdigen.nri.decide import ANNOTATION, ENVIRONMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.pods import Container, Pod
    from cdigen.nri.policy import Policy


def counts(pod: Pod, container: Container, policy: Policy) -> bool:
    """Return whether what CONTAINER asks for may give it a device, or refuse it, by POLICY."""
    grant = policy.grant(pod)
    is_annotated = request.annotated(pod.annotations, container.name, policy.settings.annotations)
    if is_annotated and (grant.counts(ANNOTATION) or policy.settings.elsewhere == "refuse"):
        return True
    return grant.counts(ENVIRONMENT) and _by_variable(container)


def asks(pod: Pod, container: Container) -> bool:
    """Return whether CONTAINER asks for anything in any way, wherever that counts."""
    return bool(request.annotated(pod.annotations, container.name, tuple(request.PREFIXES))) or _by_variable(
        container
    )


def _by_variable(container: Container) -> bool:
    return request.asks_by_environment(request.variables(container.env))
