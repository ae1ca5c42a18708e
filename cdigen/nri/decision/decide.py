"""``decide``: a pure function that selects the devices of a container, or refuses the container.

The first step selects the requests that the policy permits (``permitted``). The second step removes the
requests for devices that the container already has (``existing_devices``). The third step resolves the
remaining requests to CDI devices (``select``). The last step compares the requirements of the image with the
driver and the GPUs (``requirements``). ``cdigen resolve`` prints the decision.
"""

from __future__ import annotations

from functools import partial

from cdigen.model.names import NONE
from cdigen.nri.decision.limits.existing_devices import GPU, ExistingDevices, is_gpu
from cdigen.nri.decision.limits.permitted import PermittedRequests
from cdigen.nri.decision.request import environment, mounts, requirements
from cdigen.nri.decision.request.device_request import DeviceRequest, is_nvidia, is_nvidia_gpu
from cdigen.nri.decision.request.host_gpus import ALL
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.nri.decision.request.select import Choice, choose
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.nri.decision.limits.policy import InjectionPolicy
    from cdigen.nri.decision.request.host_gpus import HostGpus
    from cdigen.nri.decision.request.requirements import DriverFacts
    from cdigen.nri.decision.request.select import DeviceNames
    from cdigen.nri.pods import Container, Pod

    Outcome = Literal["nothing", "served", "inject", "refuse"]

# Values of the metric label ``cause`` (docs/reference/nri.md, "Causes"). If a policy only warns, the
# label also has values of REFUSAL_CAUSES.
IGNORED_REQUEST_CAUSES = (
    "not_permitted", "request_cancelled", "served", "nodes_without_driver", "none", "no_spec", "no_compat32",
    "requirement_unknown", "unknown_volume", "raw_groups", "raw_rdt", "raw_permissions", "raw_owner",
)  # fmt: skip


@frozen
class IgnoredRequest:
    """A request, or a part of a request, that has no effect.

    ``cause`` is a value of IGNORED_REQUEST_CAUSES or REFUSAL_CAUSES.
    """

    cause: str
    text: str


