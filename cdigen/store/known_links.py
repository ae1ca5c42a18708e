"""Read and save links between GPUs, and memory sizes of GPUs (``model.known_links``), in the state directory.

    {"schema": 1, "boot": "<the kernel's boot ID>", "links": [{"vendor": "nvidia", ...}]}

cdigen ignores links of another boot and a damaged file. If the kernel has no boot ID, cdigen ignores all
links.
"""

from __future__ import annotations

import json
from functools import lru_cache

from cdigen.host.procfs import boot_id
from cdigen.model.errors import StoreError
from cdigen.model.inventory_json import LINKS
from cdigen.model.known_links import GpuLinks, KnownLinks
from cdigen.model.strict import as_json, many, members, number, optional, record, text
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned
from cdigen.store.snapshot import take_snapshot
from cdigen.store.tempfiles import replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

FILE = "links.json"
SCHEMA = 1

_LINKS = many(
    record(
        KnownLinks,
        vendor=text,
        load=text,
        about=many(text),
        queried_s=number,
        requery_after_s=number,
        gpus=many(
            record(
                GpuLinks,
                address=text,
                links=LINKS,
                island=text,
                memory_mib=optional(number),
            )
        ),
    )
)


def read(state_dir: str, host: Root) -> tuple[KnownLinks, ...]:
    """Return the links that cdigen saved in this boot of HOST."""
    try:
        with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
            content = None if directory is None else take_snapshot(directory, FILE).content
        schema, boot, links = _parsed(content or b"")
    except (StoreError, ValueError, RecursionError):
        return ()
    now = boot_id(host)
    return links if now and (schema, boot) == (SCHEMA, now) else ()


# The daemon reads the file in every cycle, and the file rarely changes.
@lru_cache(maxsize=1)
def _parsed(content: bytes) -> tuple[object, object, tuple[KnownLinks, ...]]:
    """Return the schema, boot ID and links of a document.

    Raises ValueError or RecursionError if the document is invalid.
    """
    top = members(json.loads(content), "$", {"schema", "boot", "links"})
    return top["schema"], top["boot"], _LINKS(top["links"], "$.links")


def save(state_dir: str, host: Root, links: tuple[KnownLinks, ...]) -> None:
    """Replace the saved links with LINKS in one step. Raises StoreError if the file cannot be written."""
    document = {"schema": SCHEMA, "boot": boot_id(host), "links": as_json(links)}
    content = json.dumps(document, indent=1).encode("ascii") + b"\n"
    with open_owned(state_dir, what=STATE_DIRECTORY) as directory:
        replace_file(directory, FILE, content)
