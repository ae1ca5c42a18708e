"""Test modules have names of their own: pytest imports them by these, and leaves out the second of a name."""

from collections import Counter
from pathlib import Path


def test_no_two_test_modules_have_one_name() -> None:
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
