"""`whole_view` returns the view that a spec mounts completely; each kind has its own volume name."""

from typing import Any

import pytest

from cdigen.model.view import volume_name
from cdigen.pipeline.publish import whole_view

NAME = "nvidia-0123456789abcdef"
VIEW = f"/var/lib/cdigen/views/{NAME}"
WHOLE = (VIEW, "/usr/local/nvidia")


def spec(*mounts: tuple[str, str]) -> dict[str, Any]:
    given = [{"hostPath": source, "containerPath": target} for source, target in mounts]
    device = {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
    return {"kind": "nvidia.com/gpu", "devices": [device], "containerEdits": {"mounts": given}}


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        pytest.param([WHOLE], NAME, id="the view"),
        pytest.param([(f"{VIEW}-2", "/usr/local/nvidia")], f"{NAME}-2", id="the replacement of a view"),
        pytest.param([(f"{VIEW}/lib64", "/usr/lib64/glibc-hwcaps/x86-64-v2")], NAME, id="its folders"),
        pytest.param([WHOLE, (f"{VIEW}/fixed/etc/x", "/etc/x"), ("/run/s", "/run/s")], NAME, id="and others"),
        pytest.param([WHOLE, ("/usr/lib/libx.so", "/usr/local/nvidia/lib64/libx.so")], "", id="not all"),
        pytest.param([("/usr/lib/libcuda.so", "/usr/lib/libcuda.so.1")], "", id="files"),
        pytest.param([WHOLE, (f"{VIEW[:-1]}0", "/usr/local/cdigen")], "", id="two views"),
        pytest.param([], "", id="nothing"),
    ],
)
def test_only_a_complete_view_is_a_volume(mounts: list[tuple[str, str]], expected: str) -> None:
    assert whole_view(spec(*mounts)) == expected


def test_each_kind_has_a_separate_volume() -> None:
    kinds = ("nvidia.com/gpu", "nvidia.com/driver", "amd.com/gpu", "management.nvidia.com/gpu")
    assert [volume_name(kind) for kind in kinds] == [
        "nvidia_driver",
        "nvidia_driver_driver",
        "amd_driver",
        "management.nvidia_driver",
    ]
