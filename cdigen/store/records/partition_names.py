"""The names of GPU partitions (``model.saved.partition_names``) in the state directory.

    {"schema": 1, "boot": "<the kernel's boot ID>", "gpus": [{"vendor": "nvidia", ...}]}

The names are valid only in the boot in which cdigen assigned the names. cdigen ignores names of another boot
and a damaged file. If the kernel has no boot ID, cdigen ignores all names.
"""

from __future__ import annotations

from cdigen.host.procfs import boot_id
from cdigen.model.saved.partition_names import GpuPartitionNames, PartitionName
from cdigen.model.strict import many, text, typed_record
from cdigen.store.records.state_file import StateFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

FILE = "partition-names.json"

_GPU = typed_record(GpuPartitionNames, partitions=many(typed_record(PartitionName)))
_DOCUMENT = StateFile(FILE, {"boot": text, "gpus": many(_GPU)})


def read(state_dir: str, host: Root) -> tuple[GpuPartitionNames, ...]:
    """Return the names that cdigen assigned in this boot of HOST."""
    found, boot = _DOCUMENT.read_valid(state_dir), boot_id(host)
    return found["gpus"] if boot and found.get("boot") == boot else ()


def save(state_dir: str, host: Root, names: tuple[GpuPartitionNames, ...]) -> None:
    """Replace the saved names with NAMES in one step. Raises StoreError if the file cannot be written."""
    _DOCUMENT.save(state_dir, boot=boot_id(host), gpus=names)
