"""Devices of other makers than NVIDIA, asked for by their own variables."""

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nri.host import DEVICES, POD, allowed, container, devices, outcome, policy
from support.paths import REPOSITORY

from cdigen.config import Settings
from cdigen.nri.decision.makers import makers_of
from cdigen.nri.decision.policy import needs_decision, policy_of, requests_devices
from cdigen.nri.decision.select import DeviceNames
from cdigen.vendors.registry import visible_devices

# Variable -> the kind that it means.
KINDS = {
    "AMD_VISIBLE_DEVICES": "amd.com/gpu",
    "DOCKER_RESOURCE_GPU": "amd.com/gpu",
    "HABANA_VISIBLE_DEVICES": "intel.com/gaudi",
    "ASCEND_VISIBLE_DEVICES": "huawei.com/npu",
    "AWS_NEURON_VISIBLE_DEVICES": "aws.amazon.com/neuron",
    "TPU_VISIBLE_CHIPS": "google.com/tpu",
    "TPU_VISIBLE_DEVICES": "google.com/tpu",
}
VARIABLES = [*KINDS]


def spec(kind: str, *names: str) -> DeviceNames:
    return DeviceNames(f"{kind}={name}" for name in names or ("0", "1", "2", "3"))


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
def test_a_makers_variable_gives_its_devices(variable: str, value: str, names: list[str]) -> None:
    kind = KINDS[variable]
    found = devices(f"{variable}={value}", names=spec(kind))
    assert found == tuple(f"{kind}={name}" for name in names)


@pytest.mark.parametrize("variable", [name for name in VARIABLES if not name.startswith("DOCKER_")])
def test_none_and_void_give_nothing_and_full_names_what_they_name(variable: str) -> None:
    kind = KINDS[variable]
    for value in ("none", "void", "VOID", "0,none"):
        assert devices(f"{variable}={value}", names=spec(kind)) == ()
    assert devices(f"{variable}={kind}=2", names=spec(kind)) == (f"{kind}=2",)


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_spec_that_has_all_gives_it(variable: str) -> None:
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
        ("AMD_VISIBLE_DEVICES", "0xEA35F57CC80DEB35", "0xEA35F57CC80DEB35", "0xEA35F57CC80DEB35"),
        ("AMD_VISIBLE_DEVICES", "0xea35f57cc80deb35", "0xEA35F57CC80DEB35", "0xEA35F57CC80DEB35"),
    ],
)
def test_devices_are_found_by_the_names_that_specs_give_them(
    variable: str, value: str, there: str, name: str
) -> None:
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
        # Its runtime takes numbers alone.
        ("HABANA_VISIBLE_DEVICES", "0-2", None),
        ("AWS_NEURON_VISIBLE_DEVICES", "0-2", None),
        ("TPU_VISIBLE_DEVICES", "0-2", None),
    ],
)
def test_ranges_are_those_of_the_makers_that_have_them(
    variable: str, value: str, names: list[str] | None
) -> None:
    decision = outcome(f"{variable}={value}", names=spec(KINDS[variable]))
    if names is None:
        assert (decision.outcome, decision.cause) == ("refuse", "unknown_device")
    else:
        assert decision.devices == tuple(f"{KINDS[variable]}={name}" for name in names)


@pytest.mark.parametrize("variable", VARIABLES)
def test_without_a_spec_of_its_kind_a_variable_does_not_count(variable: str) -> None:
    decision = outcome(f"{variable}=all")
    assert (decision.outcome, [note.cause for note in decision.notes]) == ("nothing", ["no_spec"])
    assert variable in decision.notes[0].text
    assert KINDS[variable] in decision.notes[0].text


@pytest.mark.parametrize("value", ["0-999999999", "x" * 70_000, "7,,seven", "2-0"])
@pytest.mark.parametrize("variable", VARIABLES)
def test_what_a_variable_holds_does_not_matter_on_a_host_without_its_devices(
    variable: str, value: str
) -> None:
    assert outcome(f"{variable}={value}", "NVIDIA_VISIBLE_DEVICES=0").devices == ("nvidia.com/gpu=0",)


