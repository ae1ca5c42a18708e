"""``ActiveConfiguration``: the last valid configuration of a process, and the errors of an invalid one."""

from __future__ import annotations

import os
import time
from typing import Generic, Protocol, TypeVar

from cdigen.config import RULE
from cdigen.host.filetimes import shows_changes
from cdigen.model.errors import CdigenError
from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.service.process.buffered_log import Logger

_PREVIOUS = "invalid configuration ignored, the previous one stays active"


class WatchedConfig(Protocol):
    """The settings of a process, from the files ``watched``. The first file is cdigen's configuration."""

    @property
    def watched(self) -> tuple[str, ...]:
        """The paths of the files. A file may be missing."""


Config = TypeVar("Config", bound=WatchedConfig)


class ActiveConfiguration(Generic[Config]):
    """The last valid configuration of a process, as ``current``.

    LOAD reads the configuration. The argument of LOAD is true in the first call. The constructor raises the
    CdigenError of this first call. Later, a CdigenError of LOAD or CHECK is logged once, and ``current`` does
    not change. CHECK gets ``current`` and the new configuration. NOTES returns the findings on a valid
    configuration; new findings are logged. FIXED returns the settings that take effect only at a start, in
    one line. ``watched`` are the files to watch.
    """

    def __init__(
        self,
        load: Callable[[bool], Config],
        log: Logger,
        *,
        check: Callable[[Config, Config], object] = lambda _before, _new: None,
        notes: Callable[[Config], tuple[Finding, ...]] = lambda _: (),
        fixed: Callable[[Config], str] = lambda _: "",
    ) -> None:
        self._load, self._check, self._notes_on, self._fixed = load, check, notes, fixed
        self._log = log
        began_ns = time.time_ns()
        self.current = load(True)  # noqa: FBT003 - LOAD has a positional argument
        self.watched = self.current.watched
        files = identities(self.watched)
        # If a file may have changed since the call of LOAD, the first ``refresh`` reads the files again.
        is_settled = all(shows_changes(file[0], began_ns) for file in files if file)
        self._files = files if is_settled else ()
        self._effect = _PREVIOUS
        self._invalid: tuple[Finding, ...] = ()
        self._notes: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The error in the present configuration if there is one, and the findings on ``current``."""
        return *self._invalid, *self._notes

    @property
    def is_valid(self) -> bool:
        """Whether ``current`` is the present configuration."""
        return not self._invalid

    def begin(self, effect: str = "", problem: str = "") -> None:
        """Log the findings on the first configuration.

        If that configuration was invalid, PROBLEM is the reason, and EFFECT is the effect until the
        configuration is valid.
        """
        if problem:
            self._report(f"{effect}: {problem}", "")
            self._effect = f"invalid configuration ignored, {effect}"
        self._note()

    def has_changed(self) -> bool:
        """Return whether a file has changed since the last ``refresh``."""
        return identities(self.watched) != self._files

    def refresh(self, *, is_reload: bool = False) -> bool:
        """Read the configuration if a file has changed or IS_RELOAD is true; return whether it was read."""
        files = identities(self.watched)
        # An unchanged file is not parsed again, because a client may wait until this function returns.
        if not is_reload and files == self._files:
            return False
        self._files = files
        try:
            config = self._load(False)  # noqa: FBT003 - LOAD has a positional argument
            if config.watched != self.watched:
                # The files of an invalid configuration are watched, too.
                self.watched, self._files = config.watched, identities(config.watched)
            self._check(self.current, config)
        except CdigenError as error:
            self._report(f"{self._effect}: {error.message}", error.hint)
            return True
        if (fixed := self._fixed(config)) != self._fixed(self.current):
            text = "settings take effect at the next start"
            self._log.warning("configuration", message=text, fixed=fixed)
        self.current, self._invalid = config, ()
        self._effect = _PREVIOUS
        self._note()
        return True

    def _report(self, message: str, hint: str) -> None:
        path = self.watched[0]
        invalid = (Finding(severity="error", rule=RULE, path=path, message=message, hint=hint),)
        if invalid != self._invalid:
            self._log.error("configuration", message=message, hint=hint)
        self._invalid = invalid

    def _note(self) -> None:
        before, self._notes = self._notes, self._notes_on(self.current)
        for one in self._notes:
            if one not in before:
                getattr(self._log, one.severity)("configuration", message=one.message, hint=one.hint)


def identities(paths: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Return a tuple for each file of PATHS; the tuple changes if the content of the file changes."""
    return tuple(map(_identity, paths))


def emptied(path: str) -> str:
    """Return "is empty" or "was deleted" if the file PATH has no content, else ""."""
    if any(_identity(path)):
        return ""
    return "is empty" if os.path.lexists(path) else "was deleted"


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    # The tuple has only zeros while a program that rewrites the file in place has emptied it.
    return (found.st_size and found.st_ctime_ns, found.st_size, found.st_size and found.st_ino)
