from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdigen.cdi.rules.rulebook import ERRORS, WARNINGS, finding

REPOSITORY = Path(__file__).resolve().parents[3]


def documented() -> dict[str, str]:
    """Return the rules of the section "Spec files" of docs/reference/findings.md, with their severity."""
    text = (REPOSITORY / "docs/reference/findings.md").read_text(encoding="utf-8")
    section = text.split("\n## Spec files\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \| (\w+) \|", section, flags=re.MULTILINE)
    return {name: severity for names, severity in rows for name in re.findall(r"`([^`]+)`", names)}


def test_the_documentation_lists_exactly_the_rules_of_spec_files() -> None:
    assert documented() == dict.fromkeys(ERRORS, "error") | dict.fromkeys(WARNINGS, "warning")


def test_the_code_uses_every_rule_of_spec_files() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (
            *(REPOSITORY / "cdigen" / "cdi").rglob("*.py"),
            REPOSITORY / "cdigen/cli/specs/validate.py",
        )
        if path.name != "rulebook.py"
    )
    assert [rule for rule in ERRORS | WARNINGS if f'"{rule}"' not in source] == []


def test_no_rule_is_both_an_error_and_a_warning() -> None:
    assert not ERRORS & WARNINGS


def test_an_unknown_rule_cannot_be_reported() -> None:
    with pytest.raises(KeyError):
        finding("no-such-rule", "$", "message")


def test_a_finding_has_the_severity_of_its_rule() -> None:
    assert finding("env-syntax", "$", "m").severity == "error"
    assert finding("env-repeated", "$", "m").severity == "warning"
