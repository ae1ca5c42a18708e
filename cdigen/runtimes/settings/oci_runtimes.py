"""The OCI runtimes that are registered by name in a container runtime.

An example is ``nvidia``, NVIDIA's wrapper of runc. The module of each container runtime reads the tables of
OCI runtimes.
"""

from __future__ import annotations

from cdigen.runtimes.documents import lookup
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


@frozen
class OciRuntime:
    """An OCI runtime by the name that containers request; ``path`` is its program, or empty if not set.

    ``files`` are the files that register the OCI runtime or select it as the default, in the order in which
    they are read.
    """

    name: str
    path: str
    files: tuple[str, ...]
    is_default: bool


def oci_runtimes(
    tables: Iterable[tuple[str, object, object]], program: tuple[str, ...]
) -> tuple[OciRuntime, ...]:
    """Return the OCI runtimes, sorted by name; the last file that sets an OCI runtime has precedence.

    TABLES has, for each file, the name of the file, its table of runtimes, and the name of its default
    runtime or None. PROGRAM is the nested key of the program in the table of a runtime. Values of a wrong
    type are ignored.
    """
    paths: dict[str, str] = {}
    files: dict[str, dict[str, None]] = {}
    default = ""
    for file, table, named in tables:
        for name, entry in table.items() if isinstance(table, dict) else ():
            path = lookup(entry, program) if isinstance(entry, dict) else None
            paths[name] = path if isinstance(path, str) else paths.get(name, "")
            files.setdefault(name, {})[file] = None
        if isinstance(named, str) and named:
            default = named
            paths.setdefault(named, "")
            files.setdefault(named, {})[file] = None
    return tuple(
        OciRuntime(name=name, path=paths[name], files=tuple(files[name]), is_default=name == default)
        for name in sorted(paths)
    )
