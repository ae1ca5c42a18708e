"""The plugin's configuration, which may change while it runs: ``Configuration``."""

from __future__ import annotations

import os

from cdigen.config import RULE
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.config import Settings
    from cdigen.frontend.earlylog import EarlyLog
    from cdigen.nri.plugin_config import PluginConfig

# The rule of a finding: nobody may have devices.
ALLOWS_NOBODY = "nri-allows-nobody"


class Configuration:
    """The configuration that LOAD reads, which is told if this is the first time; LOG is told of changes.

    ``current`` is the last one that was right. LOAD raises a CdigenError: the first time that is passed on.
    """

    def __init__(self, load: Callable[[bool], PluginConfig], log: EarlyLog) -> None:
        self._load = load
        self.current = load(True)  # noqa: FBT003 - its own signature
        self._log = log
        self._file: tuple[int, ...] = ()
        self._misconfigured: tuple[Finding, ...] = ()
        self._idle: tuple[Finding, ...] = ()

    def problems(self) -> tuple[Finding, ...]:
        """Return what is wrong with it."""
        return *self._misconfigured, *self._idle

    def refresh(self, *, is_reload: bool) -> None:
        """Read it if it has changed, or IS_RELOAD; one that is wrong is reported, and changes nothing."""
        path = self.current.watched[0]
        file = _identity(path)
        # Where a container waits for devices, an unchanged configuration is not parsed again.
        if not is_reload and file == self._file:
            return
        self._file = file
        try:
            config = self._load(False)  # noqa: FBT003 - its own signature
            if not any(_identity(path)) and _allows_any(self.current.settings):
                was = "is empty" if os.path.lexists(path) else "was deleted"
                then = "from the plugin's next start on nobody may have devices"
                raise ConfigError(f"{path} {was}; {then}", hint="write 'nri: {}' into it to let nobody ask")
        except CdigenError as error:
            counts = "whoever asks is refused" if self.current.problem else "the last good one does"
            self.misconfigure(f"the configuration does not count, {counts}: {error.message}", error.hint)
            return
        if (changed := _fixed(config)) != _fixed(self.current):
            self._log.warning("configuration", message="takes effect at the next start", fixed=changed)
        self.current = config
        self._misconfigured = ()
        self.note_policy()

    def note_policy(self) -> None:
        """Say that nobody may have devices, where that is so."""
        idle: tuple[Finding, ...] = ()
        if not _allows_any(self.current.settings) and not self.current.problem:
            path = self.current.watched[0]
            why = f"'nri: allow' in {path} is empty" if os.path.exists(path) else f"there is no {path}"
            message = f"no container may have devices: {why}"
            hint = "say who may in 'nri: {allow: ...}' (docs/nri.md)"
            idle = (Finding(severity="warning", rule=ALLOWS_NOBODY, path=path, message=message, hint=hint),)
            if idle != self._idle:
                self._log.warning("configuration", message=message, hint=hint)
        self._idle = idle

    def misconfigure(self, message: str, hint: str = "") -> None:
        """Note and log that it is wrong."""
        path = self.current.watched[0]
        problems = (Finding(severity="error", rule=RULE, path=path, message=message, hint=hint),)
        if problems != self._misconfigured:
            self._log.error("configuration", message=message, hint=hint)
        self._misconfigured = problems


def _identity(path: str) -> tuple[int, ...]:
    """Return what tells one content of the file PATH from another; nothing but zeros where it has none.

    It is empty as well while somebody writes it in place.
    """
    try:
        found = os.stat(path)
    except OSError:
        return (0,)
    return (found.st_size and found.st_ctime_ns, found.st_size, found.st_size and found.st_ino)


def _allows_any(settings: Settings) -> bool:
    return bool(settings.nri.allow or settings.nri.management_namespaces)


def _fixed(config: PluginConfig) -> str:
    """Return what counts from the start on."""
    place = config.endpoint.path or "the runtime's socket"
    return f"{place}, index {config.index}, {config.run_dir}, HTTP port {config.settings.nri.http_port}"
