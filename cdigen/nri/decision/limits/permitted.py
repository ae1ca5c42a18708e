"""``PermittedRequests``: the requests of a container that the policy permits.

A container can request devices by annotations, by mounts and by the environment. cdigen reads these sources
in this order. Only the first source that requests devices applies, as in NVIDIA's runtime
(nvidia-container-toolkit 1.20, internal/config/image/cuda_image.go, VisibleDevices). The policy permits or
forbids each source. The class does no I/O.
"""

from __future__ import annotations

from functools import partial

from cdigen.nri.decision.limits import existing_devices
from cdigen.nri.decision.limits.policy import ANNOTATION, ENVIRONMENT, MOUNTS
from cdigen.nri.decision.request import environment, mounts
from cdigen.nri.decision.request.annotations import by_annotation, requesting_annotations
from cdigen.nri.decision.request.device_request import deduplicated, is_nvidia
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.decision.limits.policy import Grant, InjectionPolicy
    from cdigen.nri.decision.request.device_request import DeviceRequest
    from cdigen.nri.decision.request.select import DeviceNames
    from cdigen.nri.pods import Container, Pod


class PermittedRequests:
    """The requests of CONTAINER in POD.

    NAMES are the CDI devices of the host. ON_IGNORED is called with the cause and the text of each ignored
    request.
    """

    def __init__(
        self,
        pod: Pod,
        container: Container,
        *,
        policy: InjectionPolicy,
        names: DeviceNames,
        on_ignored: Callable[[str, str], None],
    ) -> None:
        self.grant: Grant = policy.grant(pod, container)
        self._pod = pod
        self._container = container
        self._policy = policy
        self._names = names
        self._on_ignored = on_ignored

    def permitted(self, variables: environment.Variables) -> tuple[str, tuple[DeviceRequest, ...]]:
        """Return the source of the GPU requests, and all permitted requests.

        The source is ANNOTATION, MOUNTS or ENVIRONMENT. Raise InjectionRefusal for a request that the policy
        refuses.
        """
        annotated, name = self._pod.annotations, self._container.name
        readers = self._policy.settings.annotations
        found = requesting_annotations(annotated, name, readers)
        if found and self.grant.permits_source(ANNOTATION):
            items = by_annotation(annotated, name, readers)
            if not items:
                self._note_cancelled(found[0][0], variables)
            return ANNOTATION, self._filter_permitted(ANNOTATION, items)
        if found:
            self._ignore_annotation(found[0][0])
        lists = self._lists()
        by_variables = self._by_variables(variables, lists)
        if lists.gpus:
            listed = (*lists.gpus, *lists.channels, *environment.switches(variables))
            return MOUNTS, deduplicated((*self._filter_permitted(MOUNTS, listed), *by_variables))
        # IMEX channels are injected only together with GPUs.
        channels = (
            lists.channels
            if any(is_nvidia(item.kind or existing_devices.GPU) for item in by_variables)
            else ()
        )
        return ENVIRONMENT, deduplicated((*by_variables, *self._filter_permitted(MOUNTS, channels)))

    def _lists(self) -> mounts.DeviceLists:
        """Return the requests in the mounts, or NO_LISTS if the policy does not permit this source."""
        if not mounts.lists_devices(self._container.mounts):
            return mounts.NO_LISTS
        if self.grant.permits_source(MOUNTS):
            return mounts.by_mounts(self._container.mounts)
        self._on_ignored("not_permitted", f"mounts in {mounts.ROOT} ignored: {self._no_rule(source=MOUNTS)}")
        return mounts.NO_LISTS

    def _by_variables(
        self, variables: environment.Variables, lists: mounts.DeviceLists
    ) -> tuple[DeviceRequest, ...]:
        """Return the permitted requests in VARIABLES; LISTS are the requests in mounts."""
        if not environment.requests_devices(variables):
            return ()
        if not self.grant.permits_source(ENVIRONMENT):
            if not lists.gpus and environment.names_devices(variables):
                self._on_ignored("not_permitted", f"variables ignored: {self._no_rule(source=ENVIRONMENT)}")
            return ()
        items = environment.by_environment(
            variables, gpus_listed=bool(lists.gpus), channels_listed=bool(lists.channels)
        )
        permits = partial(self.grant.permits, ENVIRONMENT)
        others = self._policy.vendor_variables.requests(
            variables.others, self._names, permits, self._on_ignored
        )
        return self._filter_permitted(ENVIRONMENT, deduplicated((*items, *others)))

    def missing_list(self) -> InjectionRefusal:
        """Return the refusal for a variable that requests the mounts, if no permitted mount requests a GPU.

        The variable is NVIDIA_VISIBLE_DEVICES with the value ``mounts.ROOT``.
        """
        request = f"{environment.VISIBLE} requests the mounts in {mounts.ROOT}"
        if not self.grant.permits_source(MOUNTS) and mounts.lists_devices(self._container.mounts):
            return InjectionRefusal("not_permitted", f"{request}: {self._no_rule(source=MOUNTS)}")
        return InjectionRefusal("unknown_device", f"{request}, and no mount requests a GPU")

    def _note_cancelled(self, name: str, variables: environment.Variables) -> None:
        """Report the requests that the empty annotation NAME cancels."""
        by_variable = environment.names_devices(variables) and self.grant.permits_source(ENVIRONMENT)
        by_mount = mounts.lists_devices(self._container.mounts) and self.grant.permits_source(MOUNTS)
        if by_variable or by_mount:
            others = "mounts" if by_mount else "variables"
            self._on_ignored("request_cancelled", f"{others} ignored: the annotation {name} is empty")

    def _is_available(self, item: DeviceRequest) -> bool:
        """Return whether ITEM can be injected; report ITEM as ignored if not.

        The result is false if ITEM comes from a variable of SWITCHES and no spec has the kind of ITEM.
        NVIDIA's runtime also starts the container without the devices (nvidia-container-toolkit 1.20,
        gatedlib of pkg/nvcdi). NVIDIA's device plugin requests GDS, MOFED and GDRCopy on every host by
        default (0.19.0 to 0.19.2).
        """
        if item.origin not in environment.SWITCHES or self._names.has_kind(item.kind):
            return True
        self._on_ignored("no_spec", f"{item.origin} ignored: no spec of {item.kind}")
        return False

    def _ignore_annotation(self, name: str) -> None:
        if self._policy.settings.default_action == "refuse":
            raise InjectionRefusal("default_action", f"annotation {name}: {self._no_rule(source=ANNOTATION)}")
        self._on_ignored("not_permitted", f"annotation {name} ignored: {self._no_rule(source=ANNOTATION)}")

    def _no_rule(self, *kinds: str, source: str = "") -> str:
        """Return a message that no rule permits SOURCE, or KINDS if SOURCE is empty, for this pod."""
        is_management = any(map(self._policy.is_management, kinds))
        key = "nri.management_namespaces" if is_management else "nri.allow"
        what = f"source '{source}'" if source else " or ".join(kinds)
        handler = self._pod.runtime_handler
        where = f"namespace {quote(self._pod.namespace)}"
        where += f" with runtime handler {quote(handler)}" if handler else ""
        return f"no rule in {key} permits {what} in {where}"

    def _filter_permitted(self, source: str, items: tuple[DeviceRequest, ...]) -> tuple[DeviceRequest, ...]:
        """Return the permitted ITEMS; raise InjectionRefusal if a request with a kind is not permitted.

        A forbidden request without a kind is ignored, because it can come from an image for all hosts. A
        request with a kind is for this host.
        """
        gpu_kinds = tuple(row.kind for row in self._policy.gpu_kinds)
        permitted: dict[str, bool] = {}
        kept = []
        for item in items:
            kinds = (item.kind,) if item.kind else gpu_kinds
            if item.kind not in permitted:
                permitted[item.kind] = any(self.grant.permits(source, kind) for kind in kinds)
            if permitted[item.kind]:
                if self._is_available(item):
                    kept.append(item)
                continue
            message = f"{item.origin} requests {quote(item.token)}: {self._no_rule(*kinds)}"
            if item.qualified:
                raise InjectionRefusal("not_permitted", message)
            self._on_ignored("not_permitted", message)
        return tuple(kept)
