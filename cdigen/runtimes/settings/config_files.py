"""Read the configuration files of one runtime, one after the other, into documents: ``ConfigFiles``.

Whatever is wrong with a file becomes a finding that names it, and the line where there is one; a file
that is not there is simply not there. Nothing is read through a link that leads out of the host's tree.
"""

from __future__ import annotations

import errno
import re

from cdigen.host.root import DEFAULT_LIMIT, reason, shown
from cdigen.model.findings import Finding
from cdigen.runtimes.users import ROOT, may_read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import Severity
    from cdigen.runtimes.users import Reader

# What podman ships has 30 kB, a full configuration of containerd 15 kB.
BUDGET = 2 << 20
# tomllib takes the square of a key's parts: 20 s for 100,000. Real keys have five or six.
MAX_PARTS = 32

_MARK = "\ufeff"
_NO_KEYS = re.compile(r"""\"[^"\n]*"|'[^'\n]*'|\#[^\n]*|[ \t]+""")
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]*+\.){{{MAX_PARTS},}}")
# tomllib says where only in its words (until 3.14), "at end of document" where the text ends too early.
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class ConfigFiles:
    """What was read so far for RUNTIME: ``files`` in their order, ``findings`` on the way.

    READER is who reads in the runtime's place; ``consequence`` says what the runtime does with a broken file.
    """

    def __init__(self, host: Root, runtime: str, *, reader: Reader = ROOT, consequence: str = "") -> None:
        self.host = host
        self.runtime = runtime
        self.reader = reader
        self.consequence = consequence or f"{runtime} does not start with it"
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

    def text(self, path: str, *, is_needed: bool = False) -> str | None:
        """Return the text of PATH, None where there is none to use; a missing file is one if IS_NEEDED."""
        try:
            data = self.host.read(path, limit=min(self._left, DEFAULT_LIMIT))
        except (FileNotFoundError, NotADirectoryError):
            if is_needed:
                self.say("config-missing", path, " does not exist")
            return None
        except OSError as error:
            text = (
                "more than 1 MiB, or 2 MiB with the others" if error.errno == errno.EFBIG else reason(error)
            )
            self.say("config-unreadable", path, f": {text}")
            return None
        if not may_read(self.host, path, self.reader):
            text = f" cannot be read by the user with the id {self.reader.uid}"
            self.say("config-unreadable", path, text, hint="let that user read it")
            return None
        try:
            self._left -= len(data)
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self.say("config-syntax", path, f", line {line}: the text is not UTF-8")
            return None
        return text.removeprefix(_MARK)

    def toml(self, path: str, *, is_needed: bool = False) -> dict[str, object] | None:
        """Return the document in the TOML file PATH; None where there is none to use, as ``text``."""
        text = self.text(path, is_needed=is_needed)
        if text is None:
            return None
        if found := _LONG_KEY.search(bare := _NO_KEYS.sub("", text)):
            line = bare.count("\n", 0, found.start()) + 1
            self.say("config-syntax", path, f", line {line}: a key has more than {MAX_PARTS} parts")
            return None
        import tomllib  # noqa: PLC0415 - only who asks for a runtime's configuration pays for it

        try:
            document: dict[str, object] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            words = str(error)
            place = _PLACE.search(words)
            line = int(place[1]) if place and place[1] else text.count("\n") + 1
            self.say("config-syntax", path, f", line {line}: {shown(_PLACE.sub('', words))}")
            return None
        except (RecursionError, ValueError):  # a number of thousands of digits is a ValueError
            self.say("config-syntax", path, ": it is nested too deeply, or holds a number without end")
            return None
        self._keep(path, text)
        return document

    def json(self, path: str, *, is_needed: bool = False) -> dict[str, object] | None:
        """Return the object in the JSON file PATH, an empty file's as well; None as ``text``."""
        text = self.text(path, is_needed=is_needed)
        if text is None:
            return None
        import json  # noqa: PLC0415 - see toml

        try:
            value = json.loads(text, parse_constant=_no_constant) if text.strip() else None
        except json.JSONDecodeError as error:
            self.say("config-syntax", path, f", line {error.lineno}: {shown(error.msg)}")
            return None
        except (RecursionError, ValueError) as error:
            self.say("config-syntax", path, f": {shown(str(error))[:80]}")
            return None
        if value is not None and not isinstance(value, dict):
            self.say("config-syntax", path, ", line 1: it does not hold a JSON object")
            return None
        self._keep(path, text)
        return value or {}

    def is_missing(self, path: str) -> bool:
        """Return whether there is nothing at PATH; a file that cannot be reached is there."""
        try:
            self.host.located(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def names(self, path: str) -> list[str]:
        """Return the names in the folder PATH, sorted as Go sorts them; nothing where it is not there."""
        try:
            return sorted(self.host.listdir(path), key=_bytes)
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
        """Say that KEY of PATH does not hold WANTED."""
        self.say("config-type", path, f"{self.line_of(path, key)}: {shown(key)} must be {wanted}")

    def strings(self, path: str, key: str, value: object) -> tuple[str, ...] | None:
        """Return VALUE of KEY as texts; None, and a finding, where it is something else."""
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.wrong_type(path, key, "a list of texts")
        return None

    def boolean(self, path: str, key: str, value: object) -> bool | None:
        """Return VALUE of KEY as a truth value; None, and a finding, where it is something else."""
        if isinstance(value, bool):
            return value
        self.wrong_type(path, key, "true or false")
        return None

    def table(self, path: str, document: Mapping[str, object], *keys: str) -> dict[str, object]:
        """Return the table under KEYS of DOCUMENT; empty, and a finding where another thing is there."""
        here: object = document
        for key in keys:
            here = here.get(key, {}) if isinstance(here, dict) else {}
            if not isinstance(here, dict):
                self.wrong_type(path, key, "a table")
                return {}
        return dict(here) if isinstance(here, dict) else dict(document)

    def _keep(self, path: str, text: str) -> None:
        self.files.append(path)
        self._texts[path] = text


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is not JSON")
