"""The OCI runtimes that a container runtime knows by name: ``oci_runtimes`` returns ``OciRuntime`` values.

Such as ``nvidia``, NVIDIA's wrapper around runc. Each runtime's reader knows where its files list them.
"""

from __future__ import annotations

from cdigen.runtimes.documents import lookup
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


@frozen
class OciRuntime:
    """An OCI runtime by the name that containers ask for; ``path`` is its program, empty if none is given.

    ``files``: those that register it, or name it as the default, in the order in which they are read.
    """

    name: str
    path: str
    files: tuple[str, ...]
    is_default: bool


def oci_runtimes(
    said: Iterable[tuple[str, object, object]], program: tuple[str, ...]
) -> tuple[OciRuntime, ...]:
    """Return the runtimes by name, each from the last file that sets it.

    SAID: for each file its name, its table of runtimes and the name of its default runtime, or None. PROGRAM:
    the keys from a runtime's table to its program. Values of another type are ignored.
    """
    paths: dict[str, str] = {}
    files: dict[str, dict[str, None]] = {}
    default = ""
    for file, table, named in said:
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
