"""The detection of containers into which another instance of cdigen has injected devices.

During a handover, the runtime calls two instances of cdigen for each new container, one after the other. The
second instance receives the annotations that the first instance set. The second instance does not receive the
CDI devices of the first instance (containerd/nri, pkg/adaptation/result.go, up to 0.12). Therefore an
annotation contains the names of the injected devices.

INJECTED_INTO_ANNOTATION protects against forged annotations. Its value contains the id of the container. The
runtime has just generated this id, so the author of a pod, an image or a checkpoint cannot predict the id.
"""

from __future__ import annotations

import os

from cdigen.nri.decision.result.injection import INJECTED_ANNOTATION
from cdigen.nri.injected_containers import devices_in_marker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.pods import Adjustment, Container

# cdigen sets this annotation together with INJECTED_ANNOTATION. The value is the id of the container, "/",
# and the name of the instance that injected the devices.
INJECTED_INTO_ANNOTATION = "cdigen.dev/injected-into"


def new_instance() -> str:
    """Return a random name for this process of cdigen."""
    return os.urandom(8).hex()


def injected_into(container: Container, instance: str) -> str:
    """Return the value of INJECTED_INTO_ANNOTATION for CONTAINER and INSTANCE."""
    return f"{container.id}/{instance}"


def verified_markers(container: Container) -> tuple[str, ...] | None:
    """Return the devices in INJECTED_ANNOTATION of CONTAINER, or None if the annotation is not valid.

    The result has at most MAX_DEVICES devices. INJECTED_ANNOTATION is valid if INJECTED_INTO_ANNOTATION
    contains the id of CONTAINER. In a container that was restored from a checkpoint, the annotation contains
    the id of another container. In CreateContainer, a valid annotation comes from an instance that the
    runtime called earlier.
    """
    marker = container.annotations.get(INJECTED_ANNOTATION)
    target = container.annotations.get(INJECTED_INTO_ANNOTATION, "")
    return devices_in_marker(marker) if marker is not None and _is_for(target, container) else None


def by_other_instance(
    container: Container, adjustment: Adjustment, *, instance: str
) -> tuple[str, ...] | None:
    """Return the devices in ADJUSTMENT that an instance other than INSTANCE injected, or None.

    The result is None if ADJUSTMENT has no valid annotation of another instance.
    """
    marker = adjustment.annotations.get(INJECTED_ANNOTATION)
    target = adjustment.annotations.get(INJECTED_INTO_ANNOTATION, "")
    if marker is None or not _is_for(target, container) or target == injected_into(container, instance):
        return None
    return tuple(marker.split(","))


def _is_for(target: str, container: Container) -> bool:
    return bool(container.id) and target.partition("/")[0] == container.id
