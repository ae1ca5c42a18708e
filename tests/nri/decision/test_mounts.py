"""Device requests by mounts, together with variables and annotations."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nri.device_names import device_names
from support.nri.host import (
    AMD,
    DEVICES,
    LISTS,
    MIG,
    POD,
    UUID,
    allowed,
    container,
    devices,
    listing,
    outcome,
    policy,
)

from cdigen.nri.decision.limits.policy import needs_decision, requests_devices
from cdigen.nri.decision.request import mounts
from cdigen.nri.decision.request.refusal import REFUSAL_CAUSES
from cdigen.nri.pods import Container, ContainerMount
from cdigen.value import replace

GPU = "nvidia.com/gpu"
LISTED = f"NVIDIA_VISIBLE_DEVICES={LISTS}"
ALL = "NVIDIA_VISIBLE_DEVICES=all"
OWN = {"devices.cdigen.dev": f"{GPU}=1:0"}


ONLY = allowed("mounts")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["0"], [f"{GPU}=0"]),
        ([UUID], [f"{GPU}={UUID}"]),
        ([UUID.lower()], [f"{GPU}={UUID}"]),
        ([MIG], [f"{GPU}={MIG}"]),
        (["1:0", "0"], [f"{GPU}=1:0", f"{GPU}=0"]),
        (["all"], [f"{GPU}=all"]),
        (["ALL", "0"], [f"{GPU}=all"]),
        (["cdi/nvidia.com/gpu/0"], [f"{GPU}=0"]),
        (["cdi/nvidia.com/gpu=0"], [f"{GPU}=0"]),
        (["cdi/nvidia.com/gds/all", "0"], ["nvidia.com/gds=all", f"{GPU}=0"]),
        (["0", "imex/7", "imex/0"], [f"{GPU}=0", "nvidia.com/imex-channel=7", "nvidia.com/imex-channel=0"]),
        (["0/"], [f"{GPU}=0"]),
        (["./0"], [f"{GPU}=0"]),
        (["x/../0"], [f"{GPU}=0"]),
        (["0", "0", UUID], [f"{GPU}=0"]),
    ],
)
def test_each_mount_requests_a_device(names: list[str], expected: list[str]) -> None:
    assert devices(LISTED, here=listing(*names), allow=ONLY) == tuple(expected)


def test_channels_are_injected_only_together_with_gpus() -> None:
    assert outcome(here=listing("0", "imex/9")).cause == "unknown_device"
    assert devices("HOME=/", here=listing("imex/7")) == ()
    assert devices("NVIDIA_VISIBLE_DEVICES=0", here=listing("imex/7")) == (
        f"{GPU}=0",
        "nvidia.com/imex-channel=7",
    )


def test_channels_in_mounts_need_a_rule_with_their_kind() -> None:
    rows = (*allowed("environment"), *allowed("mounts", kinds=(GPU,)))
    decision = outcome("NVIDIA_VISIBLE_DEVICES=0", here=listing("imex/7"), allow=rows)
    assert decision.devices == (f"{GPU}=0",)
    assert [ignored.cause for ignored in decision.ignored_requests] == ["not_permitted"]


@pytest.mark.parametrize(
    "here",
    [
        listing("0", source="/s"),
        listing("0", source="/dev/zero"),
        listing("0", source=""),
        listing("0", folder=f"{LISTS}x"),
        listing("0", folder="/run/nvidia-container-devices"),
        listing("0", folder=f"/root{LISTS}"),
        listing("0", folder=LISTS[1:]),
        listing("../x/0"),
        listing(".."),
        listing(""),
        listing(".", "/", "x/.."),
        listing("x" * 5000),
    ],
    ids=range(12),
)
def test_other_mounts_request_nothing(here: Container) -> None:
    assert not mounts.lists_devices(here.mounts)
    assert outcome(here=here) == outcome()


@pytest.mark.parametrize("source", ["/dev/null", "/dev//null", "//dev/null", "/dev/x/../null", "/dev/null/"])
@pytest.mark.parametrize("folder", [LISTS, f"/{LISTS}", "/var/x/../run//nvidia-container-devices"])
def test_paths_of_mounts_are_normalized_like_paths_in_go(source: str, folder: str) -> None:
    assert devices(here=listing("0", source=source, folder=folder), allow=ONLY) == (f"{GPU}=0",)


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("9", "unknown_device", "requests '9'"),
        ("1", "unknown_device", "is in MIG mode"),
        ("0,1:0", "unknown_device", "'0,1:0'"),
        ("void", "unknown_device", "'void'"),
        ("cdi", "unknown_device", "'cdi'"),
        ("imex", "unknown_device", "'imex'"),
        ("a\nb", "unknown_device", "'a\\nb'"),
        ("\udcff", "unknown_device", "'\\udcff'"),
        ("\x1b[31m", "unknown_device", "'\\x1b[31m'"),
        ("x" * 4000, "unknown_device", "xxx..."),
        ("cdi/0", "malformed", "'cdi/0', which is not of the form"),
        ("cdi/nvidia.com/gpu", "malformed", "'cdi/nvidia.com/gpu'"),
        ("cdi/nvidia.com/gpu/a b", "malformed", "a b"),
        ("cdi/nvidia.com/gpu/0/1", "malformed", "0/1"),
        ("cdi/nvidia.com/gpu/9", "unknown_device", "'nvidia.com/gpu=9'"),
        ("cdi/nvidia.com/management/all", "not_permitted", "nvidia.com/management"),
    ],
)
def test_an_invalid_mount_is_refused_with_a_reason(name: str, cause: str, words: str) -> None:
    decision = outcome(LISTED, here=listing(name))
    assert (decision.outcome, decision.cause) == ("refuse", cause)
    assert words in decision.reason
    assert decision.reason.isprintable()
    assert len(decision.reason) < 400


def test_annotations_override_mounts_and_mounts_override_the_environment() -> None:
    assert devices(ALL, pod_annotations=OWN, here=listing("0")) == (f"{GPU}=1:0",)
    assert devices(ALL, here=listing("0")) == (f"{GPU}=0",)
    assert devices("NVIDIA_VISIBLE_DEVICES=void", here=listing("0")) == (f"{GPU}=0",)
    assert devices(ALL, here=listing("0"), allow=allowed("environment")) == (f"{GPU}=all",)
    assert devices(ALL, pod_annotations=OWN, here=listing("0"), allow=ONLY) == (f"{GPU}=0",)


def test_mounts_with_gpus_replace_the_environment() -> None:
    assert devices("NVIDIA_VISIBLE_DEVICES=nonsense", here=listing("0")) == (f"{GPU}=0",)
    decision = outcome("NVIDIA_VISIBLE_DEVICES=all", here=listing("0"), allow=ONLY)
    assert (decision.devices, decision.ignored_requests) == ((f"{GPU}=0",), ())


def test_switch_variables_apply_if_mounts_request_the_gpus() -> None:
    switched = (LISTED, "NVIDIA_GDS=enabled", "NVIDIA_NVSWITCH=enabled")
    assert devices(*switched, here=listing("0"), allow=ONLY) == (f"{GPU}=0", "nvidia.com/gds=all")
    narrow = allowed("mounts", kinds=(GPU,))
    assert devices(*switched, here=listing("0"), allow=narrow) == (f"{GPU}=0",)


def test_other_vendors_variables_apply_beside_mounts_if_the_environment_is_permitted() -> None:
    names = device_names((*DEVICES, *AMD))
    asked = (LISTED, "AMD_VISIBLE_DEVICES=1")
    assert devices(*asked, here=listing("0"), names=names) == (f"{GPU}=0", "amd.com/gpu=1")
    assert devices(*asked, here=listing("0"), names=names, allow=ONLY) == (f"{GPU}=0",)


def test_channels_of_the_environment_apply_if_no_mount_lists_channels() -> None:
    channels = (LISTED, "NVIDIA_IMEX_CHANNELS=0")
    zero, seven = "nvidia.com/imex-channel=0", "nvidia.com/imex-channel=7"
    assert devices(*channels, here=listing("0")) == (f"{GPU}=0", zero)
    assert devices(*channels, here=listing("0"), allow=ONLY) == (f"{GPU}=0",)
    assert devices(*channels, here=listing("0", "imex/7")) == (f"{GPU}=0", seven)
    assert devices("NVIDIA_VISIBLE_DEVICES=0", channels[1], here=listing("imex/7")) == (f"{GPU}=0", seven)


def test_a_variable_that_refers_to_mounts_is_refused_if_no_rule_permits_mounts() -> None:
    decision = outcome(LISTED, here=listing("0"), allow=allowed("annotation", "environment"))
    assert (decision.outcome, decision.cause) == ("refuse", "not_permitted")
    assert "no rule in nri.allow permits source 'mounts' in namespace 'ml'" in decision.reason
    assert [ignored.cause for ignored in decision.ignored_requests] == ["not_permitted"]
    decision = outcome(LISTED, here=listing("0"), allow=allowed("annotation"))
    assert (decision.outcome, {ignored.cause for ignored in decision.ignored_requests}) == (
        "nothing",
        {"not_permitted"},
    )


def test_a_variable_that_refers_to_missing_mounts_is_refused() -> None:
    for here in (container(), listing("imex/7"), listing("0", source="/dev/zero")):
        decision = outcome(LISTED, here=here)
        assert (decision.outcome, decision.cause) == ("refuse", "unknown_device")
        assert "and no mount requests a GPU" in decision.reason


def test_a_container_with_its_gpus_is_not_refused_for_its_device_list() -> None:
    listed = listing(UUID)
    driver = ContainerMount(destination="/usr/lib/libcuda.so.1", source="/s", type="bind", options=())
    nodes = ("/dev/nvidia0", "/dev/nvidiactl")
    here = replace(listed, devices=nodes, mounts=(*listed.mounts, driver))
    for sources in (("mounts",), ("environment",)):
        assert outcome(LISTED, here=here, allow=allowed(*sources)).outcome == "served"


def test_an_empty_annotation_cancels_mounts_and_is_reported() -> None:
    decision = outcome(LISTED, pod_annotations={"devices.cdigen.dev": ""}, here=listing("0"))
    assert (decision.outcome, [ignored.cause for ignored in decision.ignored_requests]) == (
        "nothing",
        ["request_cancelled"],
    )
    assert "mounts ignored" in decision.ignored_requests[0].text


def test_a_container_with_mounts_that_request_devices_needs_a_decision() -> None:
    here, pod = listing("0"), POD
    assert requests_devices(pod, here)
    assert needs_decision(pod, here, policy(allow=ONLY))
    assert not needs_decision(pod, here, policy(allow=allowed("annotation")))
    assert not requests_devices(pod, container(mounts=("/data",)))


@pytest.mark.wall_clock
@pytest.mark.parametrize(
    "here",
    [
        listing(*map(str, range(300))),
        listing(*(f"cdi/nvidia.com/gpu/{number}" for number in range(300))),
        listing("0", *(f"imex/{number}" for number in range(300))),
    ],
    ids=range(3),
)
def test_excessive_requests_are_refused_at_once(here: Container) -> None:
    start_s = process_time()
    decision = outcome(LISTED, here=here)
    assert process_time() - start_s < 0.5
    assert (decision.outcome, decision.cause) == ("refuse", "too_much")


PATHS = st.lists(
    st.sampled_from(["..", ".", "", "cdi", "imex", "0", "nvidia.com", "gpu", "a=b", "\n"]) | st.text()
)


@given(PATHS, PATHS)
def test_any_mount_is_accepted_or_refused(one: list[str], two: list[str]) -> None:
    decision = outcome(LISTED, here=listing("/".join(one), "/".join(two)))
    assert decision.outcome in {"nothing", "inject"} or decision.cause in REFUSAL_CAUSES


GPUS, CHANNELS = st.sets(st.sampled_from(["0", "1:0"])), st.sets(st.sampled_from(["0", "7"]))


def by_nvidia(
    listed: set[str], variable: set[str], *, accepts_mounts: bool, accepts_variable: bool
) -> set[str]:
    """Return the devices of nvidia-container-toolkit (cuda_image.go, VisibleDevices, ImexChannelRequests)."""
    if accepts_mounts and listed:
        return listed
    return variable if accepts_variable else set()


@given(
    st.tuples(GPUS, GPUS),
    st.tuples(CHANNELS, CHANNELS),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_rules_equal_to_the_settings_of_nvidias_runtime_inject_the_same_devices(
    gpu_names: tuple[set[str], set[str]],
    channel_names: tuple[set[str], set[str]],
    switches: tuple[bool, bool, bool],
) -> None:
    (gpus, visible), (channels, imex) = gpu_names, channel_names
    accepts_mounts, accepts_unprivileged, is_privileged = switches
    allow = allowed("environment", privileged=not accepts_unprivileged)
    if accepts_mounts:
        allow += allowed("mounts")
    here = replace(
        listing(*gpus, *(f"imex/{number}" for number in channels)), may_use_all_devices=is_privileged
    )
    env = (f"NVIDIA_VISIBLE_DEVICES={','.join(visible)}", f"NVIDIA_IMEX_CHANNELS={','.join(imex)}")
    expected = devices(*env, here=here, allow=allow)
    accepted = {"accepts_mounts": accepts_mounts, "accepts_variable": is_privileged or accepts_unprivileged}
    found = by_nvidia(gpus, visible, **accepted)
    found_channels = by_nvidia(channels, imex, **accepted) if found else set()
    assert set(expected) == {f"{GPU}={name}" for name in found} | {
        f"nvidia.com/imex-channel={name}" for name in found_channels
    }
