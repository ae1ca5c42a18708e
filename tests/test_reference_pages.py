"""The pages docs/reference/{findings,checks,configuration}.md are generated from the present tables."""

import re
from pathlib import Path

import pytest
import references
import yaml
from support.paths import REPOSITORY

from cdigen.cdi.rules.rulebook import ERRORS, WARNINGS

SEVERITIES = {"error", "warning", "info"}


def entries(name: str) -> list[dict[str, str]]:
    """Return all entries of the source of the page NAME."""
    source = yaml.safe_load((references.SOURCES / f"{name}.yaml").read_text())
    return [entry for section in source["sections"] for entry in section.get("entries", ())]


@pytest.mark.parametrize("path", [f"docs/reference/{name}.md" for name in references.PAGES])
def test_a_page_is_up_to_date_with_its_tables(path: str) -> None:
    assert (REPOSITORY / path).read_text() == references.pages()[path], "run 'make generated'"


@pytest.mark.parametrize("path", [f"docs/reference/{name}.md" for name in references.PAGES])
def test_a_cell_has_at_most_120_characters(path: str) -> None:
    rows = re.findall(r"^\| (.*) \|$", (REPOSITORY / path).read_text(), re.MULTILINE)
    cells = [cell.replace("\\|", "|") for row in rows for cell in re.split(r"(?<!\\) \| ", row)]
    assert [cell for cell in cells if len(cell) > 120] == []
    assert len(cells) > 100


def test_a_rule_of_spec_files_has_its_severity_in_the_rulebook_only() -> None:
    known = ERRORS | WARNINGS
    without = [entry for entry in entries("findings") if "severity" not in entry]
    assert sorted(name for entry in without for name in references.names_of(entry)) == sorted(known)
    for entry in entries("findings"):
        if not known & set(references.names_of(entry)):
            assert set(entry["severity"].split(", ")) <= SEVERITIES


def test_rules_of_different_severities_are_not_in_one_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = {"name": "empty-document, byte-order-mark", "meaning": "m", "remedy": "r"}
    source = {"title": "T", "intro": "I", "sections": [{"heading": "H", "entries": [row]}]}
    (tmp_path / "findings.yaml").write_text(yaml.safe_dump(source))
    monkeypatch.setattr(references, "SOURCES", tmp_path)
    monkeypatch.setattr(references, "PAGES", ("findings",))
    with pytest.raises(ValueError, match="differ in severity"):
        references.pages()


@pytest.mark.parametrize("name", ["findings", "checks"])
def test_an_entry_has_each_field_and_only_known_fields(name: str) -> None:
    known = ERRORS | WARNINGS
    for entry in entries(name):
        fields = {"name", "examines", "failure"}
        if name == "findings":
            # A finding that is not about a spec file prints its remedy as its hint.
            is_of_file = set(references.names_of(entry)) <= known
            fields = {"name", "meaning", "remedy" if is_of_file else "severity"}
        assert fields <= entry.keys() <= fields | {"more"}, entry["name"]
        assert all(entry.values()), entry["name"]


@pytest.mark.parametrize("name", ["findings", "checks"])
def test_a_name_is_in_one_row_only(name: str) -> None:
    names = [one for entry in entries(name) for one in references.names_of(entry)]
    assert sorted(names) == sorted(set(names))


def test_a_long_description_is_split_after_its_first_sentence() -> None:
    first, second = "a" * 60, "B" * 61
    assert references.split(first) == (first, "")
    assert references.split(f"{first}. {second}") == (first, f"{second}.")
    with pytest.raises(ValueError, match="does not fit"):
        references.split("a" * 121)


def test_a_line_of_a_page_does_not_end_within_code() -> None:
    for text in references.pages().values():
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
        assert [line for line in prose.splitlines() if line.replace("\\`", "").count("`") % 2] == []
