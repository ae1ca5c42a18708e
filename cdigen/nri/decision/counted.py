"""Which of a container's requests count: ``CountedRequests``. Pure.

Of annotations, device lists by volume mounts and the environment the first that does counts alone, as with
NVIDIA's runtime (nvidia-container-toolkit 1.20, internal/config/image/cuda_image.go, VisibleDevices); whether
one does is what the policy says.
"""

from __future__ import annotations

from functools import partial

from cdigen.nri.decision import environment, existing_devices, mounts
from cdigen.nri.decision.annotations import by_annotation, requesting_annotations
from cdigen.nri.decision.policy import ANNOTATION, ENVIRONMENT, MOUNTS
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.nri.decision.request import bounded, is_nvidia

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.decision.policy import Grant, Policy
    from cdigen.nri.decision.request import DeviceRequest
    from cdigen.nri.decision.select import DeviceNames
    from cdigen.nri.pods import Container, Pod


class CountedRequests:
    """The requests of a container on a host with NAMES; NOTE is told the cause and what does not count."""

    def __init__(
        self,
        pod: Pod,
        container: Container,
        *,
        policy: Policy,
        names: DeviceNames,
        note: Callable[[str, str], None],
    ) -> None:
        self.grant: Grant = policy.grant(pod, container)
        self._pod = pod
        self._container = container
        self._policy = policy
        self._names = names
        self._note = note

    def counted(self, given: environment.Variables) -> tuple[str, tuple[DeviceRequest, ...]]:
        """Return the source by which GPUs are asked for, and all that counts; raises Refusal.

        The annotations are the source; without any the mounts; without these the environment.
        """
        annotated, name = self._pod.annotations, self._container.name
        readers = self._policy.settings.annotations
        found = requesting_annotations(annotated, name, readers)
        if found and self.grant.counts(ANNOTATION):
            items = by_annotation(annotated, name, readers)
            if not items:
                self._overrule(found[0][0], given)
            return ANNOTATION, self._permitted(ANNOTATION, items)
        if found:
            self._not_allowed(found[0][0])
        lists = self._lists()
        by_variables = self._by_variables(given, lists)
        if lists.gpus:
            listed = (*lists.gpus, *lists.channels, *environment.switches(given))
            return MOUNTS, bounded((*self._permitted(MOUNTS, listed), *by_variables))
        # Channels are given beside GPUs alone.
        channels = (
            lists.channels
            if any(is_nvidia(item.kind or existing_devices.GPU) for item in by_variables)
            else ()
        )
        return ENVIRONMENT, bounded((*by_variables, *self._permitted(MOUNTS, channels)))

    def _lists(self) -> mounts.DeviceLists:
        """Return what mounts ask for, if that counts."""
        if not mounts.lists_devices(self._container.mounts):
            return mounts.NO_LISTS
        if self.grant.counts(MOUNTS):
            return mounts.by_mounts(self._container.mounts)
        self._note("not_counted", f"mounts in {mounts.ROOT} do not count in {self._where()}")
        return mounts.NO_LISTS

    def _by_variables(
        self, given: environment.Variables, lists: mounts.DeviceLists
    ) -> tuple[DeviceRequest, ...]:
        """Return what variables ask for and the policy allows, beside LISTS."""
        if not environment.requests_devices(given):
            return ()
        if not self.grant.counts(ENVIRONMENT):
            if not lists.gpus:
                self._note("not_counted", f"the environment does not count in {self._where()}")
            return ()
        items = environment.by_environment(
            given, gpus_listed=bool(lists.gpus), channels_listed=bool(lists.channels)
        )
        permits = partial(self.grant.permits, ENVIRONMENT)
        others = self._policy.makers.requests(given.others, self._names, permits, self._note)
        return self._permitted(ENVIRONMENT, bounded((*items, *others)))

    def unlisted(self) -> Refusal:
        """Return why there is no list where NVIDIA_VISIBLE_DEVICES says that mounts have it."""
        if not self.grant.counts(MOUNTS) and mounts.lists_devices(self._container.mounts):
            why = f"which do not count in {self._where()}: add 'mounts' to the 'sources' of a row of 'allow'"
            return Refusal(
                "not_permitted", f"{environment.VISIBLE} asks for the mounts in {mounts.ROOT}, {why}"
            )
        return Refusal(
            "unknown_device",
            f"{environment.VISIBLE} asks for the mounts in {mounts.ROOT}, and none asks for a GPU",
        )

    def _overrule(self, name: str, given: environment.Variables) -> None:
        """Note that the annotation NAME, which is empty, takes back what else asks."""
        is_spec = given.values.get(environment.VISIBLE) == "void"
        by_variable = environment.requests_devices(given) and not is_spec and self.grant.counts(ENVIRONMENT)
        by_mount = mounts.lists_devices(self._container.mounts) and self.grant.counts(MOUNTS)
        if by_variable or by_mount:
            other = "mounts do" if by_mount else "the environment does"
            self._note("overruled", f"the annotation {name} is empty, so that {other} not count")

    def _is_there(self, item: DeviceRequest) -> bool:
        """Return whether the host has what ITEM means, or has to; not, with a note, a family that it lacks.

        NVIDIA's runtime gives then what there is, which is nothing (nvidia-container-toolkit 1.20, gatedlib
        of pkg/nvcdi), and its device plugin switches on GDS, MOFED and GDRCopy on every host (0.19.0 to
        0.19.2, by default).
        """
        if item.origin not in environment.SWITCHES or self._names.has_kind(item.kind):
            return True
        self._note("no_spec", f"{item.origin} does not count: no spec of {item.kind}")
        return False

    def _not_allowed(self, name: str) -> None:
        text = f"the annotation {name} does not count in {self._where()}"
        if self._policy.settings.default_action == "refuse":
            raise Refusal("default_action", f"{text}: see 'nri' in the configuration of cdigen")
        self._note("not_counted", text)

    def _where(self) -> str:
        handler = self._pod.runtime_handler
        at = f"the namespace {quote(self._pod.namespace)}"
        return f"{at} with the runtime handler {quote(handler)}" if handler else at

    def _permitted(self, source: str, items: tuple[DeviceRequest, ...]) -> tuple[DeviceRequest, ...]:
        """Return those of ITEMS that count. Refusal: one that was named in full does not.

        Variables may stand in an image for every host; what names a kind is meant for this one.
        """
        gpu_kinds = tuple(row.kind for row in self._policy.gpu_kinds)
        permitted: dict[str, bool] = {}
        kept = []
        for item in items:
            kinds = (item.kind,) if item.kind else gpu_kinds
            if item.kind not in permitted:
                permitted[item.kind] = any(self.grant.permits(source, kind) for kind in kinds)
            if permitted[item.kind]:
                if self._is_there(item):
                    kept.append(item)
                continue
            why = (
                f"{item.origin} asks for {quote(item.token)} of {' or '.join(kinds)}, "
                f"which the policy does not allow in {self._where()}"
            )
            if item.qualified:
                raise Refusal("not_permitted", why)
            self._note("not_counted", why)
        return tuple(kept)
