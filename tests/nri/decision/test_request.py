"""What a container asks for, variable by variable and annotation by annotation."""

from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nri.nrihost import AMD, COMPUTE, DEVICES, MIG, UUID, UUID1, devices, outcome

from cdigen.nri.decision import request
from cdigen.nri.decision.machine import Machine
from cdigen.nri.decision.refusal import CAUSES, Refusal
from cdigen.nri.decision.select import DeviceNames

GPU = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OWN = "devices.cdigen.dev"


@pytest.mark.parametrize("value", ["", "void", "none", "VOID", "none,0", ",", " "])
def test_these_ask_for_no_gpu(value: str) -> None:
    assert devices(f"{VISIBLE}={value}") == ()


def test_none_is_the_driver_without_a_gpu_where_a_spec_offers_that() -> None:
    assert devices(f"{VISIBLE}=none", names=DeviceNames((*DEVICES, f"{GPU}=none"))) == (f"{GPU}=none",)


@pytest.mark.parametrize("value", ["all", "ALL", "0,all", " all "])
def test_all_decides_wherever_it_stands(value: str) -> None:
    assert devices(f"{VISIBLE}={value}") == (f"{GPU}=all",)


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


def test_a_capability_that_no_kind_gives_is_refused() -> None:
    decision = outcome(f"{VISIBLE}=0", "NVIDIA_DRIVER_CAPABILITIES=compat32")
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


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("all", ["all"]),
        ("0", ["0"]),
        ("0-2,10", ["0", "1", "2", "10"]),
        ("1,0-1", ["1", "0"]),
        ("0xea35f57cc80deb35", ["0xEA35F57CC80DEB35"]),
        ("amd.com/gpu=1", ["1"]),
        ("void", []),
        ("", []),
    ],
)
def test_amd_gpus_are_asked_for_by_their_own_variable(value: str, names: list[str]) -> None:
    found = devices(f"AMD_VISIBLE_DEVICES={value}", names=DeviceNames(AMD))
    assert found == tuple(f"amd.com/gpu={name}" for name in names)


@pytest.mark.parametrize("value", ["2-0", "0-100000", "7", "0-"])
def test_amd_gpus_that_cannot_be_are_refused(value: str) -> None:
    assert outcome(f"AMD_VISIBLE_DEVICES={value}", names=DeviceNames(AMD)).outcome == "refuse"


def test_without_specs_of_amd_their_variable_does_not_count() -> None:
    decision = outcome("AMD_VISIBLE_DEVICES=all")
    assert (decision.outcome, [note.cause for note in decision.notes]) == ("nothing", ["no_amd"])


@pytest.mark.parametrize("end", ["", "/pod", "/container.main"])
@pytest.mark.parametrize(
    ("prefix", "value"),
    [
        (OWN, f"{GPU}=0, nvidia.com/gds=all"),
        (OWN, f'["{GPU}=0", nvidia.com/gds=all]'),
        (OWN, f"- {GPU}=0\n- nvidia.com/gds=all\n"),
        ("nvidia.cdi.k8s.io", f"{GPU}=0,nvidia.com/gds=all"),
        ("cdi-devices.noderesource.dev", f"- {GPU}=0\n- nvidia.com/gds=all\n- {GPU}=0\n"),
        ("cdi-devices.nri.io", f'["{GPU}=0","nvidia.com/gds=all"]'),
    ],
)
def test_annotations_name_devices_in_full(prefix: str, end: str, value: str) -> None:
    assert devices(asked={f"{prefix}{end}": value}) == (f"{GPU}=0", "nvidia.com/gds=all")


def test_the_closest_annotation_counts_alone() -> None:
    asked = {OWN: f"{GPU}=0", f"{OWN}/pod": f"{GPU}=1:0", f"{OWN}/container.other": f"{GPU}=all"}
    assert devices(asked=asked) == (f"{GPU}=1:0",)


def test_annotations_of_several_readers_are_put_together() -> None:
    asked = {"nvidia.cdi.k8s.io/pod": f"{GPU}=0", OWN: f"{GPU}=1:0,{GPU}=0"}
    assert devices(asked=asked) == (f"{GPU}=1:0", f"{GPU}=0")


def test_readers_that_the_policy_leaves_out_are_not_read() -> None:
    assert devices(asked={"nvidia.cdi.k8s.io": f"{GPU}=0"}, annotations=("cdigen",)) == ()


def test_an_annotation_comes_before_the_environment_and_an_empty_one_asks_for_nothing() -> None:
    assert devices(f"{VISIBLE}=all", asked={OWN: f"{GPU}=0"}) == (f"{GPU}=0",)
    assert devices(f"{VISIBLE}=all", asked={OWN: ""}) == ()


DEEP = "[" * 50_000


@pytest.mark.wall_clock
@pytest.mark.parametrize(
    ("prefix", "value"),
    [
        (OWN, "0"),
        (OWN, "gpu"),
        (OWN, "[a"),
        (OWN, DEEP),
        (OWN, "- [nvidia.com/gpu=0]"),
        (OWN, "- {a: b}"),
        (OWN, "- &a nvidia.com/gpu=0\n- *a"),
        (OWN, "- nvidia.com/gpu=0\n---\n- nvidia.com/gpu=1:0\n"),
        (OWN, "- nvidia.com/gpu=0\n\x00"),
        (OWN, "- \udcff"),
        (OWN, "-"),
        (OWN, "x" * (1 << 20)),
        ("nvidia.cdi.k8s.io", '["nvidia.com/gpu=0"]'),
        ("cdi-devices.noderesource.dev", "nvidia.com/gpu=0"),
        ("cdi-devices.noderesource.dev", "a: b"),
        ("cdi-devices.noderesource.dev", "\t- a"),
        ("cdi-devices.noderesource.dev", "%YAML 9"),
    ],
    ids=range(17),
)
def test_an_annotation_that_is_no_list_of_names_is_refused(prefix: str, value: str) -> None:
    begun = process_time()
    decision = outcome(asked={prefix: value})
    assert process_time() - begun < 0.5
    assert (decision.outcome, decision.cause) == ("refuse", "annotation")
    assert decision.reason.isprintable()
    assert len(decision.reason) < 300


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


@given(TEXTS, st.sampled_from(sorted(prefix for row in request.PREFIXES.values() for prefix in row)))
@example("\ud800", OWN)
@example("!!python/object/apply:os.system [true]", OWN)
def test_no_annotation_raises_anything_but_a_refusal(value: str, prefix: str) -> None:
    decision = outcome(asked={prefix: value})
    assert decision.outcome in {"nothing", "inject"} or decision.cause in CAUSES


@given(st.sampled_from(sorted(request._READ)), TEXTS)
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


def test_every_cause_of_a_refusal_is_explained() -> None:
    with pytest.raises(Refusal) as caught:
        request.by_environment(request.variables([f"{VISIBLE}=0", "NVIDIA_MIG_CONFIG_DEVICES=1"]))
    assert caught.value.cause in CAUSES
