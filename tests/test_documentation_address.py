"""Messages, help texts and installed files name man pages or URLs, never files that an installation lacks."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from address import PLACES, address, linked, readdressed
from support.paths import REPOSITORY
from support.source_names import syntax_tree

from cdigen import DOCUMENTATION, page_url

PACKAGE = REPOSITORY / "cdigen"
SCHEMAS = REPOSITORY / "schemas"
A_FILE = re.compile(
    r"\bdocs/[\w/-]+\.md\b|\bREADME\b|(?<![\w/.-])(?:[a-z][a-z-]+|[A-Z]+)\.md\b|\b(?:examples|packaging)/\w"
)
# The source of a row is a file of another project.
OTHERS = {"contrib/design-docs/config-file-parsing.md"}
# Files that installations contain, or that users copy to other folders.
INSTALLED = ("etc", "schemas", "examples", "packaging/kubernetes")
NOT_INSTALLED = ("etc/help", "etc/floors.py")
NEW = "https://docs.example.org/cdigen"


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string literal in PATH that is no docstring."""
    module = syntax_tree(path.read_text(encoding="utf-8"))
    statements = {
        id(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.lineno, node.value


def named_files(path: Path) -> list[str]:
    """Return the files of documentation that the strings of PATH name."""
    return [
        f"{path.name}:{line}: {text}"
        for line, text in strings(path)
        if A_FILE.search(text) and text not in OTHERS
    ]


def installed() -> Iterator[tuple[str, str]]:
    """Yield path and text of each file in INSTALLED."""
    for path in sorted(each for top in INSTALLED for each in (REPOSITORY / top).rglob("*")):
        name = path.relative_to(REPOSITORY).as_posix()
        if path.is_file() and not name.startswith(NOT_INSTALLED) and path.suffix not in {".pyc", ".md"}:
            yield name, path.read_text(encoding="utf-8")


def addressed() -> Iterator[tuple[str, str]]:
    """Yield path and text of each file that may contain an address of the documentation."""
    for place in (*PLACES, "cdigen", "docs", "tests", "README.md"):
        top = REPOSITORY / place
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and path.suffix not in {".pyc", ".png", ".gz", ".binpb", ".so"}:
                name = path.relative_to(REPOSITORY).as_posix()
                yield name, path.read_text(encoding="utf-8", errors="replace")


def pages() -> Iterator[tuple[str, str]]:
    """Yield file and page of each URL: calls of ``page_url`` in code, and addresses in other files.

    The address also has the schemas: their URLs are in ``test_every_schema_has_its_url_as_its_id``.
    """
    for name, text in addressed():
        named = re.findall(r"page_url\(\s*['\"]([^'\"]+)['\"]", text) if name.endswith(".py") else []
        yield from ((name, page) for page in named)
        found = re.findall(rf"{re.escape(DOCUMENTATION)}/(?!schemas/)([a-z/-]+[a-z])", text)
        yield from ((name, page) for page in found)


def test_no_string_of_the_code_names_a_file_of_the_documentation() -> None:
    assert [found for path in sorted(PACKAGE.rglob("*.py")) for found in named_files(path)] == []


@pytest.mark.parametrize(
    "hint",
    [
        "see docs/reference/hook.md",
        "see docs/reference/json.md",
        "see README",
        "see nri.md",
        "see SECURITY.md",
        "see examples/nomad",
    ],
)
def test_a_string_that_names_a_file_of_the_documentation_is_found(tmp_path: Path, hint: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(f'"""{hint}"""\nHINT = f"{{x}}: {hint}"\n')
    assert [found.partition(": ")[0] for found in named_files(path)] == ["module.py:2"]


def test_no_installed_file_names_a_file_of_the_documentation() -> None:
    assert [
        (name, found) for name, text in installed() for found in re.findall(r"docs/[\w/-]+\.md", text)
    ] == []


def test_the_code_has_the_address_of_pyproject_toml() -> None:
    assert address(REPOSITORY) == DOCUMENTATION
    assert page_url("reference/json") == f"{DOCUMENTATION}/reference/json"


def test_only_one_module_of_the_code_contains_the_address() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if DOCUMENTATION in path.read_text(encoding="utf-8")]
    assert modules == [PACKAGE / "__init__.py"]


def test_every_url_of_the_documentation_leads_to_a_page() -> None:
    found = set(pages())
    assert {each for each in found if not (REPOSITORY / f"docs/{each[1]}.md").exists()} == set()
    assert len({page for _, page in found}) > 10


@pytest.mark.parametrize("path", sorted(SCHEMAS.rglob("*.json")), ids=lambda path: path.name)
def test_every_schema_has_its_url_as_its_id(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["$id"] == f"{DOCUMENTATION}/{path.relative_to(REPOSITORY).as_posix()}"


def test_make_generated_writes_a_new_address_into_every_file_that_contains_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project.urls]\nDocumentation = "{NEW}"\n')
    for name, text in (
        ("cdigen/__init__.py", f'DOCUMENTATION = "{DOCUMENTATION}"\n'),
        ("etc/cdigen.service", f"# {page_url('reference/json')} has the reasons.\n"),
        ("schemas/other.json", "{}\n"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert readdressed(tmp_path) == {
        "cdigen/__init__.py": f'DOCUMENTATION = "{NEW}"\n',
        "etc/cdigen.service": f"# {NEW}/reference/json has the reasons.\n",
    }
    assert readdressed(REPOSITORY) == {}


def test_generated_pages_have_links_in_place_of_urls() -> None:
    text = f"a ({page_url('reference/nri')}), {page_url('how-to/kubernetes/node-labels')}."
    page = "docs/reference/configuration.md"
    assert linked(text, page) == "a ([nri](nri.md)), [node-labels](../how-to/kubernetes/node-labels.md)."
