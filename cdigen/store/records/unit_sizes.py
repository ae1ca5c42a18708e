"""The sizes of the memory units of GPUs, in the state directory.

    {"schema": 1, "sizes": {"<the GPU in the kubelet's device IDs>": <MiB>}}

The kubelet keeps device IDs after restarts and reboots, but a device ID does not contain the size. cdigen
ignores a damaged file.
"""

from __future__ import annotations

from cdigen.model.strict import mapping, number
from cdigen.store.records.state_file import StateFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "unit-sizes.json"
_DOCUMENT = StateFile(FILE, {"sizes": mapping(number)})


def read(state_dir: str) -> dict[str, int]:
    """Return the sizes in MiB by GPU. Without saved sizes, the result is empty."""
    sizes: dict[str, int] = _DOCUMENT.read_valid(state_dir).get("sizes", {})
    return sizes


def save(state_dir: str, sizes: Mapping[str, int]) -> None:
    """Replace the saved sizes with SIZES in one step. Raises StoreError if the file cannot be written."""
    _DOCUMENT.save(state_dir, sizes=dict(sizes))