def test_what_names_its_kind_is_meant_for_this_host() -> None:
    decision = outcome("ASCEND_VISIBLE_DEVICES=0,huawei.com/npu=1")
    assert (decision.cause, decision.notes[0].cause) == ("unknown_device", "no_spec")
    assert outcome("ASCEND_VISIBLE_DEVICES=huawei.com/npu=1,none").outcome == "nothing"
    many = ",".join(f"huawei.com/npu={number}" for number in range(3_000))
    assert outcome(f"ASCEND_VISIBLE_DEVICES={many}").cause == "too_much"


@pytest.mark.parametrize(
    ("variable", "second"),
    [("HABANA_VISIBLE_DEVICES", "habana.ai/gaudi"), ("ASCEND_VISIBLE_DEVICES", "ascend.com/npu")],
)
def test_of_two_kinds_the_first_that_is_there_and_allowed_serves_a_variable(
    variable: str, second: str
) -> None:
    first = KINDS[variable]
    both = DeviceNames([f"{first}=1", f"{second}=1"])
    for kinds in ((first, second), ("*",)):
        assert devices(f"{variable}=1", names=spec(second), allow=allowed(kinds=kinds)) == (f"{second}=1",)
        assert devices(f"{variable}=1", names=both, allow=allowed(kinds=kinds)) == (f"{first}=1",)
    assert devices(f"{variable}=1", names=both, allow=allowed(kinds=(second,))) == (f"{second}=1",)
    annotated = (*allowed("annotation"), *allowed(kinds=(second,)))
    assert devices(f"{variable}=1", names=both, allow=annotated) == (f"{second}=1",)
    decision = outcome(f"{variable}=1", names=both, allow=allowed(kinds=("amd.com/gpu",)))
    assert (decision.outcome, [note.cause for note in decision.notes]) == ("nothing", ["not_counted"])
    assert first in decision.notes[0].text


def test_what_a_driver_gives_to_claims_is_allowed_by_name_alone() -> None:
    claims = spec("ascend.com/npu", "0", "1")
    for value in ("0", "all", "npu-1"):
        decision = outcome(f"ASCEND_VISIBLE_DEVICES={value}", names=claims)
        assert (decision.outcome, [note.cause for note in decision.notes]) == ("nothing", ["not_counted"])
    # A claim that comes and goes beside the NPUs of all changes nothing.
    both = DeviceNames(["ascend.com/npu=0", "huawei.com/npu=0"])
    assert devices("ASCEND_VISIBLE_DEVICES=0", names=both) == ("huawei.com/npu=0",)
    in_full = "ascend.com/npu=0"
    assert outcome(f"ASCEND_VISIBLE_DEVICES={in_full}", names=both).cause == "not_permitted"
    assert outcome(asked={"devices.cdigen.dev": in_full}, names=both).cause == "not_permitted"
    named = allowed(kinds=("ascend.com/npu",))
    assert devices("ASCEND_VISIBLE_DEVICES=all", names=claims, allow=named) == (in_full, "ascend.com/npu=1")


def test_variables_of_two_makers_count_both_and_each_by_itself() -> None:
    there = DeviceNames([*DEVICES, "amd.com/gpu=0", "huawei.com/npu=0"])
    env = ("ASCEND_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=0")
    assert set(devices(*env, names=there)) == {"nvidia.com/gpu=0", "amd.com/gpu=0", "huawei.com/npu=0"}
    env = ("ASCEND_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=void")
    assert devices(*env, names=there) == ("huawei.com/npu=0",)
    # What is wrong with one stops the container.
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
        # Swarm has such variables for whatever resource there is.
        (("AMD_VISIBLE_DEVICES=3", "DOCKER_RESOURCE_DISK=sda,sdb"), ["3"]),
        (("AMD_VISIBLE_DEVICES=3", "DOCKER_RESOURCE_NVIDIA=GPU-45cbf7b3"), ["3"]),
        (("DOCKER_RESOURCE_GPU=1", "DOCKER_RESOURCE_NVIDIA=GPU-45cbf7b3"), ["1"]),
        (("DOCKER_RESOURCE_DISK=sda",), []),
        (("DOCKER_RESOURCE_GPU=,,",), []),
    ],
)
def test_what_swarm_assigns_comes_before_amds_own_variable(env: tuple[str, ...], names: list[str]) -> None:
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
def test_of_the_two_names_for_tpus_the_one_that_libtpu_takes_counts(env: tuple[str, ...], name: str) -> None:
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
def test_what_chooses_among_devices_that_are_there_asks_for_none(name: str) -> None:
    there = DeviceNames(f"{kind}=0" for kind in KINDS.values())
    decision = outcome(f"{name}=0", names=there)
    assert (decision.outcome, decision.notes) == ("nothing", ())


