"""Tegra boards and WSL2 hosts know profiles as other hosts do: each is a kind of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from vendors.fakehost import discover
from vendors.platformtrees import orin, wsl2

from cdigen.model.profile import DEFAULT, Profile
from cdigen.vendors.nvidia.vendor import VENDOR

pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.mark.parametrize("host", [orin, wsl2])
def test_each_profile_is_a_kind_of_its_own(tmp_path: Path, host: Callable[[Path], None]) -> None:
    host(tmp_path)
    profiles = (DEFAULT, Profile(name="compute", device_class="gpu-compute", capabilities=("compute",)))
    drafts = VENDOR.edits(discover(tmp_path), profiles)
    assert [draft.kind for draft in drafts] == ["nvidia.com/gpu", "nvidia.com/gpu-compute"]
    assert all(draft.devices for draft in drafts)
