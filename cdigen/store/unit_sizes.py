"""Read and save of which size the units of GPUs' memory are that containers may have, in the state directory.

    {"schema": 1, "sizes": {"<the GPU as the kubelet's ids have it>": <MiB>}}

The kubelet keeps ids over restarts and reboots, and they do not tell it. A damaged file is as good as none.
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
    """Return the sizes in MiB by GPU, nothing where none are kept."""
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
    """Replace the sizes on the disk by SIZES, in one step. StoreError: they cannot be written."""
    content = json.dumps({"schema": SCHEMA, "sizes": dict(sizes)}, indent=1).encode("ascii") + b"\n"
    with open_owned(state_dir, what=STATE_DIRECTORY) as directory:
        replace_file(directory, FILE, content)