# What counts.


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_row_that_names_no_kinds_allows_what_variables_name(variable: str) -> None:
    kind = KINDS[variable]
    assert devices(f"{variable}=0", names=spec(kind)) == (f"{kind}=0",)
    decision = outcome(f"{variable}=0", names=spec(kind), allow=allowed(kinds=("nvidia.com/gpu",)))
    assert (decision.outcome, [note.cause for note in decision.notes]) == ("nothing", ["not_counted"])
    assert devices(f"{variable}=0", names=spec(kind), allow=allowed(kinds=(kind,))) == (f"{kind}=0",)
    assert devices(f"{variable}=0", names=spec(kind), allow=allowed("annotation")) == ()


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_container_with_a_makers_variable_is_one_that_asks(variable: str) -> None:
    asking = container(f"{variable}=0")
    assert needs_decision(POD, asking, policy())
    assert requests_devices(POD, asking)
    assert not requests_devices(POD, container(f"{variable}="))


# What is there already.


@pytest.mark.parametrize(
    ("variable", "here"),
    [
        ("AMD_VISIBLE_DEVICES", {"devices": ("/dev/kfd",)}),
        ("AMD_VISIBLE_DEVICES", {"devices": ("/dev/dri/renderD128",)}),
        ("AMD_VISIBLE_DEVICES", {"cdi": ("k8s.gpu.amd.com/gpu=u-gpu-0",)}),
        ("AMD_VISIBLE_DEVICES", {"cdi": ("amd.com/gpu-compute=1",)}),
        ("HABANA_VISIBLE_DEVICES", {"devices": ("/dev/accel/accel7",)}),
        ("HABANA_VISIBLE_DEVICES", {"devices": ("/dev/hl0",)}),
        ("HABANA_VISIBLE_DEVICES", {"cdi": ("intel.com/gaudi=0000-01-00-0-0x1020",)}),
        ("ASCEND_VISIBLE_DEVICES", {"devices": ("/dev/davinci100",)}),
        ("ASCEND_VISIBLE_DEVICES", {"cdi": ("npu.huawei.com/ascend910=0",)}),
        ("ASCEND_VISIBLE_DEVICES", {"cdi": ("huawei.com/Ascend910=0",)}),
        ("AWS_NEURON_VISIBLE_DEVICES", {"devices": ("/dev/neuron15",)}),
        ("AWS_NEURON_VISIBLE_DEVICES", {"cdi": ("k8s.neuron.aws.com/claim=u",)}),
        ("TPU_VISIBLE_DEVICES", {"devices": ("/dev/accel0",)}),
        ("TPU_VISIBLE_DEVICES", {"devices": ("/dev/vfio/12",)}),
        ("TPU_VISIBLE_DEVICES", {"cdi": ("tpu.google.com/device=0",)}),
    ],
)
def test_what_a_device_plugin_or_a_claim_gave_is_not_given_again(
    variable: str, here: dict[str, tuple[str, ...]]
) -> None:
    decision = outcome(f"{variable}=0", names=spec(KINDS[variable]), here=container(**here))
    assert (decision.outcome, [note.cause for note in decision.notes]) == ("served", ["served"])


