"""Select a vendor's accelerators for each spec.

GPUs get one spec per profile. Each other device class gets a spec with its own CDI kind. The result depends
only on the inventory and the profiles.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.model.inventory import Accelerator
    from cdigen.model.profile import Profile

GPU = "gpu"
# Device classes, other than GPU, of the vendors in the tree.
OTHERS = frozenset(("npu", "gaudi", "gpu-mei"))


def by_class(
    accelerators: Iterable[Accelerator], profiles: tuple[Profile, ...]
) -> Iterator[tuple[str, Profile, tuple[Accelerator, ...]]]:
    """Yield the device class, the profile and the accelerators of each spec.

    A profile for another device class than GPU, such as ``npu``, applies only to that class. A device class
    without its own profile gets the first profile.
    """
    every = tuple(accelerators)
    classes = dict.fromkeys(each.device_class for each in every if each.device_class != GPU)
    for profile in profiles:
        if profile.device_class not in classes:
            yield profile.device_class, profile, tuple(each for each in every if each.device_class == GPU)
    own = {profile.device_class: profile for profile in profiles}
    for device_class in classes:
        those = tuple(each for each in every if each.device_class == device_class)
        yield device_class, own.get(device_class, profiles[0]), those
