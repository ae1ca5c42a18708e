"""Find the installed runtimes that cannot read the specs of a host."""

from __future__ import annotations

import time

from cdigen.cdi.version import is_newer
from cdigen.host.root import shown
from cdigen.model.findings import Finding
from cdigen.runtimes import installed
from cdigen.runtimes.releases import RuntimeBehaviour, known_issues
from cdigen.runtimes.targets import target_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cdigen.host.root import Root
    from cdigen.runtimes.installed import InstalledRuntime

RULE = "runtime-cannot-read"
# A runtime that reports no version is queried again after this time. On a busy host, a query may exceed its
# deadline.
RETRY_S = 60.0


class UnreadSpecs:
    """The installed runtimes; the version of a runtime is queried again only if its binary has changed.

    A query that returned no version is repeated after ``RETRY_S``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[tuple[int, ...], InstalledRuntime]] = {}
        # The time of the next query of a runtime without a version, by its binary.
        self._retry_at_s: dict[str, float] = {}

    def findings(
        self, host: Root, versions: Mapping[str, str], targets: tuple[str, ...] = ()
    ) -> tuple[Finding, ...]:
        """Return a finding for each runtime of HOST and each spec that the runtime cannot read.

        A finding is a warning, or an error if no installed runtime can read the spec. VERSIONS maps each spec
        file to its cdiVersion. The cdiVersion is empty for a kind with its own target. For this kind, only
        runtimes without CDI are reported. TARGETS are the releases of the key ``target``. There is no finding
        for a runtime with an unknown release.
        """
        if not versions:
            return ()
        every = tuple(self._installed(host))
        found = tuple(one for one in every if one.release is not None)
        unread = {
            one: [file for file, version in versions.items() if version and is_newer(version, one.newest)]
            for one in found
            if one.library
        }
        hint = target_key((*targets, *(_target(one) for one, files in unread.items() if files)))
        # A runtime with an unknown release may be able to read every spec.
        lost = {
            file
            for file in versions
            if len(found) == len(every) and all(file in files for files in unread.values())
        }
        return (
            *(_without_cdi(one, is_error=lost.issuperset(versions)) for one in found if not one.library),
            *(
                _unread(one, file, versions[file], hint, is_error=file in lost)
                for one, files in unread.items()
                for file in files
            ),
        )

    def _installed(self, host: Root) -> Iterator[InstalledRuntime]:
        for runtime, name in installed.BINARIES.items():
            binary = installed.place(host, name)
            if not binary:
                continue
            try:
                status = host.stat(binary)
            except OSError:
                continue
            identity = (status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size)
            known = self._known.get(binary)
            if known is None or known[0] != identity or self._is_retry_due(binary, known[1]):
                known = self._known[binary] = identity, installed.examine(host, runtime, binary)
                self._retry_at_s[binary] = self._clock() + RETRY_S
            yield known[1]

    def _is_retry_due(self, binary: str, known: InstalledRuntime) -> bool:
        return known.release is None and self._clock() >= self._retry_at_s[binary]


def _target(one: InstalledRuntime) -> str:
    return f"{one.runtime}-{_release(one)}"


def _release(one: InstalledRuntime) -> str:
    return ".".join(map(str, one.release or ()))


def _without_cdi(one: InstalledRuntime, *, is_error: bool) -> Finding:
    issues = known_issues(one.runtime, one.release) if one.release else ()
    return Finding(
        severity="error" if is_error else "warning",
        rule=RULE,
        path=one.binary,
        message=f"{shown(one.binary)}: {one.runtime} {_release(one)} reads no CDI specs",
        hint=next((row.remedy for row in issues if row.behaviour is RuntimeBehaviour.NO_CDI), ""),
    )


def _unread(one: InstalledRuntime, file: str, version: str, hint: str, *, is_error: bool) -> Finding:
    return Finding(
        severity="error" if is_error else "warning",
        rule=RULE,
        path=file,
        message=f"{shown(file)}: {one.runtime} {_release(one)} ignores this file: the cdiVersion is "
        f"{version}, and the runtime reads {one.newest} at most",
        hint=hint,
    )
