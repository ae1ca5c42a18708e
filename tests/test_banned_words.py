"""Plain words: no prose and no name uses a word in tests/data/banned-words.txt; class names are unique.

Prose is the documentation (`*.md`), the sections of the man pages, docstrings and comments, and in cdigen/
also string literals. Names are those of files, classes and functions, and in cdigen/ also of parameters and
annotated fields. Text in backticks and in code blocks is code, and is not checked.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run, tool
from support.paths import REPOSITORY, TESTS
from support.processes import succeeded
from support.source_names import syntax_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = REPOSITORY / "cdigen"
SECTIONS = REPOSITORY / "etc/help/sections"
LIST = TESTS / "data/banned-words.txt"
# The replacement for code. It is not white space, so that the words around the code do not become a phrase.
CODE = "`"
CODE_BLOCK = re.compile(r"^ *```.*?(?:^ *```|\Z)", flags=re.DOTALL | re.MULTILINE)
# From a run of backticks to the next run of the same length in the paragraph.
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)", flags=re.DOTALL)
# The components of a name: camel case, capitals, digits.
COMPONENT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, kw_only=True)
class BannedWords:
    """The phrases that prose does not use, also as one pattern, and the components that names do not use."""

    prose: re.Pattern[str]
    phrases: tuple[str, ...]
    components: frozenset[str]


def read_words(text: str) -> BannedWords:
    """Return the lists of the sections [prose] and [names] in TEXT, without comments."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    start = lines.index("[names]")
    phrases = tuple(lines[lines.index("[prose]") + 1 : start])
    longest_first = sorted(phrases, key=len, reverse=True)
    words = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in longest_first)
    return BannedWords(
        prose=re.compile(rf"(?<![\w.-])(?:{words})(?![\w-])", flags=re.IGNORECASE),
        phrases=phrases,
        components=frozenset(lines[start + 1 :]),
    )


BANNED = read_words(LIST.read_text(encoding="utf-8"))


def without_code(text: str) -> str:
    """Return TEXT without its code; lines keep their numbers."""
    for code in (CODE_BLOCK, CODE_SPAN):
        text = code.sub(lambda match: CODE + "\n" * match.group().count("\n"), text)
    return text


