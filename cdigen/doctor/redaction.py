"""Replace what identifies a machine or a person, each name by one other throughout: ``Redaction``."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# UUIDs of GPUs and MIG instances, with or without their dashes, and AMD's unique_id (vendors.amd.gpus), a
# number of 64 bits of which leading zeros are not written.
_UUID = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
    r"|0x[0-9a-f]{12,16}(?![0-9a-f])",
    re.IGNORECASE,
)
_HOME = re.compile(r"(?<=/home/)[^/\s\"',:;)]+")
_SHORTEST = 2  # characters: a shorter name would be found everywhere


class Redaction:
    """Redacts UUIDs, users' homes, and NAMES: words of a host or a user that are known beforehand."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        # The longest first: one name may be the beginning of another.
        words = sorted({name for name in names if len(name) >= _SHORTEST}, key=lambda name: -len(name))
        self._names = [
            re.compile(rf"(?<![A-Za-z0-9_-]){re.escape(word)}(?![A-Za-z0-9_-])", re.IGNORECASE)
            for word in words
        ]

    def redacted(self, value: object) -> object:
        """Return the JSON document VALUE with every identifying name in its texts replaced."""
        if isinstance(value, dict):
            return {self._text(str(key)): self.redacted(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redacted(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = _UUID.sub(lambda found: f"00000000-0000-0000-0000-{self._number(found[0]):012}", text)
        text = _HOME.sub(lambda found: f"user-{self._number(found[0])}", text)
        for name in self._names:
            text = name.sub(lambda found: f"name-{self._number(found[0])}", text)
        return text

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name.lower(), len(self._numbers) + 1)
