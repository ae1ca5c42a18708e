"""Test modules have unique names: pytest imports them by name, and skips a second module of that name."""

from collections import Counter
from pathlib import Path


def test_no_two_test_modules_have_the_same_name() -> None:
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
