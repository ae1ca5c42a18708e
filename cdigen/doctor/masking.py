"""Other names for what tells a machine or a person: ``Masks``, alike wherever a name comes up again."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_UUID = re.compile(r"\b(GPU-|MIG-|IMEX-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_OLD_MIG = re.compile(r"\bMIG-GPU-[0-9a-fA-F-]{36}(/\d+/\d+)")
# What the driver and the kernel call a serial number, and the word after it.
_SERIAL = re.compile(r"(?i)(\bserial(?:[ _-]?(?:number|no))?\b\W{1,6})([0-9A-Za-z][0-9A-Za-z_-]{4,})")
_MAC = re.compile(r"\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}\b")
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_HEX32 = re.compile(r"\b[0-9a-f]{32}\b")  # /etc/machine-id(5)
_LEAST = 2  # characters: a shorter name would be found inside of everything


class Masks:
    """Masks texts; HOSTS and USERS are names known beforehand."""

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        words = [*((name, "host") for name in hosts), *((name, "user") for name in users)]
        # The longest first: one name may be the beginning of another.
        self._words = sorted(
            ((name, what) for name, what in dict(words).items() if len(name) >= _LEAST),
            key=lambda pair: -len(pair[0]),
        )

    def masked(self, text: str) -> str:
        """Return TEXT with other names in it; a name that comes again gets the same one."""
        text = _OLD_MIG.sub(lambda found: f"MIG-{self._uuid(found[0], 'GPU-')}{found[1]}", text)
        text = _UUID.sub(lambda found: self._uuid(found[0], found[1] or ""), text)
        text = _SERIAL.sub(lambda found: found[1] + self._other(found[2], "serial"), text)
        text = _MAC.sub(lambda found: self._other(found[0], "mac"), text)
        text = _ADDRESS.sub(lambda found: self._other(found[0], "address"), text)
        text = _HEX32.sub(lambda found: self._other(found[0], "id"), text)
        for name, what in self._words:
            pattern = rf"(?<![A-Za-z0-9_-]){re.escape(name)}(?![A-Za-z0-9_-])"
            text = re.sub(pattern, lambda _, name=name, what=what: self._other(name, what), text)  # type: ignore[misc]
        return text

    def _uuid(self, text: str, prefix: str) -> str:
        number = self._number(text.lower(), "uuid")
        return f"{prefix}00000000-0000-0000-0000-{number:012}"

    def _other(self, text: str, what: str) -> str:
        return f"{what}-{self._number(text, what)}"

    def _number(self, text: str, what: str) -> int:
        if text not in self._known:
            self._counts[what] = self._counts.get(what, 0) + 1
            self._known[text] = str(self._counts[what])
        return int(self._known[text])
