"""What a container requests by mounts of /dev/null, beside its variables and annotations."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
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

from cdigen.nri.decision import mounts
from cdigen.nri.decision.policy import needs_decision, requests_devices
from cdigen.nri.decision.refusal import CAUSES
from cdigen.nri.decision.select import DeviceNames
from cdigen.nri.pods import Container, ContainerMount
from cdigen.value import replace

GPU = "nvidia.com/gpu"
LISTED = f"NVIDIA_VISIBLE_DEVICES={LISTS}"
ALL = "NVIDIA_VISIBLE_DEVICES=all"
OWN = {"devices.cdigen.dev": f"{GPU}=1:0"}


ONLY = allowed("mounts")


@pytest.mark.parametrize(
    ("names", "given_devices"),
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
def test_each_mount_asks_for_a_device(names: list[str], given_devices: list[str]) -> None:
    assert devices(LISTED, here=listing(*names), allow=ONLY) == tuple(given_devices)


def test_channels_are_given_beside_gpus_alone() -> None:
    assert outcome(here=listing("0", "imex/9")).cause == "unknown_device"
    assert devices("HOME=/", here=listing("imex/7")) == ()
    assert devices("NVIDIA_VISIBLE_DEVICES=0", here=listing("imex/7")) == (
        f"{GPU}=0",
        "nvidia.com/imex-channel=7",
    )


def test_channels_count_by_the_rows_for_mounts_beside_gpus_of_the_environment_too() -> None:
    rows = (*allowed("environment"), *allowed("mounts", kinds=(GPU,)))
    decision = outcome("NVIDIA_VISIBLE_DEVICES=0", here=listing("imex/7"), allow=rows)
    assert decision.devices == (f"{GPU}=0",)
    assert [note.cause for note in decision.notes] == ["not_counted"]


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
def test_other_mounts_ask_for_nothing(here: Container) -> None:
    assert not mounts.lists_devices(here.mounts)
    assert outcome(here=here) == outcome()


@pytest.mark.parametrize("source", ["/dev/null", "/dev//null", "//dev/null", "/dev/x/../null", "/dev/null/"])
@pytest.mark.parametrize("folder", [LISTS, f"/{LISTS}", "/var/x/../run//nvidia-container-devices"])
def test_paths_are_read_as_go_cleans_them(source: str, folder: str) -> None:
    assert devices(here=listing("0", source=source, folder=folder), allow=ONLY) == (f"{GPU}=0",)


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("9", "unknown_device", "asks for '9'"),
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
def test_a_mount_that_cannot_be_served_is_refused_and_the_reason_named(
    name: str, cause: str, words: str
) -> None:
    decision = outcome(LISTED, here=listing(name))
    assert (decision.outcome, decision.cause) == ("refuse", cause)
    assert words in decision.reason
    assert decision.reason.isprintable()
    assert len(decision.reason) < 400


def test_annotations_come_before_mounts_and_mounts_before_the_environment() -> None:
    assert devices(ALL, asked=OWN, here=listing("0")) == (f"{GPU}=1:0",)
    assert devices(ALL, here=listing("0")) == (f"{GPU}=0",)
    assert devices("NVIDIA_VISIBLE_DEVICES=void", here=listing("0")) == (f"{GPU}=0",)
    assert devices(ALL, here=listing("0"), allow=allowed("environment")) == (f"{GPU}=all",)
    assert devices(ALL, asked=OWN, here=listing("0"), allow=ONLY) == (f"{GPU}=0",)


def test_the_environment_says_nothing_where_mounts_list_the_gpus() -> None:
    assert devices("NVIDIA_VISIBLE_DEVICES=nonsense", here=listing("0")) == (f"{GPU}=0",)
    decision = outcome("NVIDIA_VISIBLE_DEVICES=all", here=listing("0"), allow=ONLY)
    assert (decision.devices, decision.notes) == ((f"{GPU}=0",), ())


def test_gated_devices_count_as_the_gpus_beside_them() -> None:
    switched = (LISTED, "NVIDIA_GDS=enabled", "NVIDIA_NVSWITCH=enabled")
    assert devices(*switched, here=listing("0"), allow=ONLY) == (f"{GPU}=0", "nvidia.com/gds=all")
    narrow = allowed("mounts", kinds=(GPU,))
    assert devices(*switched, here=listing("0"), allow=narrow) == (f"{GPU}=0",)


def test_other_makers_variables_count_beside_mounts_where_the_environment_does() -> None:
    names = DeviceNames((*DEVICES, *AMD))
    asked = (LISTED, "AMD_VISIBLE_DEVICES=1")
    assert devices(*asked, here=listing("0"), names=names) == (f"{GPU}=0", "amd.com/gpu=1")
    assert devices(*asked, here=listing("0"), names=names, allow=ONLY) == (f"{GPU}=0",)


def test_channels_of_the_environment_count_where_it_does_and_no_mount_names_any() -> None:
    channels = (LISTED, "NVIDIA_IMEX_CHANNELS=0")
    zero, seven = "nvidia.com/imex-channel=0", "nvidia.com/imex-channel=7"
    assert devices(*channels, here=listing("0")) == (f"{GPU}=0", zero)
    assert devices(*channels, here=listing("0"), allow=ONLY) == (f"{GPU}=0",)
    assert devices(*channels, here=listing("0", "imex/7")) == (f"{GPU}=0", seven)
    assert devices("NVIDIA_VISIBLE_DEVICES=0", channels[1], here=listing("imex/7")) == (f"{GPU}=0", seven)


def test_a_list_that_the_policy_does_not_let_count_stops_the_container_that_refers_to_it() -> None:
    decision = outcome(LISTED, here=listing("0"), allow=allowed("annotation", "environment"))
    assert (decision.outcome, decision.cause) == ("refuse", "not_permitted")
    assert "'sources'" in decision.reason
    assert [note.cause for note in decision.notes] == ["not_counted"]
    decision = outcome(LISTED, here=listing("0"), allow=allowed("annotation"))
    assert (decision.outcome, {note.cause for note in decision.notes}) == ("nothing", {"not_counted"})


def test_a_variable_that_refers_to_a_list_that_is_not_there_stops_the_container() -> None:
    for here in (container(), listing("imex/7"), listing("0", source="/dev/zero")):
        decision = outcome(LISTED, here=here)
        assert (decision.outcome, decision.cause) == ("refuse", "unknown_device")
        assert "and none asks for a GPU" in decision.reason


def test_a_container_that_has_its_gpus_is_not_refused_for_its_list() -> None:
    listed = listing(UUID)
    driver = ContainerMount(destination="/usr/lib/libcuda.so.1", source="/s", type="bind", options=())
    nodes = ("/dev/nvidia0", "/dev/nvidiactl")
    here = replace(listed, devices=nodes, mounts=(*listed.mounts, driver))
    for sources in (("mounts",), ("environment",)):
        assert outcome(LISTED, here=here, allow=allowed(*sources)).outcome == "served"


def test_an_empty_annotation_takes_mounts_back_and_that_is_said() -> None:
    decision = outcome(LISTED, asked={"devices.cdigen.dev": ""}, here=listing("0"))
    assert (decision.outcome, [note.cause for note in decision.notes]) == ("nothing", ["overruled"])
    assert "mounts do not count" in decision.notes[0].text


def test_whoever_has_such_mounts_waits_for_the_devices_of_the_host_to_be_read() -> None:
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
def test_more_than_anybody_needs_is_refused_at_once(here: Container) -> None:
    begun = process_time()
    decision = outcome(LISTED, here=here)
    assert process_time() - begun < 0.5
    assert (decision.outcome, decision.cause) == ("refuse", "too_much")


PATHS = st.lists(
    st.sampled_from(["..", ".", "", "cdi", "imex", "0", "nvidia.com", "gpu", "a=b", "\n"]) | st.text()
)


@given(PATHS, PATHS)
def test_no_mount_raises_anything_but_a_refusal(one: list[str], two: list[str]) -> None:
    decision = outcome(LISTED, here=listing("/".join(one), "/".join(two)))
    assert decision.outcome in {"nothing", "inject"} or decision.cause in CAUSES


GPUS, CHANNELS = st.sets(st.sampled_from(["0", "1:0"])), st.sets(st.sampled_from(["0", "7"]))


def by_nvidia(
    listed: set[str], variable: set[str], *, accepts_mounts: bool, accepts_variable: bool
) -> set[str]:
    """Return what nvidia-container-toolkit takes (cuda_image.go, VisibleDevices, ImexChannelRequests)."""
    if accepts_mounts and listed:
        return listed
    return variable if accepts_variable else set()


@given(
    st.tuples(GPUS, GPUS),
    st.tuples(CHANNELS, CHANNELS),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_rows_that_say_what_the_switches_of_nvidias_runtime_say_give_the_same(
    asked: tuple[set[str], set[str]], beside: tuple[set[str], set[str]], switches: tuple[bool, bool, bool]
) -> None:
    (gpus, visible), (channels, imex) = asked, beside
    accepts_mounts, accepts_unprivileged, is_privileged = switches
    allow = allowed("environment", privileged=not accepts_unprivileged)
    if accepts_mounts:
        allow += allowed("mounts")
    here = replace(
        listing(*gpus, *(f"imex/{number}" for number in channels)), may_use_all_devices=is_privileged
    )
    env = (f"NVIDIA_VISIBLE_DEVICES={','.join(visible)}", f"NVIDIA_IMEX_CHANNELS={','.join(imex)}")
    given_devices = devices(*env, here=here, allow=allow)
    accepted = {"accepts_mounts": accepts_mounts, "accepts_variable": is_privileged or accepts_unprivileged}
    found = by_nvidia(gpus, visible, **accepted)
    found_channels = by_nvidia(channels, imex, **accepted) if found else set()
    assert set(given_devices) == {f"{GPU}={name}" for name in found} | {
        f"nvidia.com/imex-channel={name}" for name in found_channels
    }
