"""The limits of size of a page, of all pages together, and of a cell of a table."""

import pytest
from support.documentation.pages import GENERATED, cells, is_documentation, pages, text_of

PAGE_BYTES = 16 * 1024
# All pages together, without the decisions and the benchmarks.
TOTAL_BYTES = 360 * 1024
CELL_CHARACTERS = 120
# Each decision and each benchmark is read alone, and stays.
NOT_IN_TOTAL = ("docs/decisions/", "docs/reference/benchmarks/")

DOCUMENTATION = [page for page in pages() if is_documentation(page)]
HAND_WRITTEN = [page for page in DOCUMENTATION if page not in GENERATED]


def size(page: str) -> int:
    return len(text_of(page).encode())


def test_a_hand_written_page_has_at_most_16_kb() -> None:
    assert {page: size(page) for page in HAND_WRITTEN if size(page) > PAGE_BYTES} == {}


def test_all_pages_together_have_at_most_360_kb() -> None:
    sizes = {page: size(page) for page in DOCUMENTATION if not page.startswith(NOT_IN_TOTAL)}
    assert sum(sizes.values()) <= TOTAL_BYTES, sorted(sizes.items(), key=lambda item: -item[1])[:10]


@pytest.mark.parametrize("page", HAND_WRITTEN)
def test_a_cell_of_a_table_has_at_most_120_characters(page: str) -> None:
    long = [f"line {line}: {len(cell)}" for line, cell in cells(text_of(page)) if len(cell) > CELL_CHARACTERS]
    assert long == []


def test_the_generated_pages_exist() -> None:
    assert GENERATED - {*pages()} == set()


def test_cells_are_found_with_their_line_and_not_in_code() -> None:
    text = "a\n| b | `c \\| d` |\n|---|---|\n```\n| e |\n```\n| f | |\n"
    assert [cell for cell in cells(text) if set(cell[1]) != {"-"}] == [
        (2, "b"), (2, "`c | d`"), (7, "f"), (7, "")
    ]  # fmt: skip
