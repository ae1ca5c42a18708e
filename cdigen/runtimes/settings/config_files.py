"""The configuration of a runtime, the OCI runtimes that it registers, and the reader of its files.

Every fault in a file is a finding with the name of the file and, if known, the line. Missing files are
ignored. Links to paths outside the tree of the host are not followed.
"""

from __future__ import annotations

import errno
import os
import re

from cdigen.host.root import DEFAULT_LIMIT, reason, shown
from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.runtimes.documents import lookup, parse_toml
from cdigen.runtimes.users import ROOT, may_read
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.findings import Severity
    from cdigen.runtimes.users import Reader

# The rule of a file or folder that cannot be read.
UNREADABLE = "config-unreadable"
# The limit in bytes for all files of one runtime, because the files may belong to another user. The files of
# podman have 30 kB, and the dump of containerd has 15 kB.
BUDGET = 2 << 20
# The folders of OCI hooks that podman reads. CRI-O's default is only the first folder (oci-hooks(5)).
HOOK_DIRS: tuple[str, ...] = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
# The limit for the entries of a list. A host has three spec directories.
MAX_TEXTS = 256

# The defaults of the library in rising priority (pkg/cdi, DefaultSpecDirs).
DEFAULT_DIRS: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")


@frozen
class OciRuntime:
    """An OCI runtime by the name that containers request; ``path`` is its program, or empty if not set.

    An example is ``nvidia``, NVIDIA's wrapper of runc.

    ``files`` are the files that register the OCI runtime or select it as the default, in the order in which
    they are read.
    """

    name: str
    path: str
    files: tuple[str, ...]
    is_default: bool


@frozen
class RuntimeSettings:
    """The configuration of a runtime; a value that is not set has the default of the release.

    - ``spec_dirs`` are the directories that the runtime searches for specs, in rising priority.
    - ``cdi_enabled`` and ``nri_enabled`` are None if unknown, or if the runtime lacks the feature (podman has
      no NRI).
    - ``files`` are the existing files that were read and applied, in order.
    - ``edited_file`` is the file that ``configure`` writes. It is a drop-in if the runtime supports drop-ins.
    - ``edited_file_is_read`` is true if the runtime reads ``edited_file`` with its present configuration.
    - ``has_only_edited_file`` is true if ``configure`` may change only ``edited_file``, which has priority
      over all other files.
    - ``follows_links`` is true if the runtime follows a symlink to a spec directory.
    - ``has_dirs_key`` is true if this release has a key for the spec directories.
    - ``set_by`` has pairs for the values that are not defaults. The first part is ``spec_dirs``, ``cdi`` or
      ``nri``. The second part is the file that sets the value, or the text ``the command line of FILE``.
    - ``hidden_dirs`` are directories in the configuration that the runtime cannot see (rootless Docker).
    - ``rootless`` is true if these are the settings of an unprivileged user.
    - ``oci_runtimes`` are the OCI runtimes that are registered by name. The OCI runtimes of podman are not
      read.
    - ``default_oci_runtime`` is the name or the path of podman's default OCI runtime; empty if it is not set.
    - ``has_labels`` is true if the runtime sets SELinux labels for containers.
    - ``hook_dirs`` are the folders whose OCI hooks the runtime runs (oci-hooks(5)).
    """

    runtime: str
    spec_dirs: tuple[str, ...]
    cdi_enabled: bool | None = None
    nri_enabled: bool | None = None
    files: tuple[str, ...] = ()
    edited_file: str = ""
    findings: tuple[Finding, ...] = ()
    edited_file_is_read: bool = True
    has_only_edited_file: bool = False
    follows_links: bool = False
    has_dirs_key: bool = False
    set_by: tuple[tuple[str, str], ...] = ()
    hidden_dirs: tuple[str, ...] = ()
    rootless: bool = False
    oci_runtimes: tuple[OciRuntime, ...] = ()
    default_oci_runtime: str = ""
    has_labels: bool = True
    hook_dirs: tuple[str, ...] = ()

    def source(self, what: str) -> str:
        """Return the source of the value WHAT (see ``set_by``); empty if the value is the default."""
        return dict(self.set_by).get(what, "")


