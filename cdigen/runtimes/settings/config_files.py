"""A runtime's configuration, ``RuntimeSettings``; and the reader of its files, ``ConfigFiles``.

Every fault of a file becomes a finding with its name and, if known, the line; missing files are ignored.
Nothing is read through a link that leads out of the host's tree.
"""

from __future__ import annotations

import errno
import os
import re

from cdigen.host.root import DEFAULT_LIMIT, reason, shown
from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.runtimes.documents import parse_json, parse_toml
from cdigen.runtimes.users import ROOT, may_read
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.findings import Severity
    from cdigen.runtimes.settings.oci_runtimes import OciRuntime
    from cdigen.runtimes.users import Reader

# Limit in bytes of one runtime's files, which may be another user's; podman ships 30 kB, containerd dumps 15.
BUDGET = 2 << 20
# Entries of a list. A host has three spec directories.
MAX_TEXTS = 256

# The library's defaults (pkg/cdi, DefaultSpecDirs), lowest priority first.
DEFAULT_DIRS: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")


@frozen
class RuntimeSettings:
    """A runtime's configuration, with the defaults of the release for what is not set.

    ``spec_dirs``: where it looks for specs, priority rising. ``cdi_enabled`` and ``nri_enabled``: None if
    unknown, or if the runtime has no such thing (podman has no NRI). ``follows_links``: whether it
    follows a spec directory that is a symlink. ``files``: the existing files that were read and applied, in
    order. ``edited_file``: the file that ``configure`` writes, a drop-in if the runtime has them;
    ``edited_file_is_read``: the runtime would read it with its present configuration.
    ``has_dirs_key``: whether this release has a key for the spec directories. ``set_by``: pairs of
    ``spec_dirs``, ``cdi``, ``nri`` and the file, or the text ``the command line of FILE``, that sets it,
    without defaults. ``rootless``: whether these are a user's own settings. ``oci_runtimes``: those
    registered by name; podman's are not read.
    """

    runtime: str
    spec_dirs: tuple[str, ...]
    cdi_enabled: bool | None = None
    nri_enabled: bool | None = None
    files: tuple[str, ...] = ()
    edited_file: str = ""
    findings: tuple[Finding, ...] = ()
    edited_file_is_read: bool = True
    follows_links: bool = False
    has_dirs_key: bool = False
    set_by: tuple[tuple[str, str], ...] = ()
    rootless: bool = False
    oci_runtimes: tuple[OciRuntime, ...] = ()

    def source(self, what: str) -> str:
        """Return what sets WHAT (see ``set_by``), an empty text if it is the default."""
        return dict(self.set_by).get(what, "")


