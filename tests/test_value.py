"""``cdigen.value`` makes classes of values, which behave like the standard library's dataclasses."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cdigen.value import fields, frozen, replace


@frozen
class Point:
    """A point."""

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        """The sum."""
        return self.x + self.y


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    x: int
    y: int = 2


def test_a_value_has_its_arguments_and_defaults() -> None:
    assert (Point(x=1).x, Point(x=1).y, Point(x=1, y=5).y) == (1, 2, 5)


def test_the_repr_of_a_value_is_that_of_a_dataclass() -> None:
    assert repr(Point(x=1)) == repr(Standard(x=1)).replace("Standard", "Point")


def test_values_are_equal_if_their_fields_are_equal() -> None:
    assert Point(x=1) == Point(x=1, y=2)
    assert Point(x=1) != Point(x=2)
    assert hash(Point(x=1)) == hash(Point(x=1, y=2))


def test_a_value_is_never_equal_to_a_value_of_another_class() -> None:
    standard: object = Standard(x=1)
    assert Point(x=1) != standard


def test_a_missing_field_is_a_type_error_that_names_it() -> None:
    with pytest.raises(TypeError, match=r"Point lacks \['x'\]"):
        Point()  # type: ignore[call-arg]


def test_an_unknown_field_is_a_type_error_that_names_it() -> None:
    with pytest.raises(TypeError, match=r"Point has no \['z'\]"):
        Point(x=1, z=3)  # type: ignore[call-arg]


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[call-arg]


def test_a_value_cannot_be_changed() -> None:
    point = Point(x=1)
    with pytest.raises(AttributeError, match="cannot be changed"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match="cannot be changed"):
        del point.x
    with pytest.raises(AttributeError):
        point.z = 3  # type: ignore[attr-defined]


def test_a_value_has_no_dictionary() -> None:
    assert not hasattr(Point(x=1), "__dict__")


def test_replace_changes_only_the_named_fields() -> None:
    assert replace(Point(x=1, y=7), x=3) == Point(x=3, y=7)


def test_a_class_keeps_its_properties_and_docstring() -> None:
    assert Point(x=1).total == 3
    assert Point.__doc__ == "A point."


def test_fields_returns_the_names_in_order_and_nothing_for_other_objects() -> None:
    assert fields(Point(x=1)) == ("x", "y")
    assert fields((1, 2)) == ()
