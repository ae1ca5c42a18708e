"""The documentation names what the code names."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def test_every_rule_outside_the_rulebook_is_documented_and_every_documented_rule_exists() -> None:
    text = (REPOSITORY / "docs/rules.md").read_text().split("\n## Against a host\n")[1]
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", text, flags=re.MULTILINE))
    sources = [path for path in (REPOSITORY / "cdigen").rglob("*.py") if path.name != "rulebook.py"]
    code = "".join(path.read_text() for path in sources)
    named = set(re.findall(r'(?:rule=|_finding\(|_problem\(|_unread\(file, |_clash\()\s*"([a-z-]+)"', code))
    assert {rule for rule in documented if f'"{rule}"' not in code} == set()
    assert named - documented - {"too-large"} == set()
