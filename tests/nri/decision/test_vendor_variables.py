"""Requests in the variables of vendors other than NVIDIA."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cost import calls
from support.nri.device_names import device_names
from support.nri.host import DEVICES, POD, allowed, container, devices, outcome, policy
from support.nri.vendor_kinds import KINDS, VARIABLES, spec
from support.paths import REPOSITORY

from cdigen.config import Settings
from cdigen.nri.decision.limits.policy import needs_decision, policy_of, requests_devices
from cdigen.nri.decision.request.vendor_variables import vendor_variables_of
from cdigen.vendors.registry import visible_devices

# A list of 12,000 numbers makes 61,000 calls.
MOST_CALLS = 300_000


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("0", ["0"]),
        ("3,1", ["3", "1"]),
        (" 0 , 2,", ["0", "2"]),
        ("all", ["0", "1", "2", "3"]),
        ("ALL", ["0", "1", "2", "3"]),
        ("1,all", ["0", "1", "2", "3"]),
        ("", []),
    ],
)
def test_a_vendors_variable_injects_its_devices(variable: str, value: str, names: list[str]) -> None:
    kind = KINDS[variable]
    found = devices(f"{variable}={value}", names=spec(kind))
    assert found == tuple(f"{kind}={name}" for name in names)


@pytest.mark.parametrize("variable", [name for name in VARIABLES if not name.startswith("DOCKER_")])
def test_none_and_void_inject_nothing_and_a_qualified_name_injects_its_device(variable: str) -> None:
    kind = KINDS[variable]
    for value in ("none", "void", "VOID", "0,none"):
        assert devices(f"{variable}={value}", names=spec(kind)) == ()
    assert devices(f"{variable}={kind}=2", names=spec(kind)) == (f"{kind}=2",)


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_device_all_of_a_spec_is_used(variable: str) -> None:
    kind = KINDS[variable]
    assert devices(f"{variable}=all", names=spec(kind, "0", "all")) == (f"{kind}=all",)


@pytest.mark.parametrize(
    ("variable", "value", "there", "name"),
    [
        ("HABANA_VISIBLE_DEVICES", "3", "accel3", "accel3"),
        ("AWS_NEURON_VISIBLE_DEVICES", "3", "neuron3", "neuron3"),
        ("TPU_VISIBLE_DEVICES", "3", "accel3", "accel3"),
        ("ASCEND_VISIBLE_DEVICES", "Ascend910-3", "3", "3"),
        ("ASCEND_VISIBLE_DEVICES", "Ascend310P-3", "3", "3"),
        ("ASCEND_VISIBLE_DEVICES", "npu-3", "3", "3"),
        ("AMD_VISIBLE_DEVICES", "ea35f57cc80deb35", "0xEA35F57CC80DEB35", "0xEA35F57CC80DEB35"),
        ("AMD_VISIBLE_DEVICES", "GPU-ea35f57cc80deb35", "0xEA35F57CC80DEB35", "0xEA35F57CC80DEB35"),
        ("AMD_VISIBLE_DEVICES", "gpu-EA35F57CC80DEB35", "0xEA35F57CC80DEB35", "0xEA35F57CC80DEB35"),
        ("AMD_VISIBLE_DEVICES", "GPU-0a35f57cc80deb35", "0xA35F57CC80DEB35", "0xA35F57CC80DEB35"),
        ("AMD_VISIBLE_DEVICES", "0xEA35F57CC80DEB35", "0xEA35F57CC80DEB35", "0xEA35F57CC80DEB35"),
        ("AMD_VISIBLE_DEVICES", "0xea35f57cc80deb35", "0xEA35F57CC80DEB35", "0xEA35F57CC80DEB35"),
    ],
)
def test_devices_are_found_by_the_names_in_specs(variable: str, value: str, there: str, name: str) -> None:
    kind = KINDS[variable]
    assert devices(f"{variable}={value}", names=spec(kind, there, "other")) == (f"{kind}={name}",)


@pytest.mark.parametrize(
    ("variable", "value", "names"),
    [
        ("AMD_VISIBLE_DEVICES", "0-2", ["0", "1", "2"]),
        ("AMD_VISIBLE_DEVICES", "1,0-1", ["1", "0"]),
        ("AMD_VISIBLE_DEVICES", "0-1,3", ["0", "1", "3"]),
        ("DOCKER_RESOURCE_GPU", "0-2", ["0", "1", "2"]),
        ("ASCEND_VISIBLE_DEVICES", "0-2", ["0", "1", "2"]),
        # The runtimes of these vendors accept only numbers.
        ("HABANA_VISIBLE_DEVICES", "0-2", None),
        ("AWS_NEURON_VISIBLE_DEVICES", "0-2", None),
        ("TPU_VISIBLE_DEVICES", "0-2", None),
    ],
)
def test_ranges_are_expanded_only_for_vendors_that_support_them(
    variable: str, value: str, names: list[str] | None
) -> None:
    decision = outcome(f"{variable}={value}", names=spec(KINDS[variable]))
    if names is None:
        assert (decision.outcome, decision.cause) == ("refuse", "unknown_device")
    else:
        assert decision.devices == tuple(f"{KINDS[variable]}={name}" for name in names)


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_variable_without_a_spec_of_its_kind_is_ignored(variable: str) -> None:
    decision = outcome(f"{variable}=all")
    assert (decision.outcome, [ignored.cause for ignored in decision.ignored_requests]) == (
        "nothing",
        ["no_spec"],
    )
    assert variable in decision.ignored_requests[0].text
    assert KINDS[variable] in decision.ignored_requests[0].text


@pytest.mark.parametrize("value", ["0-999999999", "x" * 70_000, "7,,seven", "2-0"])
@pytest.mark.parametrize("variable", VARIABLES)
def test_the_value_of_a_variable_is_not_checked_on_a_host_without_its_devices(
    variable: str, value: str
) -> None:
    assert outcome(f"{variable}={value}", "NVIDIA_VISIBLE_DEVICES=0").devices == ("nvidia.com/gpu=0",)


def test_a_qualified_name_without_a_spec_is_refused() -> None:
    decision = outcome("ASCEND_VISIBLE_DEVICES=0,huawei.com/npu=1")
    assert (decision.cause, decision.ignored_requests[0].cause) == ("unknown_device", "no_spec")
    assert outcome("ASCEND_VISIBLE_DEVICES=huawei.com/npu=1,none").outcome == "nothing"
    many = ",".join(f"huawei.com/npu={number}" for number in range(3_000))
    assert outcome(f"ASCEND_VISIBLE_DEVICES={many}").cause == "too_much"


@pytest.mark.parametrize(
    ("variable", "second"),
    [("HABANA_VISIBLE_DEVICES", "habana.ai/gaudi"), ("ASCEND_VISIBLE_DEVICES", "ascend.com/npu")],
)
def test_a_variable_uses_the_first_existing_and_permitted_kind(variable: str, second: str) -> None:
    first = KINDS[variable]
    both = device_names([f"{first}=1", f"{second}=1"])
    for kinds in ((first, second), ("*",)):
        assert devices(f"{variable}=1", names=spec(second), allow=allowed(kinds=kinds)) == (f"{second}=1",)
        assert devices(f"{variable}=1", names=both, allow=allowed(kinds=kinds)) == (f"{first}=1",)
    assert devices(f"{variable}=1", names=both, allow=allowed(kinds=(second,))) == (f"{second}=1",)
    annotated = (*allowed("annotation"), *allowed(kinds=(second,)))
    assert devices(f"{variable}=1", names=both, allow=annotated) == (f"{second}=1",)
    decision = outcome(f"{variable}=1", names=both, allow=allowed(kinds=("amd.com/gpu",)))
    assert (decision.outcome, [ignored.cause for ignored in decision.ignored_requests]) == (
        "nothing",
        ["not_permitted"],
    )
    assert first in decision.ignored_requests[0].text


def test_devices_of_claims_need_a_rule_with_their_kind() -> None:
    claims = spec("ascend.com/npu", "0", "1")
    for value in ("0", "all", "npu-1"):
        decision = outcome(f"ASCEND_VISIBLE_DEVICES={value}", names=claims)
        assert (decision.outcome, [ignored.cause for ignored in decision.ignored_requests]) == (
            "nothing",
            ["not_permitted"],
        )
    # A spec for claims (ascend.com/npu) does not change a request if huawei.com/npu has a spec as well.
    both = device_names(["ascend.com/npu=0", "huawei.com/npu=0"])
    assert devices("ASCEND_VISIBLE_DEVICES=0", names=both) == ("huawei.com/npu=0",)
    qualified = "ascend.com/npu=0"
    assert outcome(f"ASCEND_VISIBLE_DEVICES={qualified}", names=both).cause == "not_permitted"
    assert outcome(pod_annotations={"devices.cdigen.dev": qualified}, names=both).cause == "not_permitted"
    named = allowed(kinds=("ascend.com/npu",))
    assert devices("ASCEND_VISIBLE_DEVICES=all", names=claims, allow=named) == (qualified, "ascend.com/npu=1")


def test_variables_of_two_vendors_apply_independently() -> None:
    there = device_names([*DEVICES, "amd.com/gpu=0", "huawei.com/npu=0"])
    env = ("ASCEND_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=0")
    assert set(devices(*env, names=there)) == {"nvidia.com/gpu=0", "amd.com/gpu=0", "huawei.com/npu=0"}
    env = ("ASCEND_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=void")
    assert devices(*env, names=there) == ("huawei.com/npu=0",)
    # An error in one variable refuses the container.
    assert outcome("ASCEND_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=7", names=there).outcome == "refuse"


@pytest.mark.parametrize(
    ("env", "names"),
    [
        (("AMD_VISIBLE_DEVICES=all", "DOCKER_RESOURCE_GPU=1"), ["1"]),
        (("DOCKER_RESOURCE_GPU=1", "AMD_VISIBLE_DEVICES=all"), ["1"]),
        (("DOCKER_RESOURCE_A=1", "DOCKER_RESOURCE_B=2"), ["2"]),
        (("DOCKER_RESOURCE_B=2", "DOCKER_RESOURCE_A=1"), ["1"]),
        (("DOCKER_RESOURCE_A=0", "DOCKER_RESOURCE_B=2", "DOCKER_RESOURCE_A=1"), ["1"]),
        (("AMD_VISIBLE_DEVICES=3", "DOCKER_RESOURCE_GPU="), ["3"]),
        # Swarm sets DOCKER_RESOURCE_* for every resource.
        (("AMD_VISIBLE_DEVICES=3", "DOCKER_RESOURCE_DISK=sda,sdb"), ["3"]),
        (("AMD_VISIBLE_DEVICES=3", "DOCKER_RESOURCE_NVIDIA=GPU-45cbf7b3"), ["3"]),
        (("DOCKER_RESOURCE_GPU=1", "DOCKER_RESOURCE_NVIDIA=GPU-45cbf7b3"), ["1"]),
        (("DOCKER_RESOURCE_DISK=sda",), []),
        (("DOCKER_RESOURCE_GPU=,,",), []),
    ],
)
def test_swarms_variable_overrides_amds_variable(env: tuple[str, ...], names: list[str]) -> None:
    found = devices(*env, names=spec("amd.com/gpu"))
    assert found == tuple(f"amd.com/gpu={name}" for name in names)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (("TPU_VISIBLE_DEVICES=0", "TPU_VISIBLE_CHIPS=1"), "1"),
        (("TPU_VISIBLE_CHIPS=1", "TPU_VISIBLE_DEVICES=0"), "1"),
        (("TPU_VISIBLE_CHIPS=", "TPU_VISIBLE_DEVICES=0"), "0"),
    ],
)
def test_tpu_visible_chips_overrides_tpu_visible_devices(env: tuple[str, ...], name: str) -> None:
    assert devices(*env, names=spec("google.com/tpu")) == (f"google.com/tpu={name}",)


@pytest.mark.parametrize(
    "name",
    [
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "ASCEND_RT_VISIBLE_DEVICES",
        "HABANA_VISIBLE_MODULES",
        "HL_VISIBLE_DEVICES",
        "NEURON_RT_VISIBLE_CORES",
        "ZE_AFFINITY_MASK",
        "ONEAPI_DEVICE_SELECTOR",
        "AMD_VISIBLE_DEVICES_X",
        "XAMD_VISIBLE_DEVICES",
    ],
)
def test_variables_that_only_select_devices_request_no_device(name: str) -> None:
    there = device_names(f"{kind}=0" for kind in KINDS.values())
    decision = outcome(f"{name}=0", names=there)
    assert (decision.outcome, decision.ignored_requests) == ("nothing", ())


# Permissions.


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_rule_without_the_key_kinds_permits_the_kinds_of_vendor_variables(variable: str) -> None:
    kind = KINDS[variable]
    assert devices(f"{variable}=0", names=spec(kind)) == (f"{kind}=0",)
    decision = outcome(f"{variable}=0", names=spec(kind), allow=allowed(kinds=("nvidia.com/gpu",)))
    assert (decision.outcome, [ignored.cause for ignored in decision.ignored_requests]) == (
        "nothing",
        ["not_permitted"],
    )
    assert devices(f"{variable}=0", names=spec(kind), allow=allowed(kinds=(kind,))) == (f"{kind}=0",)
    assert devices(f"{variable}=0", names=spec(kind), allow=allowed("annotation")) == ()


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_container_with_a_vendors_variable_requests_devices(variable: str) -> None:
    asking = container(f"{variable}=0")
    assert needs_decision(POD, asking, policy())
    assert requests_devices(POD, asking)
    assert not requests_devices(POD, container(f"{variable}="))


# Attacks.


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(
    "value",
    [
        "0-999999999",
        "0-9999999999999999999",
        "999999999-0",
        "2-0",
        "0-",
        "7",
        "0-1000000000",
        "0-255," * 10_000,
        ",".join(f"{first}-255" for first in range(256)) * 30,
        ",".join(map(str, range(12_000))),
        "9" * 70_000,
        "0," * 40_000,
        "\u0662",
        "\u00b2",
        "0-\u0663",
        "0\x00",
        "..\n0",
        "$(reboot)",
        "-1",
        "0x",
        "a" * 60_000,
    ],
    ids=lambda value: value[:12].encode("unicode_escape").decode(),
)
def test_a_hostile_value_is_refused_quickly_with_a_reason_of_one_line(variable: str, value: str) -> None:
    decision = outcome(f"{variable}={value}", names=spec(KINDS[variable]))
    assert calls(lambda: outcome(f"{variable}={value}", names=spec(KINDS[variable]))) < MOST_CALLS
    if decision.outcome == "nothing":
        # The variable can be for another resource of Swarm.
        assert variable.startswith("DOCKER_")
        return
    assert (decision.outcome, decision.devices) == ("refuse", ())
    assert decision.cause in {"malformed", "too_much", "unknown_device"}
    assert decision.reason.isprintable()
    assert len(decision.reason) < 500


def test_ten_thousand_variables_of_swarm_are_read_quickly() -> None:
    env = [f"DOCKER_RESOURCE_{number}=sd{number}" for number in range(10_000)]
    env.append("AMD_VISIBLE_DEVICES=1")
    assert devices(*env, names=spec("amd.com/gpu")) == ("amd.com/gpu=1",)
    assert calls(lambda: devices(*env, names=spec("amd.com/gpu"))) < MOST_CALLS


@given(st.sampled_from(VARIABLES), st.text(alphabet="0123456789-,xXabcdefAL lnopu=/.", max_size=40))
def test_any_value_injects_devices_of_its_kind_or_is_refused_with_a_reason(variable: str, value: str) -> None:
    kind = KINDS[variable]
    decision = outcome(f"{variable}={value}", names=spec(kind))
    assert all(device.startswith(f"{kind}=") for device in decision.devices)
    assert (decision.outcome == "refuse") == bool(decision.reason)


# The tables.


def test_the_table_of_variables_has_all_vendors_whatever_the_configuration() -> None:
    assert policy_of(Settings(vendors=("nvidia",))).vendor_variables.kinds == vendor_variables_of().kinds
    assert set(KINDS.values()) <= set(vendor_variables_of().kinds)


def test_every_variable_is_documented_with_its_kinds() -> None:
    text = (REPOSITORY / "docs/reference/nri.md").read_text()
    rows = re.findall(r"^\| (.*_VISIBLE_.*?) \| (.*?) \|", text, re.MULTILINE)
    documented = {name: set(re.findall(r"`(.+?)`", kinds)) for names, kinds in rows
                  for name in re.findall(r"`(.+?)`", names)}  # fmt: skip
    for row in visible_devices():
        for variable in row.variables:
            assert documented[variable] == set(row.kinds), variable
