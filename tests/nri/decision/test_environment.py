"""Device requests in environment variables."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nri.device_names import device_names
from support.nri.host import COMPUTE, DEVICES, MIG, UUID, UUID1, devices, outcome

from cdigen.config import GpuKind
from cdigen.model.profile import CAPABILITIES
from cdigen.nri.decision.request import environment
from cdigen.nri.decision.request.host_gpus import HostGpus
from cdigen.nri.decision.request.refusal import REFUSAL_CAUSES

GPU = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OWN = "devices.cdigen.dev"


@pytest.mark.parametrize("value", ["", "void", "none", "VOID", "none,0", ",", " "])
def test_values_without_a_gpu_request_inject_nothing(value: str) -> None:
    assert devices(f"{VISIBLE}={value}") == ()


@pytest.mark.parametrize("value", ["all", "ALL", "0,all", " all "])
def test_all_replaces_the_list_at_any_position(value: str) -> None:
    assert devices(f"{VISIBLE}={value}") == (f"{GPU}=all",)


@pytest.mark.parametrize("value", ["void", "all,void", "void,all", "all,none,void", "0,void"])
def test_void_overrides_none_and_none_overrides_all(value: str) -> None:
    names = device_names((*DEVICES, f"{GPU}=none"))
    assert devices(f"{VISIBLE}={value}", names=names) == ()
    asked = f"{VISIBLE}={value.replace('void', 'none')}"
    assert devices(asked, names=names) == (f"{GPU}=none",)


def test_all_requests_every_device_once_if_no_device_is_called_all() -> None:
    names = device_names(device for device in DEVICES if not device.endswith("=all"))
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


def test_devices_keep_the_requested_order_and_are_injected_once() -> None:
    asked = f"{VISIBLE}=1:0,0,{UUID},0,0000:1b:00.0,{MIG}"
    assert devices(asked) == (f"{GPU}=1:0", f"{GPU}=0")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("9", ["NVIDIA_VISIBLE_DEVICES requests '9'", "the host has no such GPU"]),
        ("1", ["is in MIG mode", "1:0"]),
        ("2", ["fallen off the bus"]),
        ("GPU-ffffffff", ["no such GPU"]),
        ("amd.com/gpu=0", ["no spec of amd.com/gpu"]),
        (f"{GPU}=9", [f"{GPU} has 0, 1:0"]),
        ("\x1b[31m", ["'\\x1b[31m'"]),
    ],
)
def test_an_unknown_device_is_refused_with_a_reason(value: str, words: list[str]) -> None:
    decision = outcome(f"{VISIBLE}={value}")
    assert (decision.outcome, decision.cause, decision.devices) == ("refuse", "unknown_device", ())
    assert [word for word in words if word not in decision.reason] == []
    assert decision.reason.isprintable()


def test_the_last_of_repeated_variables_applies() -> None:
    assert devices(f"{VISIBLE}=all", f"{VISIBLE}=0") == (f"{GPU}=0",)


def test_a_legacy_image_requests_all_gpus_with_all_capabilities() -> None:
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
def test_the_smallest_kind_with_the_capabilities_is_chosen(value: str | None, kind: str) -> None:
    env = () if value is None else (f"NVIDIA_DRIVER_CAPABILITIES={value}",)
    assert devices(f"{VISIBLE}=0", *env, gpu_kinds=COMPUTE) == (f"nvidia.com/{kind}=0",)


def test_a_kind_without_a_spec_is_skipped() -> None:
    names = device_names(device for device in DEVICES if "gpu-compute" not in device)
    assert devices(f"{VISIBLE}=0", names=names, gpu_kinds=COMPUTE) == (f"{GPU}=0",)


@pytest.mark.parametrize("value", ["cuda", "compute,Utility", "all,x", "compute;utility"])
def test_an_unknown_capability_is_refused(value: str) -> None:
    decision = outcome(f"{VISIBLE}=0", f"NVIDIA_DRIVER_CAPABILITIES={value}")
    assert (decision.outcome, decision.cause) == ("refuse", "unknown_capability")


@pytest.mark.parametrize("value", ["none", " none ,", "none,compute"])
def test_none_requests_no_capability(value: str) -> None:
    asked = (f"{VISIBLE}=0", f"NVIDIA_DRIVER_CAPABILITIES={value}")
    assert devices(*asked, gpu_kinds=COMPUTE) == ("nvidia.com/gpu-compute=0",)
    assert devices(*asked, gpu_kinds=COMPUTE[:1]) == (f"{GPU}=0",)


@pytest.mark.parametrize(("value", "kind"), [("compat32", "gpu-compute"), ("graphics,compat32", "gpu")])
def test_compat32_is_ignored_and_reported_if_no_kind_has_32_bit_libraries(value: str, kind: str) -> None:
    decision = outcome(f"{VISIBLE}=0", f"NVIDIA_DRIVER_CAPABILITIES={value}", gpu_kinds=COMPUTE)
    assert decision.devices == (f"nvidia.com/{kind}=0",)
    assert [ignored.cause for ignored in decision.ignored_requests] == ["no_compat32"]


def test_a_request_for_compat32_chooses_a_kind_with_32_bit_libraries() -> None:
    whole = GpuKind(kind=GPU, capabilities=(*CAPABILITIES, "compat32"))
    decision = outcome(
        f"{VISIBLE}=0", "NVIDIA_DRIVER_CAPABILITIES=compute,compat32", gpu_kinds=(whole, COMPUTE[1])
    )
    assert (decision.devices, decision.ignored_requests) == ((f"{GPU}=0",), ())


def test_a_capability_without_a_kind_is_refused() -> None:
    decision = outcome(f"{VISIBLE}=0", "NVIDIA_DRIVER_CAPABILITIES=graphics", gpu_kinds=COMPUTE[1:])
    assert (decision.outcome, decision.cause) == ("refuse", "no_kind")
    assert "profiles" in decision.reason


@pytest.mark.parametrize("blank", ["", " ", ",", " , "])
def test_a_blank_requirement_is_ignored(blank: str) -> None:
    unknown = HostGpus(problem="there is no inventory")
    asked = (f"{VISIBLE}=0", f"NVIDIA_REQUIRE_CUDA={blank}")
    assert devices(*asked, host_gpus=unknown) == (f"{GPU}=0",)
    assert outcome(*asked, "NVIDIA_REQUIRE_X=cuda>=1", host_gpus=unknown).cause == "no_inventory"


def test_imex_channels_are_requested_by_number() -> None:
    assert devices(f"{VISIBLE}=0", "NVIDIA_IMEX_CHANNELS=7,0") == (
        f"{GPU}=0",
        "nvidia.com/imex-channel=7",
        "nvidia.com/imex-channel=0",
    )
    assert devices(f"{VISIBLE}=0", "NVIDIA_IMEX_CHANNELS=all") == (f"{GPU}=0",)
    assert outcome(f"{VISIBLE}=0", "NVIDIA_IMEX_CHANNELS=9").cause == "unknown_device"


@pytest.mark.parametrize("name", ["GDS", "MOFED", "GDRCOPY"])
def test_a_switch_variable_applies_only_with_the_value_enabled_and_beside_a_gpu(name: str) -> None:
    family = f"nvidia.com/{name.lower()}=all"
    assert devices(f"{VISIBLE}=0", f"NVIDIA_{name}=enabled") == (f"{GPU}=0", family)
    assert devices(f"{VISIBLE}=0", f"NVIDIA_{name}=true") == (f"{GPU}=0",)
    assert devices(f"{VISIBLE}=void", f"NVIDIA_{name}=enabled") == ()


@pytest.mark.parametrize("name", ["GDS", "MOFED", "GDRCOPY"])
def test_a_switch_variable_is_ignored_if_its_kind_has_no_spec(name: str) -> None:
    there = device_names(each for each in DEVICES if not each.startswith(f"nvidia.com/{name.lower()}="))
    decision = outcome(f"{VISIBLE}=0", f"NVIDIA_{name}=enabled", names=there)
    assert (decision.devices, [ignored.cause for ignored in decision.ignored_requests]) == (
        (f"{GPU}=0",),
        ["no_spec"],
    )
    assert f"NVIDIA_{name}" in decision.ignored_requests[0].text
    qualified = outcome(f"{VISIBLE}=0,nvidia.com/{name.lower()}=all", names=there)
    assert qualified.cause == "unknown_device"


def test_nvswitches_are_injected_only_in_management_namespaces() -> None:
    env = (f"{VISIBLE}=0", "NVIDIA_NVSWITCH=enabled")
    assert devices(*env) == (f"{GPU}=0",)
    assert devices(*env, management_namespaces=("ml",)) == (f"{GPU}=0", "nvidia.com/nvswitch=all")


@pytest.mark.parametrize("name", ["config", "monitor"])
def test_mig_management_devices_are_injected_only_in_management_namespaces(name: str) -> None:
    env = (f"{VISIBLE}=0", f"NVIDIA_MIG_{name.upper()}_DEVICES=all")
    assert devices(*env) == (f"{GPU}=0",)
    assert devices(*env, management_namespaces=("ml",)) == (f"{GPU}=0", f"nvidia.com/mig=mig-{name}")
    refused = outcome(env[0], f"NVIDIA_MIG_{name.upper()}_DEVICES=0")
    assert (refused.cause, refused.reason.count("'all'")) == ("malformed", 1)


@pytest.mark.wall_clock
@pytest.mark.parametrize(
    "variable",
    [
        f"{VISIBLE}={','.join(map(str, range(300)))}",
        f"{VISIBLE}={'0,' * 200_000}",
        f"{VISIBLE}={'9' * (1 << 20)}",
        f"NVIDIA_DRIVER_CAPABILITIES={'compute,' * 200_000}",
    ],
    ids=range(4),
)
def test_excessive_requests_are_refused_at_once(variable: str) -> None:
    start_s = process_time()
    decision = outcome(f"{VISIBLE}=0", variable)
    assert process_time() - start_s < 0.5
    assert (decision.outcome, decision.cause) == ("refuse", "too_much")


@pytest.mark.wall_clock
def test_ten_thousand_variables_are_read_quickly() -> None:
    env = (*(f"NVIDIA_V{number}={number}" for number in range(10_000)), "=", "x", f"{VISIBLE}=0")
    start_s = process_time()
    assert devices(*env) == (f"{GPU}=0",)
    assert process_time() - start_s < 0.2


TEXTS = st.text(max_size=40) | st.sampled_from(["0", "all", "[]", "- a", "a,b", "nvidia.com/gpu=0"])


@given(st.sampled_from(sorted(environment._READ)), TEXTS)
def test_any_variable_is_accepted_or_refused(name: str, value: str) -> None:
    decision = outcome(f"{VISIBLE}=0", f"{name}={value}")
    assert decision.outcome in {"nothing", "inject"} or decision.cause in REFUSAL_CAUSES


TOKENS = st.lists(st.sampled_from(["0", "1:0", UUID, MIG, "1b:00.0", f"{GPU}=0", f"{GPU}=1:0"]), max_size=9)


@given(TOKENS)
def test_repeated_requests_change_nothing(tokens: list[str]) -> None:
    once = devices(f"{VISIBLE}={','.join(tokens)}")
    assert len(set(once)) == len(once)
    assert devices(f"{VISIBLE}={','.join([*tokens, *tokens])}") == once


@given(TOKENS, TOKENS)
def test_earlier_requests_come_first(first: list[str], rest: list[str]) -> None:
    start = devices(f"{VISIBLE}={','.join(first)}")
    assert devices(f"{VISIBLE}={','.join([*first, *rest])}")[: len(start)] == start
