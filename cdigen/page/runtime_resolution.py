"""``RuntimeResolution``: the devices that installed runtimes find in the specs.

cdigen computes the result with models of the runtimes' loaders. cdigen runs the program of a runtime to read
its version, and runs the program again only if the program's file has changed. A spec file is parsed again
only if the file has changed.
"""

from __future__ import annotations

from cdigen.host.root import Root, shown
from cdigen.page.view import RuntimeView
from cdigen.runtimes import installed, settings
from cdigen.runtimes.releases import RUNTIME_NAMES, library_of, newest_release
from cdigen.runtimes.scan import scan
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.runtimes.users import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.scan import SpecScan

_NAMES = {"podman": "podman", "docker": "Docker", "containerd": "containerd", "cri-o": "CRI-O"}
# Maximum number of problems that are reported for a runtime, and maximum length of a reason.
_MAX_PROBLEMS = 20
_MAX_REASON = 500


class RuntimeResolution:
    """The runtimes of the tree OUTER, and the devices that each runtime finds. Not thread-safe."""

    def __init__(self, outer: str) -> None:
        self._host = Root(outer)
        self._cache = SpecCache()
        # Keys: paths of programs. Values: the identity of the program's file, and the runtime.
        self._known: dict[str, tuple[tuple[int, ...], InstalledRuntime]] = {}

    def resolve(self, names: tuple[str, ...]) -> tuple[RuntimeView, ...]:
        """Return for each runtime how many of the devices NAMES the runtime finds, and the problems."""
        return tuple(self._view(one, names) for one in self._installed())

    def _installed(self) -> Iterable[InstalledRuntime]:
        known, self._known = self._known, {}
        for runtime in RUNTIME_NAMES.values():
            binary = installed.place(self._host, installed.BINARIES[runtime])
            if not binary:
                continue
            identity = _identity(self._host, binary)
            last = known.get(binary)
            one = (
                last[1]
                if last is not None and last[0] == identity
                else installed.examine(self._host, runtime, binary)
            )
            self._known[binary] = identity, one
            yield one

    def _view(self, one: InstalledRuntime, names: tuple[str, ...]) -> RuntimeView:
        library = one.library if one.release else library_of(one.runtime, newest_release(one.runtime))[0]
        version = ".".join(map(str, one.release)) if one.release else ""
        if not library:
            return _none(one, version, names, one.problem)
        read = settings.read(one.runtime, self._host, one.release)
        if read.cdi_enabled is False:
            by = read.source("cdi")
            how = f"by {shown(by)}" if by else "by default"
            return _none(one, version, names, f"CDI is switched off {how}")
        found = scan(
            read.spec_dirs,
            self._host,
            library=library,
            reader=Reader(follows_links=read.follows_links),
            cache=self._cache,
        )
        lost = [name for name in names if found.file(name) is None]
        return RuntimeView(
            name=_NAMES[one.runtime],
            version=version,
            found=len(names) - len(lost),
            offered=len(names),
            problems=_problems(found, lost),
        )


def _identity(host: Root, binary: str) -> tuple[int, ...]:
    try:
        _, status = host.located(binary)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _none(one: InstalledRuntime, version: str, names: tuple[str, ...], why: str) -> RuntimeView:
    return RuntimeView(
        name=_NAMES[one.runtime],
        version=version,
        found=0,
        offered=len(names),
        problems=((one.binary, why[:_MAX_REASON]),),
    )


def _problems(found: SpecScan, lost: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the reasons why the devices LOST are not found, at most _MAX_PROBLEMS.

    A reason that concerns a file is returned once. Any other reason is returned for each device.
    """
    problems: dict[tuple[str, str], None] = {}
    for name in lost:
        why = found.resolve(name)
        problems[why.file or name, why.reason.removeprefix(f"{shown(why.file)}: ")[:_MAX_REASON]] = None
        if len(problems) >= _MAX_PROBLEMS:
            break
    return tuple(problems)
