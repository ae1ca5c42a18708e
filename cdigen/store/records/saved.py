"""The values of ``model.saved`` in the state directory, which are valid only in the boot of their discovery.

    {"schema": 1, "boot": "<the kernel's boot ID>", "gpus": [{"vendor": "nvidia", ...}]}

cdigen ignores values of another boot and a damaged file. If the kernel has no boot ID, cdigen ignores all
values.
"""

from __future__ import annotations

from cdigen.host.procfs import boot_id
from cdigen.model.errors import StoreError
from cdigen.model.findings import finding_of
from cdigen.model.inventory_json import LINKS
from cdigen.model.saved import GpuLinks, GpuPartitionNames, KnownLinks, PartitionName
from cdigen.model.strict import many, text, typed_record
from cdigen.store.records.state_file import StateFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.strict import Reader


class SavedValues:
    """The values in the state file NAME, in its member MEMBER; READER reads each value."""

    def __init__(self, name: str, member: str, reader: Reader, *, is_cached: bool = False) -> None:
        self.name = name
        self._member = member
        self._file = StateFile(name, {"boot": text, member: many(reader)}, is_cached=is_cached)

    def read(self, state_dir: str, host: Root) -> tuple[Any, ...]:
        """Return the values that cdigen saved in this boot of HOST."""
        found, boot = self._file.read_valid(state_dir), boot_id(host)
        values: tuple[Any, ...] = found[self._member] if boot and found.get("boot") == boot else ()
        return values

    def save(self, state_dir: str, host: Root, values: tuple[object, ...]) -> Finding | None:
        """Replace the saved values with VALUES in one step. Return a finding if this fails."""
        try:
            self._file.save(state_dir, **{"boot": boot_id(host), self._member: values})
        except StoreError as error:
            return finding_of(error, f"{state_dir}/{self.name}")
        return None


_NAMES = typed_record(GpuPartitionNames, partitions=many(typed_record(PartitionName)))
PARTITION_NAMES = SavedValues("partition-names.json", "gpus", _NAMES)
_LINKS = typed_record(KnownLinks, gpus=many(typed_record(GpuLinks, links=LINKS)))
# The daemon reads the file in every cycle, and the file rarely changes.
KNOWN_LINKS = SavedValues("links.json", "links", _LINKS, is_cached=True)