class ConfigFiles:
    """The ``files`` read so far, in order, and the ``findings``.

    CONSEQUENCE says what the runtime does with a broken file; READER is the user as whom it reads.
    """

    def __init__(self, host: Root, consequence: str, reader: Reader = ROOT) -> None:
        self.host = host
        self.reader = reader
        self.consequence = consequence
        self.files: list[str] = []
        self.findings: list[Finding] = []
        self._texts: dict[str, str] = {}
        self._left = BUDGET

    def say(self, rule: str, path: str, text: str, *, severity: Severity = "error", hint: str = "") -> None:
        """Add a finding about PATH; the consequence is added to errors."""
        message = f"{shown(path)}{text}"
        if severity == "error":
            message += f"; {self.consequence}"
        self.findings.append(Finding(severity=severity, rule=rule, path=path, message=message, hint=hint))

    def _document(
        self, path: str, parse: Callable[[bytes, str], dict[str, Any]], *, is_needed: bool
    ) -> dict[str, Any] | None:
        """Return the document in PATH; None if there is no usable one, with a finding if it IS_NEEDED."""
        try:
            data = self.host.read(path, limit=min(self._left, DEFAULT_LIMIT))
        except (FileNotFoundError, NotADirectoryError):
            if is_needed:
                self.say("config-missing", path, " does not exist")
            return None
        except OSError as error:
            is_long = error.errno == errno.EFBIG
            text = "more than 1 MiB, or 2 MiB with the others" if is_long else reason(error)
            self.say("config-unreadable", path, f": {text}")
            return None
        if not may_read(self.host, path, self.reader):
            text = f" cannot be read by the user with the id {self.reader.uid}"
            self.say("config-unreadable", path, text, hint="let that user read it")
            return None
        self._left -= len(data)
        try:
            document = parse(data, path)
        except ConfigError as error:
            self.say("config-syntax", path, shown(error.message.removeprefix(shown(path))))
            return None
        self.files.append(path)
        self._texts[path] = data.decode()
        return document

    def toml(self, path: str, *, is_needed: bool = False) -> dict[str, Any] | None:
        """Return the document in the TOML file PATH; None, usually with a finding, if there is none."""
        return self._document(path, parse_toml, is_needed=is_needed)

    def json(self, path: str, *, is_needed: bool = False) -> dict[str, Any] | None:
        """Return the object in the JSON file PATH, an empty file's as well; None as ``toml``."""
        return self._document(path, parse_json, is_needed=is_needed)

    def is_missing(self, path: str) -> bool:
        """Return whether PATH is missing; a file that cannot be reached is not."""
        try:
            self.host.located(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def names(self, path: str) -> list[str]:
        """Return the names in the folder PATH, sorted as Go sorts them; nothing if it is missing."""
        try:
            return sorted(self.host.listdir(path), key=os.fsencode)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.say("config-unreadable", path, f": {reason(error)}")
            return []

    def line_of(self, path: str, key: str) -> str:
        """Return ``, line N`` for the first line of PATH in which KEY gets a value, if there is one."""
        wanted = re.compile(rf"""(?:^|[\s{{,.])["']?{re.escape(key)}["']?\s*[=:]""")
        for number, line in enumerate(self._texts.get(path, "").splitlines(), 1):
            if wanted.search(line) and not line.lstrip().startswith("#"):
                return f", line {number}"
        return ""

    def wrong_type(self, path: str, key: str, wanted: str) -> None:
        """Add a finding: KEY of PATH is not WANTED."""
        self.say("config-type", path, f"{self.line_of(path, key)}: {shown(key)} must be {wanted}")

    def strings(self, path: str, key: str, value: object) -> tuple[str, ...] | None:
        """Return VALUE of KEY as texts; None, and a finding, if it is something else."""
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return self.bounded(path, key, tuple(value))
        self.wrong_type(path, key, "a list of texts")
        return None

    def bounded(self, path: str, key: str, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the last MAX_TEXTS of TEXTS, the value of KEY; a warning if there are more.

        The file may be another user's: each directory costs a millisecond, and a file has room for 100,000.
        """
        if len(texts) > MAX_TEXTS:
            line = self.line_of(path, key)
            text = f"{line}: {shown(key)} has {len(texts)} entries, and cdigen reads the last {MAX_TEXTS}"
            self.say("config-too-long", path, text, severity="warning", hint="remove the unused entries")
        return texts[-MAX_TEXTS:]

    def boolean(self, path: str, key: str, value: object) -> bool | None:
        """Return VALUE of KEY as a boolean; None, and a finding, if it is something else."""
        if isinstance(value, bool):
            return value
        self.wrong_type(path, key, "true or false")
        return None

    def table(self, path: str, document: Mapping[str, object], *keys: str) -> dict[str, object]:
        """Return the table under KEYS of DOCUMENT; empty, with a finding, if it is something else."""
        here: object = document
        for key in keys:
            here = here.get(key, {}) if isinstance(here, dict) else {}
            if not isinstance(here, dict):
                self.wrong_type(path, key, "a table")
                return {}
        return dict(here) if isinstance(here, dict) else dict(document)
