"""Words of the commands that are printed as remedies: ``quoted``, and ``commands`` of a line."""

from __future__ import annotations

import re
import shlex

from cdigen.host.root import is_plain

# Between two commands of a remedy.
SEPARATORS = ("&&", ";")
# Blanks, a separator, or a word without substitutions, redirections and pipes.
_PART = re.compile(r"""\s+|&&|;|(?:'[^']*'|"[^"$`\\]*"|[^\s'"();<>|&`\\])+""")


def quoted(text: str) -> str:
    r"""Return TEXT as one printable word of a shell.

    What holds control characters or stray bytes becomes ``$'...'`` (POSIX.1-2024, "Dollar-Single-Quotes")
    with three octal digits for each byte: no quote is left in it, so that a shell that does not know it
    executes nothing either.
    """
    if is_plain(text):
        return shlex.quote(text)
    return f"$'{''.join(_escaped(character) for character in text)}'"


def joined(words: tuple[str, ...]) -> str:
    """Return the command line of WORDS."""
    return " ".join(map(quoted, words))


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "'\\":
        return character
    stray = 0xDC80 <= ord(character) <= 0xDCFF
    data = character.encode("utf-8", "surrogateescape" if stray else "surrogatepass")
    return "".join(f"\\{byte:03o}" for byte in data)


def commands(line: str) -> list[tuple[str, list[str]]]:
    """Return the commands of LINE, each as it stands there and its words; none where it is no such line."""
    found: list[list[str]] = [[]]
    place = 0
    while place < len(line):
        part = _PART.match(line, place)
        if part is None:
            return []
        if part[0].strip() in SEPARATORS:
            found.append([])
        elif part[0].strip():
            found[-1].append(part[0])
        place = part.end()
    return [(" ".join(words), shlex.split(" ".join(words))) for words in found if words]
