"""`typed_record` derives the readers of a frozen class from the types of its fields."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from cdigen.model.strict import (
    InvalidValue,
    as_json,
    many,
    number,
    one_of,
    reader_of,
    string,
    typed_record,
    whole,
)
from cdigen.value import frozen, replace

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class Part:
    """A value inside of ``Whole``."""

    name: str
    size: int


@frozen
class Whole:
    """A value with a field of each type."""

    text: str
    number: int
    time_s: float
    flag: bool
    perhaps_text: str | None
    perhaps_number: int | None
    texts: tuple[str, ...]
    parts: tuple[Part, ...]
    kind: str = "a"


READER = typed_record(Whole, "kind", parts=many(typed_record(Part)), kind=one_of("a", "b"))
VALUE = Whole(
    text="x",
    number=1,
    time_s=1.5,
    flag=True,
    perhaps_text=None,
    perhaps_number=2,
    texts=("y", "z"),
    parts=(Part(name="p", size=3),),
)


def test_a_value_that_is_written_is_read_back() -> None:
    assert READER(as_json(VALUE), "$") == VALUE
    full = replace(VALUE, perhaps_text="t", perhaps_number=None, kind="b")
    assert READER(as_json(full), "$") == full


def test_an_optional_member_may_be_missing_and_others_may_not() -> None:
    document = as_json(VALUE)
    del document["kind"]
    assert READER(document, "$") == VALUE
    del document["flag"]
    with pytest.raises(InvalidValue, match=r"\$\.flag is not present"):
        READER(document, "$")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("text", 1),
        ("number", "1"),
        ("number", True),
        ("number", -1),
        ("time_s", "1"),
        ("time_s", float("nan")),
        ("flag", 1),
        ("flag", None),
        ("perhaps_text", 1),
        ("perhaps_number", 1.5),
        ("texts", "y"),
        ("texts", [1]),
        ("parts", [{"name": "p"}]),
        ("kind", "c"),
        ("more", 1),
    ],
)
def test_a_value_of_another_type_is_rejected(name: str, wrong: object) -> None:
    with pytest.raises(InvalidValue) as error:
        READER({**as_json(VALUE), name: wrong}, "$")
    assert error.value.path.startswith(f"$.{name}")


def test_a_field_of_an_unknown_type_needs_a_reader() -> None:
    @frozen
    class Odd:
        """A value with a mapping."""

        values: Mapping[str, int]

    with pytest.raises(KeyError):
        typed_record(Odd)


def test_whole_numbers_have_bounds() -> None:
    read = whole(-1, 3)
    assert [read(value, "$") for value in (-1, 3)] == [-1, 3]
    for value in (-2, 4, 1.0, "1", False):
        with pytest.raises(InvalidValue, match="a whole number from -1 to 3"):
            read(value, "$")


def test_a_path_may_have_any_characters() -> None:
    path = "/a\udcff\n"
    assert string(path, "$") == path
    with pytest.raises(InvalidValue):
        string(1, "$")


def test_mappings_become_objects() -> None:
    found: Any = as_json(MappingProxyType({"a": (Part(name="p", size=1),)}))
    assert found == {"a": [{"name": "p", "size": 1}]}


def test_a_value_of_the_class_is_checked_like_a_document() -> None:
    assert READER(VALUE, "$") == VALUE
    assert many(READER)((VALUE,), "$") == (VALUE,)
    wrong: Any = (Part(name="p", size=3), 7)
    with pytest.raises(InvalidValue, match=r"\$\.parts\[1\] is not an object"):
        READER(replace(VALUE, parts=wrong), "$")


def test_another_reader_reads_the_types_that_are_not_plain() -> None:
    read = reader_of("tuple[Part | None, ...]", {"Part": typed_record(Part)}.__getitem__)
    assert read(({"name": "p", "size": 3}, None), "$") == (*VALUE.parts, None)
    assert reader_of("tuple[tuple[int, ...], ...]")([[1], []], "$") == ((1,), ())
    with pytest.raises(KeyError):
        reader_of("Part")
    assert reader_of("int") is number
