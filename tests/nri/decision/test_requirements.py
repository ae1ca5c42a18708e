"""The requirements of an image are evaluated with facts of a driver. A second evaluator checks the values."""

import re
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nri.host import DRIVER, content, devices, inventory, outcome
from support.nri.host import host_gpus as host_gpus_by

from cdigen.nri.decision.request.host_gpus import HostGpus, canonical
from cdigen.nri.decision.request.refusal import InjectionRefusal
from cdigen.nri.decision.request.requirements import DriverFacts, parse, unknown
from cdigen.nri.decision.request.requirements import holds as holds_of
from cdigen.value import replace
from cdigen.vendors.nvidia.driver_api import arch_of, brands_of, of_branch

FACTS = DriverFacts(cuda="12.4", driver="550.163.01", arch="9.0", brands=("nvidia", "tesla"))
# The requirement of the image nvidia/cuda:12.6, shortened.
CUDA_IMAGE = (
    "cuda>=12.6 brand=unknown,driver>=470,driver<471 brand=grid,driver>=470,driver<471 "
    "brand=tesla,driver>=470,driver<471 brand=nvidia,driver>=550,driver<551 "
    "brand=quadro,driver>=550,driver<551"
)
VISIBLE = "NVIDIA_VISIBLE_DEVICES=0"


def holds(text: str, facts: DriverFacts) -> bool:
    return holds_of("NVIDIA_REQUIRE_CUDA", parse(text), facts)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("", True),
        (" , ", True),
        ("cuda>=12.4", True),
        ("CUDA>=12.4", True),
        ("cuda>=12.4 flavour=open", True),
        ("cuda>=99,flavour=open", False),
        ("cuda>=99 ,", False),
        ("cuda>=12.4.0.0", True),
        ("cuda>12.4", False),
        ("cuda<=12.10", True),
        ("cuda=12.4", True),
        ("cuda!=12.4", False),
        ("cuda<12", False),
        ("driver>=550.163.1", True),
        ("driver>=550.163.2", False),
        ("arch>=9", True),
        ("arch<8.6", False),
        ("brand=TESLA", True),
        ("brand=geforce", False),
        ("brand!=geforce", True),
        ("brand!=tesla", True),
        ("cuda>=13 cuda>=12", True),
        ("cuda>=13,cuda>=12", False),
        (",,cuda>=12,, ", True),
        (CUDA_IMAGE, True),
        ("cuda>=12.6 brand=tesla,driver>=535,driver<536", False),
    ],
)
def test_requirements_are_evaluated(text: str, *, met: bool) -> None:
    assert holds(text, FACTS) is met


@pytest.mark.parametrize("text", ["cuda>=99", "driver<1", "arch=0", "brand=none", "brand!=x"])
def test_a_condition_on_an_unknown_property_holds(text: str) -> None:
    assert holds(text, DriverFacts())
    assert unknown(parse(text), DriverFacts()) == (re.split("[!=<>]", text)[0],)


@pytest.mark.parametrize(
    "text",
    [
        "cuda",
        "cuda>=",
        ">=12",
        "cuda==12",
        "cuda>=12.x",
        "cuda>=12.",
        "cuda=>12",
        "cuda>=-1",
        "cuda>=" + "9" * 5000,
        "cuda>=1" + ".1" * 20,
        "gpu>=1",
        "brand>=tesla",
        "brand=",
        "cuda>=99 x",
        "x cuda>=12",
        "cuda>=12,x",
        "cuda>=\u0661",
    ],
    ids=ascii,
)
def test_an_invalid_requirement_raises_an_error(text: str) -> None:
    with pytest.raises(InjectionRefusal, match=r"is no|none of|a brand can only") as caught:
        holds(text, FACTS)
    assert len(str(caught.value)) < 300