class ConfigFiles:
    """A reader of configuration files; ``files`` are the files that were read so far, in order.

    CONSEQUENCE describes the effect of a broken file on the runtime. READER is the user that reads the files.
    """

    def __init__(self, host: Root, consequence: str, reader: Reader = ROOT) -> None:
        self.host = host
        self.reader = reader
        self.consequence = consequence
        self.files: list[str] = []
        self.findings: list[Finding] = []
        self._texts: dict[str, str] = {}
        self._left = BUDGET

    def report(
        self, rule: str, path: str, text: str, *, severity: Severity = "error", hint: str = ""
    ) -> None:
        """Add a finding about PATH; the message of an error also has the consequence."""
        message = f"{shown(path)}{text}"
        if severity == "error":
            message += f"; {self.consequence}"
        self.findings.append(Finding(severity=severity, rule=rule, path=path, message=message, hint=hint))

    def document(
        self,
        path: str,
        parse: Callable[[bytes, str], dict[str, Any]] = parse_toml,
        *,
        is_needed: bool = False,
    ) -> dict[str, Any] | None:
        """Return the document in PATH, by default in TOML; None if PATH is missing or invalid.

        An invalid file is a finding. A missing file is a finding only if IS_NEEDED is true.
        """
        try:
            data = self.host.read(path, limit=min(self._left, DEFAULT_LIMIT))
        except (FileNotFoundError, NotADirectoryError):
            if is_needed:
                self.report("config-missing", path, " does not exist")
            return None
        except OSError as error:
            is_long = error.errno == errno.EFBIG
            text = "the size exceeds 1 MiB, or 2 MiB for all files" if is_long else reason(error)
            self.report(UNREADABLE, path, f": {text}")
            return None
        if not may_read(self.host, path, self.reader):
            text = f" cannot be read by the user with the id {self.reader.uid}"
            self.report(UNREADABLE, path, text, hint="add read permission for that user")
            return None
        self._left -= len(data)
        try:
            document = parse(data, path)
        except ConfigError as error:
            self.report("config-syntax", path, shown(error.message.removeprefix(shown(path))))
            return None
        self.files.append(path)
        self._texts[path] = data.decode()
        return document

    def is_missing(self, path: str) -> bool:
        """Return whether PATH is missing; an inaccessible file is not missing."""
        try:
            self.host.located(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def names(self, path: str) -> list[str]:
        """Return the names in the folder PATH in Go's order; empty if the folder is missing."""
        try:
            return sorted(self.host.listdir(path), key=os.fsencode)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.report(UNREADABLE, path, f": {reason(error)}")
            return []

    def line_of(self, path: str, key: str) -> str:
        """Return ``, line N`` for the first line of PATH that sets KEY; empty if no line sets KEY."""
        wanted = re.compile(rf"""(?:^|[\s{{,.])["']?{re.escape(key)}["']?\s*[=:]""")
        for number, line in enumerate(self._texts.get(path, "").splitlines(), 1):
            if wanted.search(line) and not line.lstrip().startswith("#"):
                return f", line {number}"
        return ""

    def line_of_table(self, path: str, name: str) -> str:
        """Return ``, line N`` for the first table of PATH with NAME in its name; empty if there is none."""
        wanted = re.compile(rf"""\s*\[[^#]*[.\["']{re.escape(name)}[.\]"']""")
        for number, line in enumerate(self._texts.get(path, "").splitlines(), 1):
            if wanted.match(line):
                return f", line {number}"
        return ""

    def wrong_type(self, path: str, key: str, wanted: str) -> None:
        """Add a finding that KEY of PATH must be WANTED, such as ``a number``."""
        self.report("config-type", path, f"{self.line_of(path, key)}: {shown(key)} must be {wanted}")

    def strings(self, path: str, key: str, value: object) -> tuple[str, ...] | None:
        """Return VALUE of KEY as texts; add a finding and return None if VALUE has another type."""
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return self.bounded(path, key, tuple(value))
        self.wrong_type(path, key, "a list of texts")
        return None

    def bounded(self, path: str, key: str, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the last MAX_TEXTS of TEXTS, the value of KEY; add a warning if there are more texts.

        The file may belong to another user. Each directory takes a millisecond, and a file may list 100,000
        directories.
        """
        if len(texts) > MAX_TEXTS:
            line = self.line_of(path, key)
            text = f"{line}: {shown(key)} has {len(texts)} entries; cdigen reads only the last {MAX_TEXTS}"
            self.report("config-too-long", path, text, severity="warning", hint="remove the unused entries")
        return texts[-MAX_TEXTS:]

    def boolean(self, path: str, key: str, value: object) -> bool | None:
        """Return VALUE of KEY as a Boolean; add a finding and return None if VALUE has another type."""
        if isinstance(value, bool):
            return value
        self.wrong_type(path, key, "true or false")
        return None

    def table(self, path: str, document: Mapping[str, object], *keys: str) -> dict[str, object]:
        """Return the table under KEYS of DOCUMENT; add a finding if it has another type.

        The result is empty if the table is missing or has another type.
        """
        table: object = document
        for key in keys:
            table = table.get(key, {}) if isinstance(table, dict) else {}
            if not isinstance(table, dict):
                self.wrong_type(path, key, "a table")
                return {}
        return dict(table) if isinstance(table, dict) else dict(document)


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
