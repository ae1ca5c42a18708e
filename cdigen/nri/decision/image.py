"""``judge_image``: pure functions that add the requests and requirements of an image to a decision.

An image has variables, and can have two labels of nvidia-docker 1.0 (tag v1.0.1, src/nvidia/volumes.go,
src/nvidia-docker/local.go). VOLUMES_LABEL contains the name of the volume with all GPUs and the driver.
CUDA_LABEL contains the CUDA version that the driver must support.
"""

from __future__ import annotations

import re

from cdigen.nri.decision.decide import IgnoredRequest
from cdigen.nri.decision.request import environment, requirements
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.nri.decision.decide import InjectionDecision
    from cdigen.nri.decision.limits.policy import InjectionPolicy
    from cdigen.nri.decision.request.host_gpus import HostGpus
    from cdigen.nri.decision.request.select import Choice

CUDA_LABEL = "com.nvidia.cuda.version"
VOLUMES_LABEL = "com.nvidia.volumes.needed"
# The only volume of nvidia-docker-plugin.
_VOLUME = "nvidia_driver"
_VERSION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})", re.ASCII)


@frozen
class ImageConfig:
    """The configuration of an image, with its environment (``KEY=value``) and its labels."""

    environment: tuple[str, ...]
    labels: Mapping[str, str]

    @property
    def requests_by_label(self) -> bool:
        """Whether the image requests GPUs by a label, and not by a variable.

        Images for nvidia-docker 1.0 use the label.
        """
        has_volume = _VOLUME in self.labels.get(VOLUMES_LABEL, "").split()
        return has_volume and not any(
            entry.startswith(f"{environment.VISIBLE}=") for entry in self.environment
        )

    @property
    def requests(self) -> tuple[str, ...]:
        """The environment, with NVIDIA_VISIBLE_DEVICES=all if the image requests GPUs by the label."""
        return (*self.environment, *((f"{environment.VISIBLE}=all",) if self.requests_by_label else ()))


@frozen
class RequirementResult:
    """The result for one requirement of an image.

    ``origin`` is the variable or label with the requirement ``text``. ``host`` describes the driver and a GPU
    of the host.
    """

    origin: str
    text: str
    is_met: bool
    host: str


def judge_image(
    decision: InjectionDecision,
    image: ImageConfig,
    env: tuple[str, ...],
    *,
    policy: InjectionPolicy,
    host_gpus: HostGpus,
) -> tuple[InjectionDecision, tuple[RequirementResult, ...]]:
    """Return the decision about a container of IMAGE, and the result of each requirement of the image.

    DECISION is the result of ``decide`` for a container with ENV. ENV is the whole environment of the
    container, with ``image.requests``. The requirements are also checked if the policy permits no devices. A
    requirement is met if one GPU of the host meets it. If a requirement is not met and the policy enforces
    requirements, the returned decision is a refusal.
    """
    mode = policy.settings.image_requirements
    noted = replace(
        decision,
        choices=_renamed(decision, image),
        ignored_requests=(*decision.ignored_requests, *_unknown_volumes(image)),
    )
    try:
        rows = _rows(image, environment.read_variables(env, policy.vendor_variables))
        if rows:
            host_gpus.require_known(rows)
        found = tuple(_result(name, text, host_gpus) for name, text in rows)
    except InjectionRefusal as refusal:
        return _unmet(noted, mode, refusal), ()
    unmet = next((row for row in found if not row.is_met), None)
    if unmet is None:
        return noted, found
    reason = f"{unmet.origin}={quote(unmet.text)} is not met: the host has {unmet.host}"
    return _unmet(noted, mode, InjectionRefusal("requirement", reason)), found


def _unmet(decision: InjectionDecision, mode: str, refusal: InjectionRefusal) -> InjectionDecision:
    if decision.outcome == "refuse" or mode == "off":
        return decision
    if mode == "enforce":
        return replace(decision, outcome="refuse", choices=(), cause=refusal.cause, reason=refusal.reason)
    ignored = IgnoredRequest(cause=refusal.cause, text=refusal.reason)
    if ignored in decision.ignored_requests:
        return decision
    return replace(decision, ignored_requests=(*decision.ignored_requests, ignored))


def _rows(image: ImageConfig, env: environment.Variables) -> tuple[tuple[str, str], ...]:
    """Return the requirements of IMAGE, as pairs of an origin (variable or label) and an expression.

    Raise InjectionRefusal if a requirement is invalid.
    """
    rows = environment.requirements(env)
    text = image.labels.get(CUDA_LABEL, "").strip()
    if not text or not env.requires:
        return rows
    if not _VERSION.fullmatch(text):
        raise InjectionRefusal("requirement_malformed", f"{CUDA_LABEL}={quote(text)} is not a version")
    return (*rows, (CUDA_LABEL, f"cuda>={text}"))


def _result(origin: str, text: str, host_gpus: HostGpus) -> RequirementResult:
    requirement = requirements.parse(text)
    models = [gpu.facts for gpu in host_gpus.models] or [host_gpus.facts]
    is_met = any(requirements.holds(origin, requirement, facts) for facts in models)
    host = models[0].text() or "no known properties"
    return RequirementResult(origin=origin, text=text, is_met=is_met, host=host)


def _renamed(decision: InjectionDecision, image: ImageConfig) -> tuple[Choice, ...]:
    if not image.requests_by_label:
        return decision.choices
    label = f"label {VOLUMES_LABEL}"
    return tuple(
        replace(choice, origin=label) if choice.origin == environment.VISIBLE else choice
        for choice in decision.choices
    )


def _unknown_volumes(image: ImageConfig) -> tuple[IgnoredRequest, ...]:
    others = [name for name in image.labels.get(VOLUMES_LABEL, "").split() if name != _VOLUME]
    if not others:
        return ()
    text = f"label {VOLUMES_LABEL}: unknown volume {quote(others[0])} (known: {_VOLUME})"
    return (IgnoredRequest(cause="unknown_volume", text=text),)
