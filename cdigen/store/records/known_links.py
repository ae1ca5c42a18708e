"""Links between GPUs, and memory sizes of GPUs (``model.saved.known_links``), in the state directory.

    {"schema": 1, "boot": "<the kernel's boot ID>", "links": [{"vendor": "nvidia", ...}]}

cdigen ignores links of another boot and a damaged file. If the kernel has no boot ID, cdigen ignores all
links.
"""

from __future__ import annotations

from cdigen.host.procfs import boot_id
from cdigen.model.inventory_json import LINKS
from cdigen.model.saved.known_links import GpuLinks, KnownLinks
from cdigen.model.strict import many, text, typed_record
from cdigen.store.records.state_file import StateFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

FILE = "links.json"

_LINKS = typed_record(KnownLinks, gpus=many(typed_record(GpuLinks, links=LINKS)))
# The daemon reads the file in every cycle, and the file rarely changes.
_DOCUMENT = StateFile(FILE, {"boot": text, "links": many(_LINKS)}, is_cached=True)


def read(state_dir: str, host: Root) -> tuple[KnownLinks, ...]:
    """Return the links that cdigen saved in this boot of HOST."""
    found, boot = _DOCUMENT.read_valid(state_dir), boot_id(host)
    return found["links"] if boot and found.get("boot") == boot else ()


def save(state_dir: str, host: Root, links: tuple[KnownLinks, ...]) -> None:
    """Replace the saved links with LINKS in one step. Raises StoreError if the file cannot be written."""
    _DOCUMENT.save(state_dir, boot=boot_id(host), links=links)
