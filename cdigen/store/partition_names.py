"""Read and save the names of GPU partitions (``model.partition_names``) in the state directory.

    {"schema": 1, "boot": "<the kernel's id of the boot>", "gpus": [{"vendor": "nvidia", ...}]}

They hold for the boot in which they were given. What is of another boot or damaged is ignored, and so is
everything where the kernel does not name its boot.
"""

from __future__ import annotations

import json

from cdigen.host.procfs import boot_id
from cdigen.model.errors import StoreError
from cdigen.model.names import is_device_name
from cdigen.model.partition_names import GpuPartitionNames, PartitionName
from cdigen.model.strict import InvalidValue, as_json, flag, many, members, number, optional, record, text
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned
from cdigen.store.snapshot import take_snapshot
from cdigen.store.tempfiles import replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

FILE = "partition-names.json"
SCHEMA = 1


def _device_name(value: object, path: str) -> str:
    name: str = text(value, path)
    if not is_device_name(name):
        raise InvalidValue(path, "the name of a device")
    return name


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
                uuid=optional(_device_name),
                profile=text,
                graphics=flag,
            )
        ),
    )
)


def read(state_dir: str, host: Root) -> tuple[GpuPartitionNames, ...]:
    """Return the names that were given in this boot of HOST; nothing where there are none to be had."""
    try:
        with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
            content = take_snapshot(directory, FILE).content if directory is not None else None
    except StoreError:
        return ()
    try:
        return _names(content, boot_id(host)) if content is not None else ()
    except (ValueError, RecursionError):
        return ()


def save(state_dir: str, host: Root, names: tuple[GpuPartitionNames, ...]) -> None:
    """Replace the names on the disk by NAMES, in one step. StoreError: they cannot be written."""
    document = {"schema": SCHEMA, "boot": boot_id(host), "gpus": as_json(names)}
    content = json.dumps(document, indent=1).encode("ascii") + b"\n"
    with open_owned(state_dir, what=STATE_DIRECTORY) as directory:
        replace_file(directory, FILE, content)


def _names(content: bytes, boot: str) -> tuple[GpuPartitionNames, ...]:
    # ValueError: the document is not what `save` writes.
    top = members(json.loads(content), "$", {"schema", "boot", "gpus"})
    if top["schema"] != SCHEMA or not boot or top["boot"] != boot:
        return ()
    names: tuple[GpuPartitionNames, ...] = _GPUS(top["gpus"], "$.gpus")
    if any(_repeats(gpu) for gpu in names):
        raise InvalidValue("$.gpus", "free of repetition")
    return names


def _repeats(gpu: GpuPartitionNames) -> bool:
    names = [name for part in gpu.partitions for name in (part.index, part.uuid) if name is not None]
    return len(set(names)) < len(names)