@frozen
class InjectionDecision:
    """The decision about one container.

    ``outcome`` is "nothing" if the container has no permitted request. It is "served" if the container
    already has the requested devices. It is "inject" if cdigen injects ``choices``. It is "refuse" if the
    container must not start. ``cause`` and ``reason`` describe a refusal.
    """

    outcome: Outcome
    choices: tuple[Choice, ...] = ()
    cause: str = ""
    reason: str = ""
    ignored_requests: tuple[IgnoredRequest, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """The qualified names of the devices to inject, without repetitions."""
        return tuple(choice.device for choice in self.choices)


def decide(
    pod: Pod, container: Container, *, policy: InjectionPolicy, names: DeviceNames, host_gpus: HostGpus
) -> InjectionDecision:
    """Return the decision about CONTAINER in POD.

    NAMES are the CDI devices of the host. HOST_GPUS are the GPUs of the host.
    """
    run = _DecisionRun(pod, container, policy, names, host_gpus)
    try:
        return run.decision()
    except InjectionRefusal as refusal:
        return InjectionDecision(
            outcome="refuse",
            cause=refusal.cause,
            reason=refusal.reason,
            ignored_requests=tuple(run.ignored_requests),
        )


class _DecisionRun:
    """One decision in progress; ``ignored_requests`` collects the requests without effect."""

    def __init__(
        self, pod: Pod, container: Container, policy: InjectionPolicy, names: DeviceNames, host_gpus: HostGpus
    ) -> None:
        self._container = container
        self._policy = policy
        self._names = names
        self._host_gpus = host_gpus
        self._gpus = frozenset(gpu_kind.kind for gpu_kind in policy.gpu_kinds)
        self._variables = environment.read_variables(container.env, policy.vendor_variables)
        self.ignored_requests: list[IgnoredRequest] = []
        # The callback has a reference to the list, and not to self. A reference cycle would keep the pod in
        # memory until the next garbage collection. A pod can have several megabytes.
        self._ignore = partial(_add_ignored, self.ignored_requests)
        self._requests = PermittedRequests(
            pod, container, policy=policy, names=names, on_ignored=self._ignore
        )

    def decision(self) -> InjectionDecision:
        source, items = self._requests.permitted(self._variables)
        visible = self._variables.values.get(environment.VISIBLE)
        existing = ExistingDevices(self._container, visible, self._gpus, self._policy.vendor_variables)
        if not items:
            # The environment may come from a spec of GPUs, if the container already has GPUs.
            gpus = DeviceRequest(token=ALL, kind="", origin=environment.VISIBLE)
            return self._end("served" if visible == "void" and existing.sign_of(gpus) else "nothing")
        missing, gpu_without_driver = self._missing_requests(items, existing)
        if any(item.token == mounts.ROOT for item in missing):
            raise self._requests.missing_list()
        choices = choose(
            missing,
            gpu_kinds=self._gpu_kinds(source, missing),
            names=self._names,
            host_gpus=self._host_gpus,
            other_kinds=self._policy.vendor_variables.kinds,
        )
        choices += self._driver_choice(gpu_without_driver, choices, source)
        if not choices and missing:
            self._ignore("none", "no GPU is requested, and no spec has a device for the driver's files")
            return self._end("nothing")
        if not choices:
            return self._end("served")
        self._require(choices)
        return self._end("inject", choices)

    def _end(self, outcome: Outcome, choices: tuple[Choice, ...] = ()) -> InjectionDecision:
        return InjectionDecision(
            outcome=outcome, choices=choices, ignored_requests=tuple(self.ignored_requests)
        )

    def _missing_requests(
        self, items: tuple[DeviceRequest, ...], existing: ExistingDevices
    ) -> tuple[tuple[DeviceRequest, ...], DeviceRequest | None]:
        """Return the ITEMS whose devices are not in EXISTING, and a request for a GPU or None.

        The second value is the first request for a GPU that the container already has. It is None if there is
        no such request, or if the container has the driver's files.
        """
        missing, gpu = [], None
        for item in items:
            nodes: tuple[str, ...] = ()
            if item.kind in self._gpus:
                nodes = self._host_gpus.nodes(item.token, accepts_prefix=bool(item.alias))
            sign = existing.sign_of(item, nodes)
            if not sign:
                missing.append(item)
                continue
            self._ignore("served", f"{quote(item.token)} ({item.origin}) is already injected: {sign}")
            if is_gpu(item.kind or GPU, self._gpus):
                gpu = gpu or item
        return tuple(missing), gpu if gpu and existing.lacks_driver() else None

    def _driver_choice(
        self,
        gpu: DeviceRequest | None,
        choices: tuple[Choice, ...],
        source: str,
    ) -> tuple[Choice, ...]:
        """Return the device that adds the driver's files to a container with only the device nodes of a GPU.

        GPU is the request for the GPU, or None. The result is empty if GPU is None, if one of CHOICES injects
        these files, or if the policy only warns. Raise InjectionRefusal if no spec defines such a device, or
        if the policy refuses containers without the files.
        """
        if gpu is None or any(is_gpu(choice.kind, self._gpus) for choice in choices):
            return ()
        text = "the container has device nodes of GPUs, and no sign of the driver's files"
        mode = self._policy.settings.nodes_without_driver
        if mode == "warn":
            # This entry is the first in the list, because the log shows only the first ignored requests.
            self.ignored_requests.insert(0, IgnoredRequest(cause="nodes_without_driver", text=text))
            return ()
        if mode == "refuse":
            raise InjectionRefusal("nodes_without_driver", text)
        kinds = self._gpu_kinds(source, (gpu,)) or (gpu.kind,)
        device = next((device for kind in kinds if (device := self._names.find(kind, NONE))), "")
        if not device:
            raise InjectionRefusal(
                "nodes_without_driver", f"{text}; no spec defines a device such as {kinds[0]}={NONE}"
            )
        return (Choice(device=device, token=gpu.token, origin=gpu.origin),)

    def _gpu_kinds(self, source: str, items: tuple[DeviceRequest, ...]) -> tuple[str, ...]:
        # If all requests have a kind, the choice of a kind is not necessary.
        if all(item.kind for item in items):
            return ()
        kinds = self._policy.kinds_with(self._capabilities(), self._requests.grant, source)
        # The kinds in ITEMS come first. Devices of two kinds would inject the driver's files twice.
        named = {item.kind for item in items}
        return tuple(sorted(kinds, key=lambda kind: kind not in named))

    def _capabilities(self) -> tuple[str, ...]:
        """Return the requested capabilities, without ``compat32`` if no kind has 32-bit libraries.

        NVIDIA's runtime also ignores ``compat32`` if the host has no 32-bit libraries (libnvidia-container,
        src/nvc_info.c).
        """
        requested = environment.capabilities(self._variables)
        compat32 = environment.COMPAT32
        if compat32 not in requested or any(
            compat32 in gpu_kind.capabilities for gpu_kind in self._policy.gpu_kinds
        ):
            return requested
        text = f"{environment.CAPABILITIES}: no kind of GPUs has 32-bit libraries ({compat32})"
        self._ignore("no_compat32", text)
        return tuple(word for word in requested if word != compat32)

    def _require(self, choices: tuple[Choice, ...]) -> None:
        """Check the requirements of the image.

        Raise InjectionRefusal if a requirement is not met and the policy enforces requirements.
        """
        mode = self._policy.settings.image_requirements
        nvidia_choices = [choice for choice in choices if is_nvidia(choice.kind)]
        if mode == "off" or not nvidia_choices:
            return
        try:
            rows = environment.requirements(self._variables)
            if not rows:
                return
            self._host_gpus.require_known(rows)
            self._check(rows, nvidia_choices)
        except InjectionRefusal as refusal:
            if mode == "enforce":
                raise
            self._ignore(refusal.cause, refusal.reason)

    def _check(self, rows: tuple[tuple[str, str], ...], choices: list[Choice]) -> None:
        candidates = self._facts(choices)
        for name, text in rows:
            requirement = requirements.parse(text)
            for device, facts in candidates:
                if not requirements.holds(name, requirement, facts):
                    gpu = f"GPU {device}" if device and device != NONE else "the host"
                    has = facts.text(brand=" or ".join(facts.brands))
                    raise InjectionRefusal("requirement", f"{name}={quote(text)} is not met: {gpu} has {has}")
            unknown = requirements.unknown(requirement, candidates[0][1])
            if unknown:
                self._ignore(
                    "requirement_unknown", f"{name}: {', '.join(unknown)} not checked (unknown on this host)"
                )

    def _facts(self, choices: list[Choice]) -> list[tuple[str, DriverFacts]]:
        """Return the facts of each model among the chosen GPUs, as pairs of GPU name and facts.

        If no GPU is chosen, the result has only the facts of the driver.
        """
        found: dict[tuple[str, tuple[str, ...]], tuple[str, DriverFacts]] = {}
        for choice in choices:
            kind, _, name = choice.device.partition("=")
            if not is_nvidia_gpu(kind):
                continue
            gpu = self._host_gpus.find(name)
            for each in self._host_gpus.models if name == ALL else (gpu,) if gpu else ():
                # GPUs of one model have equal facts, so one GPU represents the model.
                found.setdefault((each.facts.arch, each.facts.brands), (each.names[0], each.facts))
        return list(found.values()) or [("", self._host_gpus.facts)]


def _add_ignored(ignored_requests: list[IgnoredRequest], cause: str, text: str) -> None:
    ignored_requests.append(IgnoredRequest(cause=cause, text=text))
