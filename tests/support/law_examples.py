"""The number of examples of a property test, as a multiple of the profile's (tests/conftest.py)."""

from hypothesis import settings


def examples(factor: int) -> settings:
    """Return settings with FACTOR times as many examples as the profile has.

    Use it if only few examples can fail: damaged bytes, orders of events, trees of links.
    """
    return settings(max_examples=factor * settings().max_examples)
