"""Containers that another cdigen has given their devices: ``earlier``, ``others`` and ``believed``. Pure.

While one plugin takes the place of another, both are registered with the runtime, which calls one after the
other. A later plugin sees the annotations that earlier ones have set in this very creation, and none of
their CDI devices (containerd/nri, pkg/adaptation/result.go, up to 0.12). So annotations tell what an earlier
one has given, and SEAL makes them true: it names the container by the id that the runtime has just chosen,
which nobody who writes a pod, an image or a checkpoint can know.
"""

from __future__ import annotations

import os

from cdigen.nri.book import marked
from cdigen.nri.decision.answer import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.pods import Adjustment, Container, Pod

# Beside MARK: the id of the container, "/", and which process of cdigen has given it its devices.
SEAL = "cdigen.dev/injected-into"


def new_instance() -> str:
    """Return what tells this process from every other one of cdigen."""
    return os.urandom(8).hex()


def seal(container: Container, instance: str) -> str:
    """Return the SEAL by which others know that INSTANCE has given CONTAINER its devices."""
    return f"{container.id}/{instance}"


def earlier(pod: Pod, container: Container, *, trusts_mark: bool) -> tuple[str, ...] | None:
    """Return the devices that a cdigen called earlier has given CONTAINER in this creation; None: it has not.

    TRUSTS_MARK: one of a version without SEAL may be there; its mark counts unless it may be the pod's own.
    """
    return believed(container, trusts_mark=trusts_mark and MARK not in pod.annotations)


def believed(container: Container, *, trusts_mark: bool) -> tuple[str, ...] | None:
    """Return the devices, cut, that the mark of CONTAINER names; None: it has none that counts.

    TRUSTS_MARK: one without SEAL counts. One with the SEAL of another container never does: it was restored.
    """
    mark, sealed = container.annotations.get(MARK), container.annotations.get(SEAL)
    if mark is None or not (trusts_mark if sealed is None else _is_for(sealed, container)):
        return None
    return marked(mark)


def others(
    container: Container, adjustment: Adjustment, *, instance: str, trusts_mark: bool
) -> tuple[str, ...] | None:
    """Return the devices that another cdigen than INSTANCE has put into ADJUSTMENT; None: none has.

    Only plugins write there, so that a mark without SEAL is of a version that has none, where TRUSTS_MARK.
    """
    mark, sealed = adjustment.annotations.get(MARK), adjustment.annotations.get(SEAL)
    if mark is None:
        return None
    is_theirs = trusts_mark
    if sealed is not None:
        is_theirs = _is_for(sealed, container) and sealed != seal(container, instance)
    return tuple(mark.split(",")) if is_theirs else None


def _is_for(sealed: str, container: Container) -> bool:
    return bool(container.id) and sealed.partition("/")[0] == container.id