@pytest.mark.parametrize(
    ("variable", "here"),
    [
        ("AMD_VISIBLE_DEVICES", {"devices": ("/dev/nvidia0", "/dev/accel/accel0")}),
        ("AMD_VISIBLE_DEVICES", {"cdi": ("amd.com/npu=0",)}),
        ("HABANA_VISIBLE_DEVICES", {"devices": ("/dev/accel/accel_controlD0", "/dev/accel0")}),
        ("HABANA_VISIBLE_DEVICES", {"cdi": ("intel.com/gpu=0",)}),
        ("ASCEND_VISIBLE_DEVICES", {"devices": ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")}),
        ("AWS_NEURON_VISIBLE_DEVICES", {"cdi": ("aws.amazon.com/efa=0",)}),
        ("TPU_VISIBLE_DEVICES", {"devices": ("/dev/vfio/vfio",)}),
    ],
)
def test_other_devices_do_not_pass_for_those_of_a_maker(
    variable: str, here: dict[str, tuple[str, ...]]
) -> None:
    kind = KINDS[variable]
    assert devices(f"{variable}=0", names=spec(kind), here=container(**here)) == (f"{kind}=0",)


@pytest.mark.parametrize(
    ("kind", "there", "other"),
    [
        ("aws.amazon.com/neuron", "/dev/neuron1", "/dev/neuron0"),
        ("huawei.com/npu", "/dev/davinci1", "/dev/davinci0"),
        ("intel.com/gaudi", "/dev/accel/accel1", "/dev/accel/accel0"),
        ("google.com/tpu", "/dev/accel1", "/dev/accel0"),
    ],
)
def test_what_was_named_in_full_is_told_by_the_number_of_its_node(kind: str, there: str, other: str) -> None:
    asked = {"devices.cdigen.dev": f"{kind}=1"}
    assert devices(asked=asked, names=spec(kind), here=container(devices=(there,))) == ()
    assert devices(asked=asked, names=spec(kind), here=container(devices=(other,))) == (f"{kind}=1",)


def test_beside_all_devices_of_a_maker_no_single_one_counts() -> None:
    kind = "huawei.com/npu"
    asked = {"devices.cdigen.dev": f"{kind}=all,{kind}=0"}
    assert devices(asked=asked, names=spec(kind, "0", "all")) == (f"{kind}=all",)


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
def test_a_hostile_value_is_refused_in_one_line_and_soon(variable: str, value: str) -> None:
    begun = process_time()
    decision = outcome(f"{variable}={value}", names=spec(KINDS[variable]))
    assert process_time() - begun < 0.5
    if decision.outcome == "nothing":
        # Whoever else's resource it is.
        assert variable.startswith("DOCKER_")
        return
    assert (decision.outcome, decision.devices) == ("refuse", ())
    assert decision.cause in {"malformed", "too_much", "unknown_device"}
    assert decision.reason.isprintable()
    assert len(decision.reason) < 500


def test_ten_thousand_variables_of_swarm_are_read_soon() -> None:
    env = [f"DOCKER_RESOURCE_{number}=sd{number}" for number in range(10_000)]
    begun = process_time()
    assert devices(*env, "AMD_VISIBLE_DEVICES=1", names=spec("amd.com/gpu")) == ("amd.com/gpu=1",)
    assert process_time() - begun < 0.5


@given(st.sampled_from(VARIABLES), st.text(alphabet="0123456789-,xXabcdefAL lnopu=/.", max_size=40))
def test_whatever_a_variable_holds_there_are_devices_of_its_kind_or_a_reason(
    variable: str, value: str
) -> None:
    kind = KINDS[variable]
    decision = outcome(f"{variable}={value}", names=spec(kind))
    assert all(device.startswith(f"{kind}=") for device in decision.devices)
    assert (decision.outcome == "refuse") == bool(decision.reason)


# The tables.


def test_the_tables_are_those_of_all_makers_with_or_without_a_configuration() -> None:
    assert policy_of(Settings(vendors=("nvidia",))).makers.kinds == makers_of().kinds
    assert set(KINDS.values()) <= set(makers_of().kinds)


def test_every_variable_is_documented_with_its_kinds() -> None:
    text = (REPOSITORY / "docs/configuration.md").read_text()
    rows = re.findall(r"^\| (.*_VISIBLE_.*?) \| (.*?) \|", text, re.MULTILINE)
    documented = {name: set(re.findall(r"`(.+?)`", kinds)) for names, kinds in rows
                  for name in re.findall(r"`(.+?)`", names)}  # fmt: skip
    for row in visible_devices():
        for variable in row.variables:
            assert documented[variable] == set(row.kinds), variable