def evaluated(text: str, facts: dict[str, str]) -> bool:
    """Return the value of TEXT by the most direct implementation, to check ``holds``."""
    operators = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}

    def fits(condition: str) -> bool:
        name, operator, value = re.split("([!<>=]+)", condition)
        if not facts[name]:
            return True
        if name == "brand":
            return bool(getattr(facts[name].lower(), operators[operator])(value.lower()))
        padded = [[int(n) for n in (each + ".0" * 9).split(".")][:9] for each in (facts[name], value)]
        return bool(getattr(padded[0], operators[operator])(padded[1]))

    terms = [term for term in text.split(" ") if term]
    return not terms or any(all(map(fits, filter(None, term.split(",")))) for term in terms)


VERSIONS = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda ns: ".".join(map(str, ns)))
BRANDS = st.sampled_from(["tesla", "Tesla", "geforce", "nvidia"])
COMPARISONS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["cuda", "driver", "arch"]),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    VERSIONS,
) | st.builds("brand{}{}".format, st.sampled_from(["=", "!="]), BRANDS)
EXPRESSIONS = st.lists(st.lists(COMPARISONS, max_size=3).map(",".join), max_size=4).map(" ".join)


@given(
    EXPRESSIONS,
    st.fixed_dictionaries(dict.fromkeys(("cuda", "driver", "arch"), VERSIONS | st.just(""))),
    BRANDS,
)
def test_the_evaluator_agrees_with_a_direct_implementation(
    text: str, facts: dict[str, str], brand: str
) -> None:
    known = DriverFacts(**facts, brands=(brand.lower(),))
    assert holds(text, known) == evaluated(text, {**facts, "brand": brand})


@given(EXPRESSIONS, EXPRESSIONS)
def test_another_alternative_never_makes_a_requirement_fail(one: str, other: str) -> None:
    if one.strip() and holds(one, FACTS):
        assert holds(f"{one} {other}", FACTS)


@given(st.text(max_size=60) | st.lists(st.sampled_from([*"<>=!, .019", "cuda", "brand"])).map("".join))
def test_any_text_is_evaluated_or_raises_a_value_error(text: str) -> None:
    with suppress(InjectionRefusal):
        assert holds(text, FACTS) in {True, False}


def test_a_container_with_a_met_requirement_starts() -> None:
    assert devices(VISIBLE, f"NVIDIA_REQUIRE_CUDA={CUDA_IMAGE}") == ("nvidia.com/gpu=0",)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("NVIDIA_REQUIRE_CUDA=cuda>=13.0", ["NVIDIA_REQUIRE_CUDA='cuda>=13.0'", "cuda 12.4", DRIVER]),
        ("NVIDIA_REQUIRE_ARCH=arch>=10.0", ["arch 9.0", "GPU 0"]),
        ("NVIDIA_REQUIRE_X=brand=geforce", ["nvidia or tesla"]),
        ("CUDA_VERSION=13.1.2", ["CUDA_VERSION='cuda>=13.1'"]),
    ],
)
def test_a_container_with_an_unmet_requirement_is_refused_with_a_reason(env: str, words: list[str]) -> None:
    decision = outcome(VISIBLE, env)
    assert (decision.outcome, decision.cause) == ("refuse", "requirement")
    assert [word for word in words if word not in decision.reason] == []


def test_all_requirements_must_be_met_and_the_jetpack_variables_are_ignored() -> None:
    assert outcome(VISIBLE, "NVIDIA_REQUIRE_A=cuda>=12", "NVIDIA_REQUIRE_B=cuda>=13").outcome == "refuse"
    assert devices(VISIBLE, "NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS=x", "NVIDIA_REQUIRE_JETPACK=csv-mounts=all")


def test_every_injected_gpu_must_meet_the_requirement() -> None:
    first, *others = inventory().accelerators
    mixed = inventory(accelerators=(replace(first, model="Tesla T4"), *others))
    env = ("NVIDIA_REQUIRE_ARCH=arch>=8.0", "NVIDIA_VISIBLE_DEVICES={}")
    found = {
        asked: outcome(env[0], env[1].format(asked), host_gpus=host_gpus_by(content(mixed))).outcome
        for asked in ("0", "1:0", "all")
    }
    assert found == {"0": "refuse", "1:0": "inject", "all": "refuse"}