def in_prose(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield line and word for each banned word or phrase in TEXT, which begins in FIRST_LINE of its file."""
    prose = without_code(text)
    for match in BANNED.prose.finditer(prose):
        yield first_line + prose.count("\n", 0, match.start()), " ".join(match.group().split())


def in_names(names: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each of NAMES that has a banned component."""
    for line, name in names:
        if BANNED.components & {component.lower() for component in COMPONENT.findall(name)}:
            yield line, name


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield first line and text of each block of comments; also a comment at the end of a line is a block."""
    block: list[str] = []
    first, last = 0, -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if line != last + 1:
            yield first, "\n".join(block)
            block, first = [], line
        block.append(token.string.lstrip("#"))
        last = line
    yield first, "\n".join(block)


def docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring."""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.lineno, str(first.value.value)


def literals(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string literal, docstrings included; adjacent literals are one text."""
    parts: set[ast.expr] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            texts = [str(each.value) if isinstance(each, ast.Constant) else CODE for each in node.values]
            yield node.lineno, "".join(texts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.lineno, node.value


def names_of(module: ast.Module, kinds: tuple[type[ast.AST], ...]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each definition of KINDS."""
    for node in ast.walk(module):
        if isinstance(node, kinds):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield node.lineno, node.name
                case ast.arg():
                    yield node.lineno, node.arg
                case ast.AnnAssign(target=ast.Name(id=name)):
                    yield node.lineno, name


DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def in_python(path: Path, *, is_test: bool) -> Iterator[tuple[int, str]]:
    """Yield line and word for each banned word in PATH; if IS_TEST, not in literals, parameters, fields."""
    source = path.read_text(encoding="utf-8")
    module = syntax_tree(source)
    yield from in_names(iter([(1, path.stem)]))
    kinds = DEFINITIONS if is_test else (*DEFINITIONS, ast.arg, ast.AnnAssign)
    yield from in_names(names_of(module, kinds))
    for line, text in (*comments(source), *(docstrings(module) if is_test else literals(module))):
        yield from in_prose(text, line)


def banned_words(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and word for each banned word in the file PATH, according to its type."""
    if path.suffix == ".py":
        yield from in_python(path, is_test=not path.is_relative_to(PACKAGE))
    else:
        yield from in_prose(path.read_text(encoding="utf-8"))


def documents() -> list[Path]:
    """Return the documents that git tracks."""
    if not (REPOSITORY / ".git").exists():
        cannot_run("these sources are not a git clone")
    listed = succeeded([tool("git"), "-C", REPOSITORY, "ls-files", "-z", "--", "*.md"])
    return [REPOSITORY / name for name in listed.split("\0") if name]


def test_no_prose_and_no_name_uses_a_banned_word() -> None:
    files = [*documents(), *SECTIONS.glob("*.roff"), *PACKAGE.rglob("*.py"), *TESTS.rglob("*.py")]
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {word}"
        for path in sorted(files)
        for line, word in banned_words(path)
    ]
    assert not found, f"{len(found)} banned words ({LIST.relative_to(REPOSITORY)}):\n" + "\n".join(found)


def test_no_two_public_classes_have_the_same_name() -> None:
    modules: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in syntax_tree(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(str(path.relative_to(REPOSITORY)))
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


# The tests of this module itself. WORD is a banned word, and NAME is a banned component.

WORD = BANNED.phrases[0]
NAME = min(BANNED.components)


@pytest.mark.parametrize("phrase", BANNED.phrases)
def test_each_phrase_of_the_list_is_found_in_any_case_and_over_a_line_break(phrase: str) -> None:
    broken = phrase.replace(" ", "\n").capitalize()
    assert list(in_prose(f"First line.\nThen {broken}.")) == [(2, phrase.capitalize())]


def test_a_word_that_contains_a_banned_word_is_permitted() -> None:
    assert list(in_prose(f"{WORD}x x{WORD} {WORD}-x x_{WORD}")) == []


@pytest.mark.parametrize(
    "code",
    [f"`{WORD}`", f"``a {WORD} ` b``", f"`a\n{WORD}`", f"```\n\n{WORD}\n```", f"  ```sh\n{WORD}\n  ```"],
)
def test_code_is_not_checked_and_the_text_after_it_keeps_its_line(code: str) -> None:
    text = f"\n{code}\n{WORD}"
    assert list(in_prose(text)) == [(text.count("\n") + 1, WORD)]


def test_code_between_two_words_does_not_join_them() -> None:
    phrase = next(phrase for phrase in BANNED.phrases if " " in phrase)
    assert list(in_prose(phrase.replace(" ", " `x` "))) == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (f"# One line\n# and a {WORD}.\n", 2),
        (f"x = 1  # a {WORD}\n", 1),
        (f'"""Do it.\n\nThen {WORD}.\n"""\n', 3),
        (f'def f() -> None:\n    """A {WORD}."""\n', 2),
        (f'class A:\n    """A {WORD}."""\n', 2),
    ],
)
def test_a_banned_word_is_found_in_comments_and_docstrings_of_a_test(
    tmp_path: Path, source: str, line: int
) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert list(banned_words(path)) == [(line, WORD)]


@pytest.mark.parametrize("source", [f'x = "a {WORD}"\n', f"x = f'{{y}} {WORD}'\n"])
def test_string_literals_are_checked_in_the_package_only(tmp_path: Path, source: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert list(in_python(path, is_test=False)) == [(1, WORD)]
    assert list(in_python(path, is_test=True)) == []


def test_adjacent_literals_are_one_text(tmp_path: Path) -> None:
    phrase = next(phrase for phrase in BANNED.phrases if " " in phrase)
    first, _, second = phrase.partition(" ")
    path = tmp_path / "module.py"
    path.write_text(f'x = ("{first} "\n     "{second}")\n')
    assert list(in_python(path, is_test=False)) == [(1, phrase)]


@pytest.mark.parametrize("name", [f"x_{NAME}", f"X{NAME.capitalize()}Y"])
def test_a_banned_component_is_found_in_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text(f"class {name}:\n    {name}: int\n\ndef {name}({name}: int) -> None: ...\n")
    assert list(in_python(path, is_test=True)) == [(1, name), (1, name), (4, name)]
    assert sorted(in_python(path, is_test=False)) == [(1, name), (1, name), (2, name), (4, name), (4, name)]


def test_a_component_that_contains_a_banned_component_is_permitted(tmp_path: Path) -> None:
    path = tmp_path / f"x{NAME}.py"
    path.write_text(f"def x{NAME}(a_{NAME}x: int) -> None: ...\n")
    assert list(in_python(path, is_test=False)) == []
