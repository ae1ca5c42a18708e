"""The documentation names what the code names."""

import json
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(path.name for path in (REPOSITORY / "docs").glob("*.md"))


NAMES_RULE = re.compile(r'(?:rule=|_\w+\(\s*(?:"(?:error|warning|info)",\s*)?)"([a-z0-9]+(?:-[a-z0-9]+)+)"')
# What is written like one: a runtime's name, and a folder without spec files, of which validate says no rule.
NO_RULES = {"cri-o", "no-files"}


def test_every_rule_outside_the_rulebook_is_documented_and_every_documented_rule_exists() -> None:
    text = (REPOSITORY / "docs/rules.md").read_text()
    documented = set(re.findall(r"^\| `([a-z0-9-]+)` \|", text, flags=re.MULTILINE))
    # The start-up hook has no findings: what it says of its steps is in docs/hook.md.
    sources = [
        path
        for path in (REPOSITORY / "cdigen").rglob("*.py")
        if path.name != "rulebook.py" and path.parent.name != "hook"
    ]
    code = "".join(path.read_text() for path in sources)
    assert set(NAMES_RULE.findall(code)) - NO_RULES - documented == set()
    outside = set(
        re.findall(r"^\| `([a-z-]+)` \|", text.split("\n## Against a host\n")[1], flags=re.MULTILINE)
    )
    assert {rule for rule in outside if f'"{rule}"' not in code} == set()


def test_every_key_of_the_configuration_is_documented() -> None:
    text = (REPOSITORY / "docs/configuration.md").read_text()
    schema = json.loads((REPOSITORY / "schemas/config.schema.json").read_text())
    profile = schema["properties"]["profiles"]["items"]["properties"]
    assert {key for key in (*schema["properties"], *profile) if f"`{key}`" not in text} == set()


@pytest.mark.parametrize("document", ["README.md", "CHANGELOG.md", *(f"docs/{name}" for name in DOCUMENTS)])
def test_every_file_that_a_document_names_exists(document: str) -> None:
    text = (REPOSITORY / document).read_text()
    named = set(re.findall(r"`((?:docs|examples|etc|schemas|tests|cdigen)/[\w./-]*\w)`", text))
    assert {path for path in named if not (REPOSITORY / path).exists()} == set()


RECORDS = sorted((REPOSITORY / "docs/decisions").glob("*.md"))


@pytest.mark.parametrize("document", [*DOCUMENTS, *(f"decisions/{path.name}" for path in RECORDS)])
def test_every_module_that_a_document_names_exists(document: str) -> None:
    text = (REPOSITORY / "docs" / document).read_text()
    named = re.findall(r"`([a-z_/]+\.py)`", text)
    tops = [REPOSITORY / name for name in ("cdigen", "etc", "examples", "tests")]
    modules = [path for top in tops for path in top.rglob("*.py")]
    # A path from the top or from the package on, or a name alone.
    assert [name for name in named if not any(str(path).endswith(f"/{name}") for path in modules)] == []


def test_decisions_are_numbered_without_a_gap_and_those_that_are_named_exist() -> None:
    numbers = [int(path.name[:4]) for path in RECORDS]
    assert numbers == list(range(1, len(numbers) + 1))
    texts = [
        path.read_text() for path in (*REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("cdigen/**/*.py"))
    ]
    named = {int(number) for text in texts for number in re.findall(r"[Dd]ecision (\d+)", text)}
    assert named <= set(numbers)
    assert [
        path.name for path in RECORDS if not path.read_text().startswith(f"# {int(path.name[:4])}. ")
    ] == []
