"""Other names for what tells a machine or a person: ``Masks``, alike wherever a name comes up again."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Where a word begins: texts are masked as JSON writes them, with line ends as \n.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_UUID = re.compile(_START + r"(GPU-|MIG-|IMEX-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_OLD_MIG = re.compile(_START + r"MIG-GPU-[0-9a-fA-F-]{36}(/\d+/\d+)")
# What the driver, the kernel and DMI (board_serial) call a serial number, and the word after it.
_SERIAL = re.compile(
    r"(?i)((?:serial(?:[ _-]?(?:number|num|no))?|(?<![a-z])s/n)(?![a-z0-9_])\W{1,6})([0-9a-z][0-9a-z_-]{4,})"
)
# Ethernet has 6 bytes, InfiniBand 8 and 20.
_MAC = re.compile(_START + r"[0-9a-fA-F]{2}(?:(?::[0-9a-fA-F]{2}){5,19}|(?:-[0-9a-fA-F]{2}){5,19})\b")
_ADDRESS = re.compile(r"(?:(?<![\w.])|(?<=\\[nrt]))(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
# What may be an IPv6 address; ipaddress decides.
_MAYBE_ADDRESS = re.compile(
    r"(?:(?<![\w:.])|(?<=\\[nrt]))[0-9a-fA-F]{0,4}:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?!\w)"
)
_HEX32 = re.compile(_START + r"[0-9a-fA-F]{32}\b")  # /etc/machine-id(5), and UUIDs without their dashes
_LEAST = 2  # characters: a shorter name would be found inside of everything


class Masks:
    """Masks texts; HOSTS, USERS and DOMAINS are names known beforehand."""

    def __init__(
        self, hosts: Iterable[str] = (), users: Iterable[str] = (), domains: Iterable[str] = ()
    ) -> None:
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        known = (("domain", domains), ("host", hosts), ("user", users))
        words = [(name, what) for what, names in known for name in names]
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
        text = _MAC.sub(lambda found: self._other(found[0].lower().replace("-", ":"), "mac"), text)
        text = _MAYBE_ADDRESS.sub(self._long_address, text)
        text = _ADDRESS.sub(lambda found: self._other(found[0], "address"), text)
        text = _HEX32.sub(lambda found: self._other(found[0].lower(), "id"), text)
        for name, what in self._words:
            pattern = rf"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])){re.escape(name)}(?![A-Za-z0-9_-])"
            # Names of hosts are the same in capitals (RFC 4343), those of users are not.
            flags = 0 if what == "user" else re.IGNORECASE
            text = re.sub(
                pattern,
                lambda _, name=name, what=what: self._other(name, what),
                text,
                flags=flags,
            )
        return text

    def _uuid(self, text: str, prefix: str) -> str:
        number = self._number(text.lower(), "uuid")
        return f"{prefix}00000000-0000-0000-0000-{number:012}"

    def _long_address(self, found: re.Match[str]) -> str:
        from ipaddress import IPv6Address  # noqa: PLC0415 - few texts have one

        text = found[0].rstrip(".")
        if text.endswith(":") and not text.endswith("::"):
            text = text[:-1]
        try:
            address = IPv6Address(text)
        except ValueError:
            return found[0]
        if address.is_unspecified or address.is_loopback:
            return found[0]
        return self._other(address.compressed, "address") + found[0][len(text) :]

    def _other(self, text: str, what: str) -> str:
        return f"{what}-{self._number(text, what)}"

    def _number(self, text: str, what: str) -> int:
        if text not in self._known:
            self._counts[what] = self._counts.get(what, 0) + 1
            self._known[text] = str(self._counts[what])
        return int(self._known[text])