@pytest.mark.parametrize("value", ["true", "1", "TRUE"])
def test_a_container_may_disable_its_own_requirements(value: str) -> None:
    env = (VISIBLE, "NVIDIA_REQUIRE_CUDA=cuda>=99", f"NVIDIA_DISABLE_REQUIRE={value}")
    assert devices(*env) == ("nvidia.com/gpu=0",)
    assert outcome(*env[:2], "NVIDIA_DISABLE_REQUIRE=false").outcome == "refuse"


@pytest.mark.parametrize("value", ["cuda", "cuda>=99 x", "\x00"])
def test_a_malformed_requirement_is_refused(value: str) -> None:
    assert outcome(VISIBLE, f"NVIDIA_REQUIRE_CUDA={value}").cause == "requirement_malformed"
    assert outcome(VISIBLE, "CUDA_VERSION=twelve").cause == "requirement_malformed"


@pytest.mark.wall_clock
@pytest.mark.parametrize("value", ["cuda>=1," * 131_072, "9" * (1 << 20), " " * (1 << 20)], ids=range(3))
def test_a_requirement_of_a_megabyte_is_refused_at_once(value: str) -> None:
    start_s = process_time()
    assert outcome(VISIBLE, f"NVIDIA_REQUIRE_CUDA={value}").cause == "too_much"
    assert process_time() - start_s < 0.2


@pytest.mark.wall_clock
def test_the_longest_requirement_is_evaluated_quickly() -> None:
    value = ("cuda>=99," * 3600)[:32_000].rstrip(",")
    start_s = process_time()
    assert outcome(VISIBLE, f"NVIDIA_REQUIRE_CUDA={value}").outcome == "refuse"
    assert process_time() - start_s < 0.5


STALE = host_gpus_by(content(), running_driver="570.10")
ABSENT = host_gpus_by(None)


@pytest.mark.parametrize(
    "host_gpus",
    [ABSENT, STALE, host_gpus_by(b"{}"), host_gpus_by(b"\xff"), host_gpus_by(b"[" * 100_000)],
    ids=range(5),
)
def test_without_a_current_inventory_the_policy_decides(host_gpus: HostGpus) -> None:
    env = (VISIBLE, "NVIDIA_REQUIRE_CUDA=cuda>=12")
    enforced = outcome(*env, host_gpus=host_gpus)
    assert (enforced.outcome, enforced.cause) == ("refuse", "no_inventory")
    warned = outcome(*env, host_gpus=host_gpus, image_requirements="warn")
    assert (warned.outcome, [ignored.cause for ignored in warned.ignored_requests]) == (
        "inject",
        ["no_inventory"],
    )
    off = outcome(*env, host_gpus=host_gpus, image_requirements="off")
    assert (off.outcome, off.ignored_requests) == ("inject", ())
    assert outcome(VISIBLE, host_gpus=host_gpus).outcome == "inject"


def test_an_inventory_is_stale_once_another_driver_runs() -> None:
    problem = f"it describes driver {DRIVER}, but driver 570.10 is loaded"
    assert STALE.problem == f"the inventory is stale: {problem}"
    assert host_gpus_by(content(), running_driver=DRIVER).problem == ""


def test_an_inventory_is_stale_if_no_daemon_runs() -> None:
    problem = host_gpus_by(content(), running_driver=DRIVER, has_daemon=False).problem
    assert problem == "the inventory is stale: the cdigen daemon, which updates it, does not run"


@pytest.mark.parametrize("mode", ["gpu", "management", "wsl", "csv"])
def test_the_inventory_is_used_if_the_version_of_the_loaded_driver_is_unknown(mode: str) -> None:
    assert host_gpus_by(content(inventory(mode=mode)), running_driver="").problem == ""


def test_with_the_policy_warn_an_unmet_requirement_is_reported_and_not_refused() -> None:
    decision = outcome(VISIBLE, "NVIDIA_REQUIRE_CUDA=cuda>=99", image_requirements="warn")
    assert (decision.outcome, [ignored.cause for ignored in decision.ignored_requests]) == (
        "inject",
        ["requirement"],
    )


