"""The address of the documentation in pyproject.toml, which other files repeat."""

from __future__ import annotations

import posixpath
import re
import tomllib

from cdigen import DOCUMENTATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The files and folders that contain the address. The code has it in one module.
PLACES = ("cdigen/__init__.py", "etc", "examples", "packaging", "schemas")


def address(repository: Path) -> str:
    """Return the address of the documentation in pyproject.toml of REPOSITORY."""
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["urls"]["Documentation"])


def readdressed(repository: Path) -> dict[str, str]:
    """Return path and new text of each file of REPOSITORY that has another address than pyproject.toml."""
    new = address(repository)
    if new == DOCUMENTATION:
        return {}
    return {
        path.relative_to(repository).as_posix(): text.replace(DOCUMENTATION, new)
        for path in _files(repository)
        if DOCUMENTATION in (text := path.read_text(encoding="utf-8", errors="surrogateescape"))
    }


def linked(text: str, page: str) -> str:
    """Return TEXT with links for PAGE, a path of the repository, in place of addresses."""

    def link(found: re.Match[str]) -> str:
        target = posixpath.relpath(f"docs/{found[1]}.md", posixpath.dirname(page))
        return f"[{posixpath.basename(found[1])}]({target})"

    return re.sub(rf"{re.escape(DOCUMENTATION)}/([a-z/-]+[a-z])", link, text)


def _files(repository: Path) -> Iterator[Path]:
    for place in PLACES:
        path = repository / place
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (each for each in found if each.is_file() and each.suffix != ".pyc")
