"""Find the links without a version that lead to the driver's libraries (``add_links``)."""

from __future__ import annotations

from cdigen.host.root import is_plain
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.nvidia.files.libraries import LibrarySearch


def add_links(search: LibrarySearch, folder: str, names: list[str]) -> None:
    """Add the links in FOLDER without the driver's version, such as ``libcuda.so``, to the found libraries.

    NAMES are the names in FOLDER. Programs load libraries by such names, and link with them. A link that
    leads to another file than a found library is ignored.
    """
    by_path = {file.host_path: soname for soname, (file, _, _) in search.found.items()}
    stems = {soname.partition(".so")[0] for soname in search.found}
    for name in names:
        stem, _, suffix = name.partition(".so")
        path = f"{folder}/{name}"
        if stem not in stems or name in search.found or suffix == f".{search.driver.version}":
            continue
        try:
            soname = by_path.get(search.root.host_path(search.root.resolve(path)))
        except OSError:
            continue
        if soname is not None and is_plain(name) and search.root.is_link(path):
            file, row, needed = search.found[soname]
            if name not in file.names and name != file.host_path.rpartition("/")[2]:
                search.found[soname] = (replace(file, names=(*file.names, name)), row, needed)
