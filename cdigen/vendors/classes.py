"""Sort a vendor's accelerators by the kinds that offer them: GPUs by profile, other classes by themselves.

Pure: the same inventory and profiles give the same answer on any machine.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.model.inventory import Accelerator
    from cdigen.model.profile import Profile

GPU = "gpu"
# Classes of the tree's vendors that are never GPUs.
OTHERS = frozenset(("npu", "gaudi", "gpu-mei"))


def by_class(
    accelerators: Iterable[Accelerator], profiles: tuple[Profile, ...]
) -> Iterator[tuple[str, Profile, tuple[Accelerator, ...]]]:
    """Yield each class of a kind, the profile that delivers it, and those of ACCELERATORS that it holds.

    A profile of another class than GPUs (``npu``) is that class's own (its names), and no GPU's. Classes
    without such a profile are delivered as the first one says.
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
