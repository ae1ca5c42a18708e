"""The capability kinds of a profile."""

import pytest

from cdigen.model.profile import CAPABILITIES, DEFAULT, Profile, capability_profiles
from cdigen.value import replace

WHOLE = replace(DEFAULT, has_capability_kinds=True)


def classes(*profiles: Profile) -> list[str]:
    return [part.device_class for part in capability_profiles(profiles)]


def test_only_profiles_with_the_field_has_capability_kinds_have_capability_kinds() -> None:
    assert classes(DEFAULT) == []
    assert classes(WHOLE) == ["gpu-compute", "gpu-graphics"]


def test_a_capability_kind_differs_from_its_profile_only_in_name_and_capabilities() -> None:
    whole = replace(WHOLE, names=("uuid",), firmware=False, compat32=True, hook="none")
    for part in capability_profiles((whole,)):
        assert set(part.capabilities) < set(CAPABILITIES)
        own = {"name": part.name, "device_class": part.device_class, "capabilities": part.capabilities}
        assert part == replace(whole, **own, has_capability_kinds=False)


def test_a_configured_class_is_not_replaced_by_a_capability_kind() -> None:
    configured = Profile(name="other", device_class="gpu-compute", capabilities=("compute",))
    assert classes(WHOLE, configured) == ["gpu-graphics"]


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
def test_a_capability_kind_requires_a_profile_with_more_capabilities(
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
def test_a_capability_kind_does_not_mount_the_loaders_folders(layout: str, hook: str, expected: str) -> None:
    parts = capability_profiles((replace(WHOLE, layout=layout, hook=hook),))
    assert {part.layout for part in parts} == {expected}