def test_requirements_apply_to_devices_from_annotations() -> None:
    asked = {"devices.cdigen.dev": "nvidia.com/gpu=0"}
    assert outcome("NVIDIA_REQUIRE_CUDA=cuda>=99", pod_annotations=asked).cause == "requirement"


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("550.163.01", "12.4"),
        ("535.288.01", "12.2"),
        ("540.4.0", "12.2"),
        ("580.95.05", "13.0"),
        ("470.256.02", "11.4"),
        ("340.108", ""),
        ("999.1", ""),
        ("", ""),
        ("x.1", ""),
    ],
)
def test_the_driver_branch_determines_the_cuda_version(driver: str, cuda: str) -> None:
    assert of_branch(driver) == cuda


@pytest.mark.parametrize(
    ("reported", "cause"), [("12.8", ""), ("12.3", "requirement"), (None, "requirement")]
)
def test_the_cuda_version_that_the_driver_reports_overrides_the_version_of_its_branch(
    reported: str | None, cause: str
) -> None:
    # The driver branch 550 has CUDA 12.4.
    own = inventory()
    own = replace(own, driver=replace(own.driver, cuda=reported))
    decided = outcome(VISIBLE, "NVIDIA_REQUIRE_CUDA=cuda>=12.6", host_gpus=host_gpus_by(content(own)))
    assert decided.cause == cause


def test_a_wsl_driver_has_the_cuda_version_that_it_reports() -> None:
    own = inventory(mode="wsl")
    own = replace(own, driver=replace(own.driver, cuda="12.3"))
    decided = outcome(VISIBLE, "NVIDIA_REQUIRE_CUDA=cuda>=12.4", host_gpus=host_gpus_by(content(own)))
    assert decided.cause == "requirement"


@pytest.mark.parametrize(
    ("model", "arch", "brands"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", ("nvidia", "tesla")),
        ("NVIDIA GH200 480GB", "9.0", ("nvidia", "tesla")),
        ("NVIDIA B200", "10.0", ("nvidia", "tesla")),
        ("NVIDIA A100-SXM4-40GB", "8.0", ("nvidia", "tesla")),
        ("A100-SXM4-40GB", "8.0", ("nvidia", "tesla")),
        ("NVIDIA A10G", "8.6", ("nvidia", "tesla")),
        ("NVIDIA L40S", "8.9", ("nvidia", "tesla")),
        ("NVIDIA L4", "8.9", ("nvidia", "tesla")),
        ("Tesla T4", "7.5", ("nvidia", "tesla")),
        ("Tesla V100-SXM2-16GB", "7.0", ("nvidia", "tesla")),
        ("Tesla K80", "3.7", ("nvidia", "tesla")),
        ("NVIDIA GeForce RTX 4090", "8.9", ("geforce", "geforcertx")),
        ("GeForce GTX 1080 Ti", "6.1", ("geforce",)),
        ("NVIDIA RTX A6000", "8.6", ("nvidiartx", "quadrortx", "quadro")),
        ("NVIDIA RTX 6000 Ada Generation", "8.9", ("nvidiartx", "quadrortx", "quadro")),
        ("Quadro RTX 8000", "7.5", ("quadro", "quadrortx")),
        ("NVIDIA TITAN RTX", "7.5", ("titan", "titanrtx")),
        ("NVIDIA Z9000", "", ()),
        ("Orin (nvgpu)", "", ()),
    ],
)
def test_the_model_name_determines_architecture_and_brands(
    model: str, arch: str, brands: tuple[str, ...]
) -> None:
    assert (arch_of(model), brands_of(model)) == (arch, brands or ())


@pytest.mark.parametrize("token", ["0", "0:1", "GPU-A", "1b:00", "x:y:z.0", "fffffffff:00:00.0"])
def test_a_text_without_a_pci_address_is_only_converted_to_lower_case(token: str) -> None:
    assert canonical(token) == token.lower()
