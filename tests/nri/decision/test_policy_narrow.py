"""`nri.narrow`: NVIDIA_DRIVER_CAPABILITIES chooses among kinds that nobody wrote a profile for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nri.host import DEVICES, GPU_NAMES, UUID, allowed, container, outcome

from cdigen.config import AllowRule, GpuKind, Settings
from cdigen.model.profile import CAPABILITIES, Profile
from cdigen.nri.decision.decide import Decision
from cdigen.nri.decision.select import DeviceNames

GPU, COMPUTE, GRAPHICS = "nvidia.com/gpu", "nvidia.com/gpu-compute", "nvidia.com/gpu-graphics"
NARROWED = DeviceNames([*DEVICES, *(f"{GRAPHICS}={name}" for name in GPU_NAMES)])
WHOLE_ONLY = DeviceNames(device for device in DEVICES if not device.startswith(COMPUTE))
VISIBLE = "NVIDIA_VISIBLE_DEVICES=0"
OWN = "devices.cdigen.dev"


def found(
    *env: str,
    asked: str = "",
    names: DeviceNames = NARROWED,
    nodes: tuple[str, ...] = (),
    **settings: Any,
) -> Decision:
    """Return what becomes of a container with ENV and NODES, annotated with ASKED, where NRI is narrow."""
    annotations = {OWN: asked} if asked else {}
    here = container(devices=nodes)
    return outcome(*env, asked=annotations, names=names, here=here, **{"narrow": True, **settings})


@pytest.mark.parametrize(
    ("capabilities", "kind"),
    [
        (None, COMPUTE),
        ("", COMPUTE),
        ("compute,utility", COMPUTE),
        ("utility", COMPUTE),
        ("compute", COMPUTE),
        ("graphics", GRAPHICS),
        ("graphics,compute,utility", GRAPHICS),
        ("display", GRAPHICS),
        ("video,compute,utility", GPU),
        ("ngx", GPU),
        ("all", GPU),
        ("graphics,video", GPU),
    ],
)
def test_a_container_gets_the_kind_that_gives_least_of_what_it_asks_for(
    capabilities: str | None, kind: str
) -> None:
    env = () if capabilities is None else (f"NVIDIA_DRIVER_CAPABILITIES={capabilities}",)
    assert found(VISIBLE, *env).devices == (f"{kind}=0",)
    assert found(VISIBLE, *env, narrow=False).devices == (f"{GPU}=0",)


def test_an_image_that_says_neither_devices_nor_requirements_gets_the_whole_driver() -> None:
    assert found("CUDA_VERSION=8.0.61").devices == (f"{GPU}=all",)


def test_a_name_with_its_kind_has_all_files_whatever_the_capabilities() -> None:
    assert found(asked=f"{GPU}=0").devices == (f"{GPU}=0",)
    assert found(f"NVIDIA_VISIBLE_DEVICES={GPU}=0").devices == (f"{GPU}=0",)


def test_gpus_beside_one_that_is_named_with_its_kind_are_of_that_kind() -> None:
    """Two kinds in one container would bring the driver twice."""
    assert found(f"NVIDIA_VISIBLE_DEVICES=1:0,{GPU}=0").devices == (f"{GPU}=1:0", f"{GPU}=0")
    assert found(f"NVIDIA_VISIBLE_DEVICES=0,{GPU}=0").devices == (f"{GPU}=0",)


def test_the_driver_without_a_gpu_is_the_part_of_the_capabilities_as_well() -> None:
    names = DeviceNames([*DEVICES, *(f"{kind}=none" for kind in (GPU, COMPUTE, GRAPHICS))])
    assert found("NVIDIA_VISIBLE_DEVICES=none", names=names).devices == (f"{COMPUTE}=none",)
    everything = found("NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_DRIVER_CAPABILITIES=all", names=names)
    assert everything.devices == (f"{GPU}=none",)


@pytest.mark.parametrize(("capabilities", "kind"), [("", COMPUTE), ("graphics", GRAPHICS), ("all", GPU)])
def test_nodes_that_another_gave_get_the_part_of_the_capabilities(capabilities: str, kind: str) -> None:
    names = DeviceNames([*DEVICES, *(f"{kind}=none" for kind in (GPU, COMPUTE, GRAPHICS))])
    env = (VISIBLE, f"NVIDIA_DRIVER_CAPABILITIES={capabilities}")
    assert found(*env, names=names, nodes=("/dev/nvidia0",)).devices == (f"{kind}=none",)


def test_where_the_driver_without_a_gpu_is_no_part_the_whole_is_given() -> None:
    names = DeviceNames([*DEVICES, f"{GPU}=none"])
    assert found("NVIDIA_VISIBLE_DEVICES=none", names=names).devices == (f"{GPU}=none",)


def test_where_no_such_spec_is_written_yet_the_whole_driver_is_given() -> None:
    assert found(VISIBLE, names=WHOLE_ONLY).devices == (f"{GPU}=0",)


def test_where_a_narrow_spec_lacks_a_gpu_the_whole_driver_is_given() -> None:
    names = DeviceNames([*(d for d in DEVICES if not d.startswith(COMPUTE)), f"{COMPUTE}=7"])
    assert found(VISIBLE, names=names).devices == (f"{GPU}=0",)


@pytest.mark.parametrize("kinds", [(), (GPU,), ("nvidia.com/*",), (GPU, "amd.com/gpu")])
def test_who_may_have_the_kind_may_have_its_parts(kinds: tuple[str, ...]) -> None:
    allow = allowed(kinds=kinds)
    assert found(VISIBLE, allow=allow).devices == (f"{COMPUTE}=0",)
    assert found(asked=f"{GRAPHICS}=0", allow=allow).devices == (f"{GRAPHICS}=0",)


def test_who_may_not_have_the_kind_may_not_have_its_parts_either() -> None:
    assert found(asked=f"{COMPUTE}=0", allow=allowed(kinds=("amd.com/gpu",))).cause == "not_permitted"
    assert found(asked=f"{COMPUTE}=0", allow=(AllowRule(namespaces=("other",)),)).outcome == "nothing"
    managed = found(asked=f"{COMPUTE}=0", allow=allowed(kinds=("*",)), management_kinds=(GPU,))
    assert managed.cause == "not_permitted"


def test_a_row_may_allow_a_part_alone() -> None:
    allow = allowed(kinds=(COMPUTE,))
    assert found(VISIBLE, allow=allow).devices == (f"{COMPUTE}=0",)
    refused = found(VISIBLE, "NVIDIA_DRIVER_CAPABILITIES=all", allow=allow)
    assert (refused.outcome, refused.cause) == ("refuse", "not_permitted")


def test_without_it_parts_are_kinds_like_any_other() -> None:
    assert outcome(asked={OWN: f"{COMPUTE}=0"}, names=NARROWED).cause == "not_permitted"


def test_kinds_that_are_configured_count_with_the_parts_of_the_one_that_has_them() -> None:
    named = (
        GpuKind(kind=GPU),
        GpuKind(kind="nvidia.com/gpu-video", capabilities=("compute", "utility", "video")),
    )
    names = DeviceNames([*DEVICES, "nvidia.com/gpu-video=0", "example.com/gpu=0"])
    assert found(VISIBLE, gpu_kinds=named, names=names).devices == (f"{COMPUTE}=0",)
    video = found(VISIBLE, "NVIDIA_DRIVER_CAPABILITIES=video", gpu_kinds=named, names=names)
    assert video.devices == ("nvidia.com/gpu-video=0",)
    others = found(VISIBLE, gpu_kinds=(GpuKind(kind="example.com/gpu"),), names=names)
    assert others.devices == ("example.com/gpu=0",)


def test_a_profile_of_the_class_of_a_part_is_what_it_says() -> None:
    profiles = (
        *Settings().profiles,
        Profile(name="mine", device_class="gpu-compute", capabilities=("utility",)),
    )
    assert found(VISIBLE, "NVIDIA_DRIVER_CAPABILITIES=utility", profiles=profiles).devices == (
        f"{COMPUTE}=0",
    )
    assert found(VISIBLE, profiles=profiles).devices == (f"{GRAPHICS}=0",)


PATTERNS = st.lists(
    st.sampled_from([GPU, COMPUTE, GRAPHICS, "nvidia.com/*", "nvidia.com/gpu-*", "amd.com/gpu", "*"]),
    max_size=2,
).map(tuple)
WORDS = st.lists(st.sampled_from([*CAPABILITIES, "all"]), max_size=3).map(",".join)
TOKENS = st.lists(st.sampled_from(["0", "1:0", "all", UUID, f"{GPU}=0"]), min_size=1, max_size=3).map(
    ",".join
)


@given(kinds=PATTERNS, managed=PATTERNS, words=WORDS, tokens=TOKENS, are_written=st.booleans())
def test_nobody_loses_a_gpu_by_it_or_gains_one(
    kinds: tuple[str, ...], managed: tuple[str, ...], words: str, tokens: str, *, are_written: bool
) -> None:
    rows = allowed(kinds=kinds)
    env = (f"NVIDIA_VISIBLE_DEVICES={tokens}", f"NVIDIA_DRIVER_CAPABILITIES={words}")
    given_names = NARROWED if are_written else WHOLE_ONLY
    before, after = (
        found(*env, allow=rows, management_kinds=managed, names=given_names, narrow=narrow)
        for narrow in (False, True)
    )
    names = [sorted({choice.name for choice in each.choices}) for each in (before, after)]
    if before.outcome == "inject":
        assert after.outcome == "inject"
        assert names[0] == names[1]
    elif after.outcome == "inject":
        # A row that allows a part alone, which is there now.
        assert {choice.kind for choice in after.choices} <= {COMPUTE, GRAPHICS}
        assert any(kind in {COMPUTE, GRAPHICS, "nvidia.com/gpu-*"} for kind in kinds)
