"""The Markdown files of the repository: `pages`, and their code blocks, prose, tables, headings and links."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from support.paths import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

# `make generated` writes these pages from tables of the code.
NAMES = ("checks", "command-line", "configuration", "findings", "health-causes")
GENERATED = frozenset(f"docs/reference/{name}.md" for name in NAMES)
FOLDERS = (".github", "cdigen", "docs", "etc", "examples", "packaging", "schemas", "tests")

FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w-]*)")
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)", flags=re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\))?)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$", flags=re.MULTILINE)
HTML_LINK = re.compile(r"<(?:a|img)\s[^>]*(?:href|src)=\"([^\"]+)\"")
HTML_ANCHOR = re.compile(r"<a\s[^>]*(?:id|name)=\"([^\"]+)\"")
# The address of another site, or of a person.
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced code block: its language, the number of its first line of code, and its lines of code."""

    language: str
    first_line: int
    lines: tuple[str, ...]


@cache
def pages() -> tuple[str, ...]:
    """Return the paths of all Markdown files of the repository, relative to it."""
    files = [
        *REPOSITORY.glob("*.md"),
        *(path for top in FOLDERS for path in (REPOSITORY / top).rglob("*.md")),
    ]
    return tuple(sorted(path.relative_to(REPOSITORY).as_posix() for path in files))


def is_documentation(page: str) -> bool:
    """Return whether PAGE is in docs/ or at the top of the repository, and not the change log."""
    return page.startswith("docs/") or ("/" not in page and page != "CHANGELOG.md")


@cache
def text_of(page: str) -> str:
    """Return the text of the file PAGE."""
    return (REPOSITORY / page).read_text(encoding="utf-8")


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced code blocks in TEXT, without the indentation of the fence."""
    block: list[str] = []
    fence, language, indent, first = "", "", 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        if fence:
            if line.strip() and not line.strip().strip(fence[0]) and len(line.strip()) >= len(fence):
                yield Block(language=language, first_line=first, lines=tuple(block))
                fence = ""
            else:
                block.append(line[indent:] if not line[:indent].strip() else line)
        elif found := FENCE.match(line):
            fence, language, indent = found["fence"], found["language"], len(found["indent"])
            block, first = [], number + 1
    if fence:
        yield Block(language=language, first_line=first, lines=tuple(block))


def without_blocks(text: str) -> str:
    """Return TEXT with empty lines instead of fenced code blocks; lines keep their numbers."""
    lines = text.splitlines()
    for block in blocks(text):
        end = block.first_line + len(block.lines)
        for number in range(block.first_line - 1, min(end + 1, len(lines) + 1)):
            lines[number - 1] = ""
    return "\n".join(lines)


def links(text: str) -> Iterator[str]:
    """Yield the targets of the links and pictures in TEXT, except in code."""
    prose = CODE_SPAN.sub("", without_blocks(text))
    for pattern in (LINK, DEFINITION, HTML_LINK):
        yield from pattern.findall(prose)


@cache
def anchors(page: str) -> frozenset[str]:
    """Return the anchors of the headings of PAGE, as GitHub forms them, and those in HTML."""
    text = without_blocks(text_of(page))
    found: set[str] = set(HTML_ANCHOR.findall(text))
    earlier: Counter[str] = Counter()
    for heading in re.findall(r"^#{1,6} +(.+?)[ #]*$", text, flags=re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w -]", "", shown).strip().lower().replace(" ", "-")
        found.add(f"{name}-{earlier[name]}" if earlier[name] else name)
        earlier[name] += 1
    return frozenset(found)


def cells(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each cell of the tables in TEXT; a `\\|` is a character of a cell."""
    for number, line in enumerate(without_blocks(text).splitlines(), 1):
        if line.lstrip().startswith("|"):
            row = line.strip().removeprefix("|").removesuffix("|")
            for cell in re.split(r"(?<!\\)\|", row):
                yield number, cell.strip().replace(r"\|", "|")
