"""Read and save the sizes of the memory units of GPUs, in the state directory.

    {"schema": 1, "sizes": {"<the GPU in the kubelet's device IDs>": <MiB>}}

The kubelet keeps device IDs after restarts and reboots, but a device ID does not contain the size. cdigen
ignores a damaged file.
"""

from __future__ import annotations

import json

from cdigen.model.errors import StoreError
from cdigen.model.strict import InvalidValue, members, number
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned
from cdigen.store.snapshot import take_snapshot
from cdigen.store.tempfiles import replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "unit-sizes.json"
SCHEMA = 1


def read(state_dir: str) -> dict[str, int]:
    """Return the sizes in MiB by GPU. Without saved sizes, the result is empty."""
    try:
        with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
            content = None if directory is None else take_snapshot(directory, FILE).content
        top = members(json.loads(content or b""), "$", {"schema", "sizes"})
        sizes = top["sizes"]
        if top["schema"] != SCHEMA or not isinstance(sizes, dict):
            raise InvalidValue("$", "of this schema")
        return {gpu: number(size, f"$.sizes.{gpu}") for gpu, size in sizes.items()}
    except (StoreError, ValueError, RecursionError):
        return {}


def save(state_dir: str, sizes: Mapping[str, int]) -> None:
    """Replace the saved sizes with SIZES in one step. Raises StoreError if the file cannot be written."""
    content = json.dumps({"schema": SCHEMA, "sizes": dict(sizes)}, indent=1).encode("ascii") + b"\n"
    with open_owned(state_dir, what=STATE_DIRECTORY) as directory:
        replace_file(directory, FILE, content)
