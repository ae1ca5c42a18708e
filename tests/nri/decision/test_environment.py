"""What a container asks for, variable by variable."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nri.host import COMPUTE, DEVICES, MIG, UUID, UUID1, devices, outcome

from cdigen.config import GpuKind
from cdigen.model.profile import CAPABILITIES
from cdigen.nri.decision import environment
from cdigen.nri.decision.machine import Machine
from cdigen.nri.decision.refusal import CAUSES
from cdigen.nri.decision.select import DeviceNames

GPU = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OWN = "devices.cdigen.dev"


@pytest.mark.parametrize("value", ["", "void", "none", "VOID", "none,0", ",", " "])
def test_these_ask_for_no_gpu(value: str) -> None:
    assert devices(f"{VISIBLE}={value}") == ()


@pytest.mark.parametrize("value", ["all", "ALL", "0,all", " all "])
def test_all_decides_wherever_it_stands(value: str) -> None:
    assert devices(f"{VISIBLE}={value}") == (f"{GPU}=all",)


@pytest.mark.parametrize("value", ["void", "all,void", "void,all", "all,none,void", "0,void"])
def test_void_decides_before_none_and_none_before_all(value: str) -> None:
    names = DeviceNames((*DEVICES, f"{GPU}=none"))
    assert devices(f"{VISIBLE}={value}", names=names) == ()
    asked = f"{VISIBLE}={value.replace('void', 'none')}"
    assert devices(asked, names=names) == (f"{GPU}=none",)


def test_all_is_every_device_once_where_no_spec_has_one_of_that_name() -> None:
    names = DeviceNames(device for device in DEVICES if not device.endswith("=all"))
    assert devices(f"{VISIBLE}=all", names=names) == (f"{GPU}=0", f"{GPU}=1:0")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("0", "0"),
        (UUID, UUID),
        (UUID.upper(), UUID),
        (MIG, MIG),
        (MIG.lower(), MIG),
        (f"MIG-{UUID1}/1/0", "1:0"),
        ("1:0", "1:0"),
        ("0000:1b:00.0", "0"),
        ("0000:1B:00.0", "0"),
        ("00000000:1B:00.0", "0"),
        ("1b:00.0", "0"),
        ("gpu0", "0"),
        ("minor0", "0"),
        (f"{GPU}=0", "0"),
        (" 0 , ", "0"),
    ],
)
def test_a_gpu_is_found_by_each_of_its_names(value: str, name: str) -> None:
    assert devices(f"{VISIBLE}={value}") == (f"{GPU}={name}",)


def test_devices_come_in_the_order_asked_for_and_none_twice_under_two_names() -> None:
    asked = f"{VISIBLE}=1:0,0,{UUID},0,0000:1b:00.0,{MIG}"
    assert devices(asked) == (f"{GPU}=1:0", f"{GPU}=0")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("9", ["NVIDIA_VISIBLE_DEVICES asks for '9'", "the host has no such GPU"]),
        ("1", ["is in MIG mode", "1:0"]),
        ("2", ["fallen off the bus"]),
        ("GPU-ffffffff", ["no such GPU"]),
        ("amd.com/gpu=0", ["there is no spec of amd.com/gpu"]),
        (f"{GPU}=9", [f"{GPU} has 0, 1:0"]),
        ("\x1b[31m", ["'\\x1b[31m'"]),
    ],
)
def test_an_unknown_device_is_refused_and_the_reason_named(value: str, words: list[str]) -> None:
    decision = outcome(f"{VISIBLE}={value}")
    assert (decision.outcome, decision.cause, decision.devices) == ("refuse", "unknown_device", ())
    assert [word for word in words if word not in decision.reason] == []
    assert decision.reason.isprintable()


def test_of_a_variable_given_twice_the_last_counts() -> None:
    assert devices(f"{VISIBLE}=all", f"{VISIBLE}=0") == (f"{GPU}=0",)


def test_a_legacy_image_asks_for_all_gpus_with_all_capabilities() -> None:
    assert devices("CUDA_VERSION=9.0.176") == (f"{GPU}=all",)
    assert devices("CUDA_VERSION=9.0.176", gpu_kinds=COMPUTE) == (f"{GPU}=all",)
    assert devices("CUDA_VERSION=9.0.176", f"{VISIBLE}=") == ()
    assert devices("CUDA_VERSION=12.4.1", "NVIDIA_REQUIRE_CUDA=cuda>=12.4") == ()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "gpu-compute"),
        ("", "gpu-compute"),
        ("compute", "gpu-compute"),
        ("utility,compute", "gpu-compute"),
        ("compute, graphics", "gpu"),
        ("all", "gpu"),
        ("video", "gpu"),
    ],
)
def test_capabilities_choose_the_least_kind_that_gives_them(value: str | None, kind: str) -> None:
    env = () if value is None else (f"NVIDIA_DRIVER_CAPABILITIES={value}",)
    assert devices(f"{VISIBLE}=0", *env, gpu_kinds=COMPUTE) == (f"nvidia.com/{kind}=0",)


def test_a_kind_without_a_spec_gives_way_to_one_with_more() -> None:
    names = DeviceNames(device for device in DEVICES if "gpu-compute" not in device)
    assert devices(f"{VISIBLE}=0", names=names, gpu_kinds=COMPUTE) == (f"{GPU}=0",)


@pytest.mark.parametrize("value", ["cuda", "compute,Utility", "all,x", "compute;utility"])
def test_an_unknown_capability_is_refused(value: str) -> None:
    decision = outcome(f"{VISIBLE}=0", f"NVIDIA_DRIVER_CAPABILITIES={value}")
    assert (decision.outcome, decision.cause) == ("refuse", "unknown_capability")


@pytest.mark.parametrize("value", ["none", " none ,", "none,compute"])
def test_none_asks_for_no_capability(value: str) -> None:
    asked = (f"{VISIBLE}=0", f"NVIDIA_DRIVER_CAPABILITIES={value}")
    assert devices(*asked, gpu_kinds=COMPUTE) == ("nvidia.com/gpu-compute=0",)
    assert devices(*asked, gpu_kinds=COMPUTE[:1]) == (f"{GPU}=0",)


@pytest.mark.parametrize(("value", "kind"), [("compat32", "gpu-compute"), ("graphics,compat32", "gpu")])
def test_without_libraries_of_32_bits_a_container_has_the_others_and_that_is_said(
    value: str, kind: str
) -> None:
    decision = outcome(f"{VISIBLE}=0", f"NVIDIA_DRIVER_CAPABILITIES={value}", gpu_kinds=COMPUTE)
    assert decision.devices == (f"nvidia.com/{kind}=0",)
    assert [note.cause for note in decision.notes] == ["no_compat32"]


def test_a_kind_with_libraries_of_32_bits_is_chosen_by_that() -> None:
    whole = GpuKind(kind=GPU, capabilities=(*CAPABILITIES, "compat32"))
    decision = outcome(
        f"{VISIBLE}=0", "NVIDIA_DRIVER_CAPABILITIES=compute,compat32", gpu_kinds=(whole, COMPUTE[1])
    )
    assert (decision.devices, decision.notes) == ((f"{GPU}=0",), ())


def test_a_capability_that_no_kind_gives_is_refused() -> None:
    decision = outcome(f"{VISIBLE}=0", "NVIDIA_DRIVER_CAPABILITIES=graphics", gpu_kinds=COMPUTE[1:])
    assert (decision.outcome, decision.cause) == ("refuse", "no_kind")
    assert "profiles" in decision.reason


@pytest.mark.parametrize("blank", ["", " ", ",", " , "])
def test_a_blank_requirement_is_none(blank: str) -> None:
    unknown = Machine(problem="there is no inventory")
    asked = (f"{VISIBLE}=0", f"NVIDIA_REQUIRE_CUDA={blank}")
    assert devices(*asked, machine=unknown) == (f"{GPU}=0",)
    assert outcome(*asked, "NVIDIA_REQUIRE_X=cuda>=1", machine=unknown).cause == "no_inventory"


def test_imex_channels_are_named_one_by_one() -> None:
    assert devices(f"{VISIBLE}=0", "NVIDIA_IMEX_CHANNELS=7,0") == (
        f"{GPU}=0",
        "nvidia.com/imex-channel=7",
        "nvidia.com/imex-channel=0",
    )
    assert devices(f"{VISIBLE}=0", "NVIDIA_IMEX_CHANNELS=all") == (f"{GPU}=0",)
    assert outcome(f"{VISIBLE}=0", "NVIDIA_IMEX_CHANNELS=9").cause == "unknown_device"


@pytest.mark.parametrize("name", ["GDS", "MOFED", "GDRCOPY"])
def test_families_are_switched_on_by_one_word_beside_gpus(name: str) -> None:
    family = f"nvidia.com/{name.lower()}=all"
    assert devices(f"{VISIBLE}=0", f"NVIDIA_{name}=enabled") == (f"{GPU}=0", family)
    assert devices(f"{VISIBLE}=0", f"NVIDIA_{name}=true") == (f"{GPU}=0",)
    assert devices(f"{VISIBLE}=void", f"NVIDIA_{name}=enabled") == ()


@pytest.mark.parametrize("name", ["GDS", "MOFED", "GDRCOPY"])
def test_a_family_that_the_host_does_not_have_stops_no_container(name: str) -> None:
    there = DeviceNames(each for each in DEVICES if not each.startswith(f"nvidia.com/{name.lower()}="))
    decision = outcome(f"{VISIBLE}=0", f"NVIDIA_{name}=enabled", names=there)
    assert (decision.devices, [note.cause for note in decision.notes]) == ((f"{GPU}=0",), ["no_spec"])
    assert f"NVIDIA_{name}" in decision.notes[0].text
    in_full = outcome(f"{VISIBLE}=0,nvidia.com/{name.lower()}=all", names=there)
    assert in_full.cause == "unknown_device"


def test_nvswitches_are_given_only_in_namespaces_of_those_who_administer_them() -> None:
    env = (f"{VISIBLE}=0", "NVIDIA_NVSWITCH=enabled")
    assert devices(*env) == (f"{GPU}=0",)
    assert devices(*env, management_namespaces=("ml",)) == (f"{GPU}=0", "nvidia.com/nvswitch=all")


@pytest.mark.parametrize("name", ["config", "monitor"])
def test_migs_administration_is_given_only_in_namespaces_of_its_own_list(name: str) -> None:
    env = (f"{VISIBLE}=0", f"NVIDIA_MIG_{name.upper()}_DEVICES=all")
    assert devices(*env) == (f"{GPU}=0",)
    assert devices(*env, management_namespaces=("ml",)) == (f"{GPU}=0", f"nvidia.com/mig=mig-{name}")
    refused = outcome(env[0], f"NVIDIA_MIG_{name.upper()}_DEVICES=0")
    assert (refused.cause, refused.reason.count("'all'")) == ("malformed", 1)


@pytest.mark.wall_clock
@pytest.mark.parametrize(
    "asked",
    [
        f"{VISIBLE}={','.join(map(str, range(300)))}",
        f"{VISIBLE}={'0,' * 200_000}",
        f"{VISIBLE}={'9' * (1 << 20)}",
        f"NVIDIA_DRIVER_CAPABILITIES={'compute,' * 200_000}",
    ],
    ids=range(4),
)
def test_more_than_anybody_needs_is_refused_at_once(asked: str) -> None:
    begun = process_time()
    decision = outcome(f"{VISIBLE}=0", asked)
    assert process_time() - begun < 0.5
    assert (decision.outcome, decision.cause) == ("refuse", "too_much")


@pytest.mark.wall_clock
def test_ten_thousand_variables_are_read_in_a_blink() -> None:
    env = (*(f"NVIDIA_V{number}={number}" for number in range(10_000)), "=", "x", f"{VISIBLE}=0")
    begun = process_time()
    assert devices(*env) == (f"{GPU}=0",)
    assert process_time() - begun < 0.2


TEXTS = st.text(max_size=40) | st.sampled_from(["0", "all", "[]", "- a", "a,b", "nvidia.com/gpu=0"])


@given(st.sampled_from(sorted(environment._READ)), TEXTS)
def test_no_variable_raises_anything_but_a_refusal(name: str, value: str) -> None:
    decision = outcome(f"{VISIBLE}=0", f"{name}={value}")
    assert decision.outcome in {"nothing", "inject"} or decision.cause in CAUSES


TOKENS = st.lists(st.sampled_from(["0", "1:0", UUID, MIG, "1b:00.0", f"{GPU}=0", f"{GPU}=1:0"]), max_size=9)


@given(TOKENS)
def test_what_is_asked_for_again_changes_nothing(tokens: list[str]) -> None:
    once = devices(f"{VISIBLE}={','.join(tokens)}")
    assert len(set(once)) == len(once)
    assert devices(f"{VISIBLE}={','.join([*tokens, *tokens])}") == once


@given(TOKENS, TOKENS)
def test_the_first_asked_for_come_first(first: list[str], rest: list[str]) -> None:
    start = devices(f"{VISIBLE}={','.join(first)}")
    assert devices(f"{VISIBLE}={','.join([*first, *rest])}")[: len(start)] == start
