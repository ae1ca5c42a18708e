"""Profiles of hypothesis: the profile decides the number of examples of a property test."""

import os
from pathlib import Path

import pytest
from hypothesis import settings
from support.law_examples import examples

TESTS = Path(__file__).parent
SETTERS = ("conftest.py", "law_examples.py", "test_law_examples.py")


def test_no_test_sets_its_own_number_of_examples() -> None:
    files = (path for path in TESTS.rglob("*.py") if path.name not in SETTERS)
    assert [str(path) for path in files if "max_examples" in path.read_text()] == []


@pytest.mark.parametrize(
    ("profile", "number", "is_random"),
    [("quick", 40, False), ("default", 100, False), ("nightly", 2000, True)],
)
def test_the_factor_multiplies_the_number_of_examples_of_the_profile(
    profile: str, number: int, *, is_random: bool
) -> None:
    settings.load_profile(profile)
    try:
        made = examples(4)
        assert (made.max_examples, made.derandomize, made.deadline) == (number, not is_random, None)
    finally:
        settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
