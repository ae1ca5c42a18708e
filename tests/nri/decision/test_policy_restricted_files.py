"""`nri.restrict_driver_files`: NVIDIA_DRIVER_CAPABILITIES selects a capability kind. No profile is needed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nri.device_names import device_names
from support.nri.host import DEVICES, GPU_NAMES, UUID, allowed, container, outcome

from cdigen.config import AllowRule, GpuKind, Settings
from cdigen.model.profile import CAPABILITIES, Profile
from cdigen.nri.decision.decide import InjectionDecision
from cdigen.nri.decision.request.select import DeviceNames

GPU, COMPUTE, GRAPHICS = "nvidia.com/gpu", "nvidia.com/gpu-compute", "nvidia.com/gpu-graphics"
NARROWED = device_names([*DEVICES, *(f"{GRAPHICS}={name}" for name in GPU_NAMES)])
WHOLE_ONLY = device_names(device for device in DEVICES if not device.startswith(COMPUTE))
VISIBLE = "NVIDIA_VISIBLE_DEVICES=0"
OWN = "devices.cdigen.dev"


def found(
    *env: str,
    annotation: str = "",
    names: DeviceNames = NARROWED,
    nodes: tuple[str, ...] = (),
    **settings: Any,
) -> InjectionDecision:
    """Return the decision about a container with ENV, NODES and ANNOTATION, with `restrict_driver_files`."""
    annotations = {OWN: annotation} if annotation else {}
    here = container(devices=nodes)
    return outcome(
        *env,
        pod_annotations=annotations,
        names=names,
        here=here,
        **{"restrict_driver_files": True, **settings},
    )


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
def test_a_container_gets_the_smallest_kind_with_its_capabilities(
    capabilities: str | None, kind: str
) -> None:
    env = () if capabilities is None else (f"NVIDIA_DRIVER_CAPABILITIES={capabilities}",)
    assert found(VISIBLE, *env).devices == (f"{kind}=0",)
    assert found(VISIBLE, *env, restrict_driver_files=False).devices == (f"{GPU}=0",)


def test_a_legacy_image_gets_the_whole_driver() -> None:
    assert found("CUDA_VERSION=8.0.61").devices == (f"{GPU}=all",)


def test_a_qualified_name_injects_all_driver_files_whatever_the_capabilities() -> None:
    assert found(annotation=f"{GPU}=0").devices == (f"{GPU}=0",)
    assert found(f"NVIDIA_VISIBLE_DEVICES={GPU}=0").devices == (f"{GPU}=0",)


def test_other_requested_gpus_have_the_kind_of_the_qualified_name() -> None:
    """Two kinds in one container would inject the driver twice."""
    assert found(f"NVIDIA_VISIBLE_DEVICES=1:0,{GPU}=0").devices == (f"{GPU}=1:0", f"{GPU}=0")
    assert found(f"NVIDIA_VISIBLE_DEVICES=0,{GPU}=0").devices == (f"{GPU}=0",)


def test_the_capabilities_determine_the_kind_of_the_device_none() -> None:
    names = device_names([*DEVICES, *(f"{kind}=none" for kind in (GPU, COMPUTE, GRAPHICS))])
    assert found("NVIDIA_VISIBLE_DEVICES=none", names=names).devices == (f"{COMPUTE}=none",)
    everything = found("NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_DRIVER_CAPABILITIES=all", names=names)
    assert everything.devices == (f"{GPU}=none",)


@pytest.mark.parametrize(("capabilities", "kind"), [("", COMPUTE), ("graphics", GRAPHICS), ("all", GPU)])
def test_nodes_from_a_device_plugin_get_the_files_of_the_capabilities(capabilities: str, kind: str) -> None:
    names = device_names([*DEVICES, *(f"{kind}=none" for kind in (GPU, COMPUTE, GRAPHICS))])
    env = (VISIBLE, f"NVIDIA_DRIVER_CAPABILITIES={capabilities}")
    assert found(*env, names=names, nodes=("/dev/nvidia0",)).devices == (f"{kind}=none",)


def test_the_whole_driver_is_injected_if_the_capability_kind_has_no_device_none() -> None:
    names = device_names([*DEVICES, f"{GPU}=none"])
    assert found("NVIDIA_VISIBLE_DEVICES=none", names=names).devices == (f"{GPU}=none",)


def test_the_whole_driver_is_injected_if_no_capability_kind_has_a_spec() -> None:
    assert found(VISIBLE, names=WHOLE_ONLY).devices == (f"{GPU}=0",)


def test_the_whole_driver_is_injected_if_the_capability_kind_lacks_the_gpu() -> None:
    names = device_names([*(d for d in DEVICES if not d.startswith(COMPUTE)), f"{COMPUTE}=7"])
    assert found(VISIBLE, names=names).devices == (f"{GPU}=0",)


@pytest.mark.parametrize("kinds", [(), (GPU,), ("nvidia.com/*",), (GPU, "amd.com/gpu")])
def test_a_rule_for_a_kind_permits_its_capability_kinds(kinds: tuple[str, ...]) -> None:
    allow = allowed(kinds=kinds)
    assert found(VISIBLE, allow=allow).devices == (f"{COMPUTE}=0",)
    assert found(annotation=f"{GRAPHICS}=0", allow=allow).devices == (f"{GRAPHICS}=0",)


def test_without_a_rule_for_the_kind_its_capability_kinds_are_not_permitted() -> None:
    assert found(annotation=f"{COMPUTE}=0", allow=allowed(kinds=("amd.com/gpu",))).cause == "not_permitted"
    assert found(annotation=f"{COMPUTE}=0", allow=(AllowRule(namespaces=("other",)),)).outcome == "nothing"
    managed = found(annotation=f"{COMPUTE}=0", allow=allowed(kinds=("*",)), management_kinds=(GPU,))
    assert managed.cause == "not_permitted"


def test_a_rule_can_permit_a_capability_kind_only() -> None:
    allow = allowed(kinds=(COMPUTE,))
    assert found(VISIBLE, allow=allow).devices == (f"{COMPUTE}=0",)
    refused = found(VISIBLE, "NVIDIA_DRIVER_CAPABILITIES=all", allow=allow)
    assert (refused.outcome, refused.cause) == ("refuse", "not_permitted")


def test_without_the_setting_capability_kinds_are_ordinary_kinds() -> None:
    assert outcome(pod_annotations={OWN: f"{COMPUTE}=0"}, names=NARROWED).cause == "not_permitted"


def test_gpu_kinds_with_the_default_kind_include_its_capability_kinds() -> None:
    named = (
        GpuKind(kind=GPU),
        GpuKind(kind="nvidia.com/gpu-video", capabilities=("compute", "utility", "video")),
    )
    names = device_names([*DEVICES, "nvidia.com/gpu-video=0", "example.com/gpu=0"])
    assert found(VISIBLE, gpu_kinds=named, names=names).devices == (f"{COMPUTE}=0",)
    video = found(VISIBLE, "NVIDIA_DRIVER_CAPABILITIES=video", gpu_kinds=named, names=names)
    assert video.devices == ("nvidia.com/gpu-video=0",)
    others = found(VISIBLE, gpu_kinds=(GpuKind(kind="example.com/gpu"),), names=names)
    assert others.devices == ("example.com/gpu=0",)


def test_a_profile_with_the_class_of_a_capability_kind_keeps_its_capabilities() -> None:
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
def test_the_setting_neither_adds_nor_removes_a_gpu(
    kinds: tuple[str, ...], managed: tuple[str, ...], words: str, tokens: str, *, are_written: bool
) -> None:
    rows = allowed(kinds=kinds)
    env = (f"NVIDIA_VISIBLE_DEVICES={tokens}", f"NVIDIA_DRIVER_CAPABILITIES={words}")
    names_ = NARROWED if are_written else WHOLE_ONLY
    before, after = (
        found(*env, allow=rows, management_kinds=managed, names=names_, restrict_driver_files=is_restricted)
        for is_restricted in (False, True)
    )
    names = [sorted({choice.name for choice in each.choices}) for each in (before, after)]
    if before.outcome == "inject":
        assert after.outcome == "inject"
        assert names[0] == names[1]
    elif after.outcome == "inject":
        # The rule permits only a capability kind, and the kind exists only with the setting.
        assert {choice.kind for choice in after.choices} <= {COMPUTE, GRAPHICS}
        assert any(kind in {COMPUTE, GRAPHICS, "nvidia.com/gpu-*"} for kind in kinds)
