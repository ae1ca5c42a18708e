"""Read and save the names of GPU partitions (``model.partition_names``) in the state directory.

    {"schema": 1, "boot": "<the kernel's boot ID>", "gpus": [{"vendor": "nvidia", ...}]}

The names are valid only in the boot in which cdigen assigned the names. cdigen ignores names of another boot
and a damaged file. If the kernel has no boot ID, cdigen ignores all names.
"""

from __future__ import annotations

import json

from cdigen.host.procfs import boot_id
from cdigen.model.errors import StoreError
from cdigen.model.partition_names import GpuPartitionNames, PartitionName
from cdigen.model.strict import as_json, flag, many, members, number, optional, record, text
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned
from cdigen.store.snapshot import take_snapshot
from cdigen.store.tempfiles import replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

FILE = "partition-names.json"
SCHEMA = 1

_GPUS = many(
    record(
        GpuPartitionNames,
        vendor=text,
        driver=text,
        address=text,
        minor=number,
        uuid=optional(text),
        partitions=many(
            record(
                PartitionName,
                instance=text,
                index=optional(number),
                uuid=optional(text),
                profile=text,
                graphics=flag,
            )
        ),
    )
)


def read(state_dir: str, host: Root) -> tuple[GpuPartitionNames, ...]:
    """Return the names that cdigen assigned in this boot of HOST."""
    try:
        with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
            content = None if directory is None else take_snapshot(directory, FILE).content
        top = members(json.loads(content or b""), "$", {"schema", "boot", "gpus"})
        names: tuple[GpuPartitionNames, ...] = _GPUS(top["gpus"], "$.gpus")
    except (StoreError, ValueError, RecursionError):
        return ()
    boot = boot_id(host)
    return names if boot and (top["schema"], top["boot"]) == (SCHEMA, boot) else ()


def save(state_dir: str, host: Root, names: tuple[GpuPartitionNames, ...]) -> None:
    """Replace the saved names with NAMES in one step. Raises StoreError if the file cannot be written."""
    document = {"schema": SCHEMA, "boot": boot_id(host), "gpus": as_json(names)}
    content = json.dumps(document, indent=1).encode("ascii") + b"\n"
    with open_owned(state_dir, what=STATE_DIRECTORY) as directory:
        replace_file(directory, FILE, content)
