"""``Configuration``: the configuration of the plugin, and its reload while the plugin runs."""

from __future__ import annotations

import os

from cdigen.config import RULE
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.config import Settings
    from cdigen.nri.plugin_config import NriPluginConfig
    from cdigen.service.buffered_log import BufferedLogger

# The rule (docs/rules.md) for a configuration that permits devices to no container.
ALLOW_EMPTY = "nri-allow-empty"


class Configuration:
    """The last valid configuration of the plugin, as ``current``.

    LOAD reads the configuration. The argument of LOAD is true in the first call. The constructor raises the
    CdigenError of this first call. LOG gets problems, and changes that have no effect before a restart.
    """

    def __init__(self, load: Callable[[bool], NriPluginConfig], log: BufferedLogger) -> None:
        self._load = load
        self.current = load(True)  # noqa: FBT003 - LOAD has a positional argument
        self._log = log
        self._file: tuple[int, ...] = ()
        self._misconfigured: tuple[Finding, ...] = ()
        self._idle: tuple[Finding, ...] = ()

    def problems(self) -> tuple[Finding, ...]:
        """Return the findings about the configuration."""
        return *self._misconfigured, *self._idle

    def refresh(self, *, is_reload: bool) -> None:
        """Reload the configuration if its file has changed, or if IS_RELOAD is true.

        An invalid configuration is reported, and the previous configuration stays active.
        """
        path = self.current.watched[0]
        file = _identity(path)
        # An unchanged file is not parsed again, because a container may wait until this function returns.
        if not is_reload and file == self._file:
            return
        self._file = file
        try:
            config = self._load(False)  # noqa: FBT003 - LOAD has a positional argument
            if not any(_identity(path)) and _allows_any(self.current.settings):
                state = "is empty" if os.path.lexists(path) else "was deleted"
                effect = "after the next start of the plugin no container may have devices"
                raise ConfigError(f"{path} {state}; {effect}", hint=f"write 'nri: {{}}' into {path}")
        except CdigenError as error:
            effect = (
                "every request for devices is refused"
                if self.current.problem
                else "the previous one stays active"
            )
            self.misconfigure(f"invalid configuration ignored, {effect}: {error.message}", error.hint)
            return
        if (changed := _fixed_values(config)) != _fixed_values(self.current):
            message = "the changed values take effect at the next start"
            self._log.warning("configuration", message=message, fixed=changed)
        self.current = config
        self._misconfigured = ()
        self.note_policy()

    def note_policy(self) -> None:
        """Report a policy that permits devices to no container."""
        idle: tuple[Finding, ...] = ()
        if not _allows_any(self.current.settings) and not self.current.problem:
            path = self.current.watched[0]
            why = f"'nri: allow' in {path} is empty" if os.path.exists(path) else f"{path} does not exist"
            message = f"no container may have devices: {why}"
            hint = "nri: {allow: [{namespaces: [NAME]}]}"
            idle = (Finding(severity="warning", rule=ALLOW_EMPTY, path=path, message=message, hint=hint),)
            if idle != self._idle:
                self._log.warning("configuration", message=message, hint=hint)
        self._idle = idle

    def misconfigure(self, message: str, hint: str = "") -> None:
        """Store and log an error about the configuration with the text MESSAGE."""
        path = self.current.watched[0]
        problems = (Finding(severity="error", rule=RULE, path=path, message=message, hint=hint),)
        if problems != self._misconfigured:
            self._log.error("configuration", message=message, hint=hint)
        self._misconfigured = problems


def _identity(path: str) -> tuple[int, ...]:
    """Return a value that changes when the content of the file PATH changes.

    The value has only zeros if the file does not exist or is empty. A file is also empty while an editor
    rewrites it in place.
    """
    try:
        found = os.stat(path)
    except OSError:
        return (0,)
    return (found.st_size and found.st_ctime_ns, found.st_size, found.st_size and found.st_ino)


def _allows_any(settings: Settings) -> bool:
    return bool(settings.nri.allow or settings.nri.management_namespaces)


def _fixed_values(config: NriPluginConfig) -> str:
    """Return the values that the plugin uses only at its start."""
    address = config.endpoint.path or "the runtime's socket"
    return f"{address}, index {config.index}, {config.run_dir}, HTTP port {config.settings.nri.http_port}"
