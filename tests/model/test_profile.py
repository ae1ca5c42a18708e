"""Which parts of a profile are kinds of their own where it is narrow."""

import pytest

from cdigen.model.profile import CAPABILITIES, DEFAULT, Profile, narrowed
from cdigen.value import replace

WHOLE = replace(DEFAULT, narrow=True)


def classes(*profiles: Profile) -> list[str]:
    return [part.device_class for part in narrowed(profiles)]


def test_a_profile_has_no_parts_unless_it_is_narrow() -> None:
    assert classes(DEFAULT) == []
    assert classes(WHOLE) == ["gpu-compute", "gpu-graphics"]


def test_a_part_gives_less_and_is_otherwise_as_the_whole() -> None:
    whole = replace(WHOLE, names=("uuid",), firmware=False, compat32=True, hook="none")
    for part in narrowed((whole,)):
        assert set(part.capabilities) < set(CAPABILITIES)
        own = {"name": part.name, "device_class": part.device_class, "capabilities": part.capabilities}
        assert part == replace(whole, **own, narrow=False)


def test_a_class_that_is_configured_stays_as_it_is() -> None:
    mine = Profile(name="mine", device_class="gpu-compute", capabilities=("compute",))
    assert classes(WHOLE, mine) == ["gpu-graphics"]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"capabilities": ("compute", "utility")}, []),
        ({"capabilities": ("utility",)}, []),
        ({"capabilities": ("compute", "utility", "video")}, ["gpu-compute"]),
        ({"graphics": False}, ["gpu-compute"]),
        ({"graphics": False, "capabilities": ("compute", "utility", "graphics")}, []),
    ],
)
def test_there_is_no_part_that_the_whole_is_not_more_than(
    changes: dict[str, object], parts: list[str]
) -> None:
    assert classes(replace(WHOLE, **changes)) == parts


@pytest.mark.parametrize(
    ("layout", "hook", "expected"),
    [
        ("hwcaps", "auto", "files"),
        ("view", "none", "files"),
        ("view", "auto", "view"),
        ("auto", "none", "auto"),
    ],
)
def test_the_folders_where_loaders_look_by_themselves_are_left_to_the_whole(
    layout: str, hook: str, expected: str
) -> None:
    parts = narrowed((replace(WHOLE, layout=layout, hook=hook),))
    assert {part.layout for part in parts} == {expected}
