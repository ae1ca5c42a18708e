"""Links lead to an existing file and heading, in the repository and in the installed documentation."""

import posixpath
import re
import tomllib
from functools import cache

import pytest
from support import source_names
from support.documentation.pages import ELSEWHERE, anchors, is_documentation, links, pages, text_of
from support.paths import REPOSITORY


def target(page: str, link: str) -> tuple[str, str]:
    """Return the path in the repository and the anchor of LINK in PAGE."""
    path, _, anchor = link.partition("#")
    return (posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page), anchor


def is_heading(page: str, anchor: str) -> bool:
    """Return whether ANCHOR is '', a line of a source, or a heading of PAGE."""
    if page.endswith(".md"):
        return not anchor or anchor in anchors(page)
    return re.fullmatch(r"(?:L\d+)?", anchor) is not None


@pytest.mark.parametrize("page", pages())
def test_links_lead_to_an_existing_file_and_heading(page: str) -> None:
    dead = []
    for link in links(text_of(page)):
        path, anchor = target(page, link)
        if not ELSEWHERE.match(link) and not (
            not path.startswith("..") and (REPOSITORY / path).exists() and is_heading(path, anchor)
        ):
            dead.append(link)
    assert dead == []


# Installed files.


def installed_parts() -> list[str]:
    """Return the files and folders that all packages install, with their paths in the repository."""
    found = re.search(r"^DOCUMENTATION := (.*)$", text_of("Makefile"), flags=re.MULTILINE)
    assert found is not None, "the Makefile has no list DOCUMENTATION"
    return found[1].split()


def test_links_in_the_installed_documentation_lead_to_installed_files() -> None:
    parts = installed_parts()

    def is_installed(path: str) -> bool:
        return any(path == part or path.startswith(f"{part}/") for part in parts)

    installed = [page for page in pages() if is_installed(page)]
    assert "docs/README.md" in installed
    assert [
        f"{page}: {link}"
        for page in installed
        for link in links(text_of(page))
        if not ELSEWHERE.match(link) and not is_installed(target(page, link)[0])
    ] == []


# Text that hosts get: the strings of the program, its units and settings, and the schemas.
PAGE_PATH = re.compile(r"(?<![\w/.:-])(?:docs/[\w./-]+\.md|[A-Z]+\.md)")


def installed_texts() -> list[tuple[str, str]]:
    """Return name and text of each installed file that is no page; of a module, its strings.

    etc/help/references has the sources of pages.
    """
    modules = [
        (path.relative_to(REPOSITORY).as_posix(), "\n".join(source_names.messages(tree)))
        for path, tree in source_names.trees().items()
    ]
    others = [
        (path.relative_to(REPOSITORY).as_posix(), path.read_text(errors="replace").replace(r"\-", "-"))
        for top in ("etc", "schemas")
        for path in sorted((REPOSITORY / top).rglob("*"))
        if path.is_file()
        and path.suffix not in {".py", ".pyc"}
        and path.name != "install"
        and "references" not in path.parts
    ]
    return [*modules, *others]


def test_an_installed_file_names_no_page_of_the_repository() -> None:
    assert [(name, page) for name, text in installed_texts() for page in PAGE_PATH.findall(text)] == []


@cache
def documentation_url() -> str:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return str(project["urls"]["Documentation"])


def test_a_url_of_the_documentation_names_an_existing_page_and_heading() -> None:
    base = documentation_url()
    texts = [*installed_texts(), *((page, text_of(page)) for page in pages())]
    named = {
        (name, found)
        for name, text in texts
        for found in re.findall(rf"{re.escape(base)}/([\w/.-]*[\w-](?:#[\w-]+)?)", text)
    }
    code = "\n".join(path.read_text() for path in (REPOSITORY / "cdigen").rglob("*.py"))
    named |= {("page_url", found) for found in re.findall(r"page_url\(\"([^\"]+)\"\)", code)}
    dead = []
    for name, found in sorted(named):
        path, _, anchor = found.partition("#")
        # The schemas are beside the pages.
        page = path if path.startswith("schemas/") else f"docs/{path.removesuffix('.md')}.md"
        if not (REPOSITORY / page).exists() or not is_heading(page, anchor):
            dead.append((name, found))
    assert dead == []


# Comments and docstrings name pages with their headings: docs/reference/nri.md, "Causes".
NAMED_PAGE = re.compile(
    r"(?<![\w/.-])(?P<page>docs/[a-z0-9/-]+\.md)"
    r"(?P<headings>(?:, \"[^\"]+\")*)"
)
SOURCES = (
    *(".github", "cdigen", "etc", "examples", "packaging", "schemas", "tests"),
    *("Makefile", "pyproject.toml"),
)


def named_headings(text: str) -> list[tuple[str, str]]:
    """Return each page that TEXT names, with '' or with a heading."""
    joined = re.sub(r"\s*\n\s*(?:#\s*)?", " ", text)
    found = [(each["page"], each["headings"] or "") for each in NAMED_PAGE.finditer(joined)]
    return [(page, one) for page, several in found for one in re.findall(r"\"([^\"]+)\"", several) or [""]]


def sources() -> list[str]:
    """Return the paths of the text files that are no pages."""
    tops = [REPOSITORY / each for each in SOURCES]
    files = [path for top in tops for path in (sorted(top.rglob("*")) if top.is_dir() else [top])]
    return [
        path.relative_to(REPOSITORY).as_posix()
        for path in files
        if path.is_file() and path.suffix not in {".md", ".pyc", ".binpb", ".gz"}
    ]


def has_heading(page: str, heading: str) -> bool:
    text = text_of(page)
    return (
        re.search(rf"^#+ {re.escape(heading)}$|\*\*{re.escape(heading)}\.?\*\*", text, re.MULTILINE)
        is not None
    )


def test_sources_name_existing_pages_and_headings() -> None:
    named = {
        (name, *found)
        for name in sources()
        for found in named_headings((REPOSITORY / name).read_text(encoding="utf-8", errors="replace"))
    }
    assert len(named) > 30
    assert [
        (name, page, heading)
        for name, page, heading in sorted(named)
        if not (REPOSITORY / page).exists() or (heading and not has_heading(page, heading))
    ] == []


def test_headings_behind_the_name_of_a_page_are_found() -> None:
    text = '# As in D/a.md, "One",\n# "Two". (D/b.md); containerd D/C.md'.replace("D/", "docs/")
    found = [(page.removeprefix("docs/"), heading) for page, heading in named_headings(text)]
    assert found == [("a.md", "One"), ("a.md", "Two"), ("b.md", "")]


# Each page of docs/ can be reached.


def test_each_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set[str](), ["README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or not page.endswith(".md") or not (REPOSITORY / page).is_file():
            continue
        reached.add(page)
        for link in links(text_of(page)):
            if not ELSEWHERE.match(link):
                path = target(page, link)[0]
                folder = REPOSITORY / path
                listed = [f"{path}/{each.name}" for each in folder.glob("*.md")] if folder.is_dir() else []
                waiting += [path, *listed]
    assert {page for page in pages() if is_documentation(page)} - reached == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](b.md#c) ![d](e.svg)", ["b.md#c", "e.svg"]),
        ('[a](b.md "title")', ["b.md"]),
        ("[a]\n\n[a]: b.md", ["b.md"]),
        ('<a href="b.md">', ["b.md"]),
        ("`[a](b.md)`\n\n```\n[a](b.md)\n```\n", []),
    ],
)
def test_links_are_found_in_prose_only(text: str, found: list[str]) -> None:
    assert list(links(text)) == found
