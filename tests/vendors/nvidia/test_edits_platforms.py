"""Tegra boards and WSL2 hosts support profiles like other hosts. Each profile is a separate kind."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.hosts.nvidia import discover
from support.hosts.nvidia_platforms import orin, wsl2

from cdigen.model.profile import DEFAULT, Profile
from cdigen.value import replace
from cdigen.vendors.nvidia.vendor import VENDOR

pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.mark.parametrize("host", [orin, wsl2])
def test_each_profile_is_a_separate_kind(tmp_path: Path, host: Callable[[Path], None]) -> None:
    host(tmp_path)
    profiles = (DEFAULT, Profile(name="compute", device_class="gpu-compute", capabilities=("compute",)))
    drafts = VENDOR.edits(discover(tmp_path), profiles)
    assert [draft.kind for draft in drafts] == ["nvidia.com/gpu", "nvidia.com/gpu-compute"]
    assert all(draft.devices for draft in drafts)


@pytest.mark.parametrize("host", [orin, wsl2])
def test_capability_kinds_of_a_platform_have_the_complete_driver(
    tmp_path: Path, host: Callable[[Path], None]
) -> None:
    host(tmp_path)
    whole, *parts = VENDOR.edits(discover(tmp_path), (replace(DEFAULT, has_capability_kinds=True),))
    assert [part.kind for part in parts] == ["nvidia.com/gpu-compute", "nvidia.com/gpu-graphics"]
    assert all((part.devices, part.payload) == (whole.devices, whole.payload) for part in parts)
