"""Device requests that the configuration permits."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.config_text import VALIDATOR, read, refusal
from support.nri.device_names import device_names
from support.nri.host import ALLOWED, DEVICES, POD, allowed, container, devices, listing, outcome, policy

from cdigen.config import AllowRule, GpuKind, NriConfig, Settings
from cdigen.model.profile import CAPABILITIES, Profile
from cdigen.nri.decision.limits.policy import needs_decision, policy_of
from cdigen.nri.pods import Container
from cdigen.value import replace

ALL = "NVIDIA_VISIBLE_DEVICES=all"
OWN = {"devices.cdigen.dev": "nvidia.com/gpu=0"}
ELSEWHERE = replace(POD, namespace="other")


def test_by_default_no_request_is_permitted() -> None:
    for decision in (outcome(ALL, allow=()), outcome(pod_annotations=OWN, allow=())):
        assert (decision.outcome, decision.devices) == ("nothing", ())
        assert [ignored.cause for ignored in decision.ignored_requests] == ["not_permitted"]


def test_no_request_is_permitted_outside_the_listed_namespaces() -> None:
    assert devices(ALL) == ("nvidia.com/gpu=all",)
    assert devices(ALL, pod=ELSEWHERE) == ()
    assert devices(pod_annotations=OWN, pod=ELSEWHERE) == ()


def test_annotations_that_are_not_permitted_can_be_refused() -> None:
    decision = outcome(pod_annotations=OWN, pod=ELSEWHERE, default_action="refuse")
    assert (decision.outcome, decision.cause) == ("refuse", "default_action")
    assert "'other'" in decision.reason
    assert outcome(ALL, pod=ELSEWHERE, default_action="refuse").outcome == "nothing"


@pytest.mark.parametrize("empty", ["", " ", ","])
def test_an_empty_annotation_cancels_the_environment_and_is_reported(empty: str) -> None:
    decision = outcome(ALL, pod_annotations={"devices.cdigen.dev": empty})
    assert (decision.outcome, decision.devices) == ("nothing", ())
    (ignored,) = decision.ignored_requests
    assert ignored.cause == "request_cancelled"
    assert "devices.cdigen.dev is empty" in ignored.text


@pytest.mark.parametrize("visible", ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=", "HOME=/"])
def test_an_empty_annotation_without_other_requests_is_not_reported(visible: str) -> None:
    assert outcome(visible, pod_annotations={"devices.cdigen.dev": ""}).ignored_requests == ()


@pytest.mark.parametrize(
    ("pattern", "is_permitted"),
    [("ml", True), ("m", False), ("m*", True), ("ml*", True), ("*", True), ("l*", False)],
)
def test_a_namespace_matches_by_name_or_prefix(pattern: str, *, is_permitted: bool) -> None:
    assert (
        policy(allow=(AllowRule(namespaces=(pattern,)),)).grant(POD).permits_source("environment")
        is is_permitted
    )


@pytest.mark.parametrize(
    ("row", "is_permitted"),
    [
        ({"runtime_handlers": ("runc",)}, True),
        ({"runtime_handlers": ("nvidia",)}, False),
        ({"runtime_handlers": ("",)}, False),
        ({"labels": (("team", "a"),)}, True),
        ({"labels": (("team", "*"),)}, True),
        ({"labels": (("team", "b"),)}, False),
        ({"labels": (("team", "a"), ("gpus", "*"))}, False),
        ({"sources": ("environment",)}, True),
        ({"sources": ("annotation",)}, False),
        ({"sources": ("mounts",)}, False),
        ({"privileged": True}, False),
        ({"privileged": False}, True),
        ({"kinds": ("nvidia.com/gpu",)}, True),
        ({"kinds": ("nvidia.com/*",)}, True),
        ({"kinds": ("amd.com/gpu",)}, False),
    ],
)
def test_a_container_must_match_all_conditions_of_a_rule(row: dict[str, Any], *, is_permitted: bool) -> None:
    assert bool(devices(ALL, allow=allowed(**row))) is is_permitted


PRIVILEGED = replace(container(), may_use_all_devices=True)
# The settings of NVIDIA's runtime: accept-nvidia-visible-devices-as-volume-mounts = true, and
# accept-nvidia-visible-devices-envvar-when-unprivileged = false.
AS_BY_NVIDIA = (
    AllowRule(namespaces=("*",), sources=("mounts",)),
    AllowRule(namespaces=("*",), sources=("environment",), privileged=True),
)


def test_the_empty_runtime_handler_matches_a_pod_without_a_runtime_class() -> None:
    rows = policy(allow=allowed(runtime_handlers=("",)))
    assert rows.grant(replace(POD, runtime_handler="")).permits_source("environment")


@pytest.mark.parametrize(
    ("here", "gpu"),
    [
        (container(), ""),
        (listing("0"), "0"),
        (PRIVILEGED, "all"),
        (replace(listing("0"), may_use_all_devices=True), "0"),
    ],
)
def test_the_environment_can_be_permitted_for_privileged_containers_only(here: Container, gpu: str) -> None:
    found = devices(ALL, here=here, allow=AS_BY_NVIDIA)
    assert found == ((f"nvidia.com/gpu={gpu}",) if gpu else ())
    requesting = replace(here, env=(ALL,))
    assert needs_decision(POD, requesting, policy(allow=AS_BY_NVIDIA)) is bool(gpu)


def test_a_rule_for_privileged_containers_matches_a_pod_whose_container_is_unknown() -> None:
    assert policy(allow=AS_BY_NVIDIA).grant(POD).permits_source("environment")
    assert not policy(allow=AS_BY_NVIDIA).grant(POD, container()).permits_source("environment")


def test_each_source_is_permitted_separately() -> None:
    allow = allowed("environment")
    assert devices(ALL, pod_annotations=OWN, allow=allow) == ("nvidia.com/gpu=all",)
    assert devices(pod_annotations=OWN, allow=allow) == ()


@pytest.mark.parametrize(
    "kind",
    ["nvidia.com/management", "nvidia.com/mig", "nvidia.com/nvswitch", "management.nvidia.com/gpu"],
)
@pytest.mark.parametrize("source", ["annotation", "environment"])
def test_management_kinds_are_permitted_only_in_management_namespaces(kind: str, source: str) -> None:
    allow = (AllowRule(namespaces=("*",), kinds=("*", kind)),)
    assert not policy(allow=allow).grant(POD).permits(source, kind)
    assert policy(allow=(), management_namespaces=("ml",)).grant(POD).permits(source, kind)
    assert not policy(allow=(), management_namespaces=("ml",)).grant(POD).permits(source, "nvidia.com/gpu")


def test_a_qualified_request_that_is_not_permitted_is_refused() -> None:
    asked = "NVIDIA_VISIBLE_DEVICES=nvidia.com/management=all"
    for decision in (
        outcome(pod_annotations={"devices.cdigen.dev": "nvidia.com/gpu=0,nvidia.com/management=all"}),
        outcome(pod_annotations={"nvidia.cdi.k8s.io/pod": "nvidia.com/management=all"}),
        outcome(asked),
    ):
        assert (decision.outcome, decision.cause) == ("refuse", "not_permitted"), decision
        assert "nvidia.com/management" in decision.reason
    assert devices(asked, management_namespaces=("ml",)) == ("nvidia.com/management=all",)


@pytest.mark.parametrize("source", ["annotation", "environment"])
@pytest.mark.parametrize(
    ("kind", "is_permitted"),
    [
        ("nvidia.com/gpu", True),
        ("amd.com/gpu", True),
        ("nvidia.com/imex-channel", True),
        ("nvidia.com/gds", True),
        ("nvidia.com/mofed", True),
        ("nvidia.com/gdrcopy", True),
        ("nvidia.com/nvswitch", False),
        ("nvidia.com/gpu-compute", False),
        ("k8s.gpu.nvidia.com/claim", False),
        ("example.com/hostroot", False),
        ("intel.com/gpu", False),
    ],
)
def test_a_rule_without_the_key_kinds_permits_the_kinds_that_variables_request(
    kind: str, source: str, *, is_permitted: bool
) -> None:
    assert policy().grant(POD).permits(source, kind) is is_permitted
    written = policy(allow=allowed(kinds=(kind,))).grant(POD)
    assert written.permits(source, kind) is (kind != "nvidia.com/nvswitch")


def test_a_rule_without_the_key_kinds_permits_the_configured_gpu_kinds() -> None:
    named = policy(gpu_kinds=(GpuKind(kind="nvidia.com/compute"),)).grant(POD)
    assert named.permits("annotation", "nvidia.com/compute")
    assert not named.permits("annotation", "nvidia.com/gpu")


def test_devices_of_claims_and_other_vendors_need_a_rule_with_their_kind() -> None:
    names = device_names([*DEVICES, "k8s.gpu.nvidia.com/claim=0b1c-gpu-0", "example.com/hostroot=all"])
    for device in ("k8s.gpu.nvidia.com/claim=0b1c-gpu-0", "example.com/hostroot=all"):
        assert outcome(pod_annotations={"devices.cdigen.dev": device}, names=names).cause == "not_permitted"
        assert outcome(f"NVIDIA_VISIBLE_DEVICES={device}", names=names).cause == "not_permitted"
        allow = allowed(kinds=(device.partition("=")[0],))
        assert devices(pod_annotations={"devices.cdigen.dev": device}, names=names, allow=allow) == (device,)


def test_profiles_are_the_default_gpu_kinds() -> None:
    compute = Profile(name="compute", device_class="gpu-compute", capabilities=("compute",), compat32=True)
    found = policy_of(Settings(profiles=(Profile(name="all", device_class="gpu"), compute))).gpu_kinds
    assert found == (
        GpuKind(kind="nvidia.com/gpu-compute", capabilities=("compute", "compat32")),
        GpuKind(kind="nvidia.com/gpu", capabilities=CAPABILITIES),
    )


def test_every_key_of_the_policy_is_read() -> None:
    text = """
nri:
  allow:
    - namespaces: [ml, "team-*"]
      runtime_handlers: [nvidia]
      labels: {example.com/gpus: "yes", team: "*"}
      privileged: true
      sources: [annotation, mounts]
      kinds: ["nvidia.com/gpu*", amd.com/gpu]
    - {namespaces: ["*"]}
  management_namespaces: [gpu-operator]
  management_kinds: [nvidia.com/management]
  annotations: [cdigen]
  default_action: refuse
  gpu_kinds: [{kind: nvidia.com/gpu}, {kind: nvidia.com/gpu-32, capabilities: [compute, compat32]}]
  image_requirements: off
  unsupported_cdi: raw
"""
    assert VALIDATOR.is_valid(yaml.safe_load(text))
    assert read(text).nri == NriConfig(
        allow=(
            AllowRule(
                namespaces=("ml", "team-*"),
                runtime_handlers=("nvidia",),
                labels=(("example.com/gpus", "yes"), ("team", "*")),
                privileged=True,
                sources=("annotation", "mounts"),
                kinds=("nvidia.com/gpu*", "amd.com/gpu"),
            ),
            AllowRule(namespaces=("*",)),
        ),
        management_namespaces=("gpu-operator",),
        management_kinds=("nvidia.com/management",),
        annotations=("cdigen",),
        default_action="refuse",
        gpu_kinds=(
            GpuKind(kind="nvidia.com/gpu"),
            GpuKind(kind="nvidia.com/gpu-32", capabilities=("compute", "compat32")),
        ),
        image_requirements="off",
        unsupported_cdi="raw",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nri: []", "nri must be a mapping"),
        ("nri: {allow: {}}", "nri: allow must be a list"),
        ("nri: {allow: [ml]}", "nri: allow must be a list of mappings"),
        ("nri:\n  allow:\n  - labels: {}", "c.yaml:3: nri: allow: the key 'namespaces' is missing"),
        ("nri: {allow: [{namespaces: []}]}", "namespaces must not be empty"),
        ("nri: {allow: [{namespaces: [Team]}]}", "namespaces must be a namespace"),
        ("nri: {allow: [{namespaces: ['*a']}]}", "namespaces must be a namespace"),
        ("nri: {allow: [{namespaces: [a], kinds: [gpu]}]}", "kinds must be a kind"),
        (
            "nri: {allow: [{namespaces: [a], sources: [image]}]}",
            "sources must be one of annotation, mounts, environment",
        ),
        ("nri: {allow: [{namespaces: [a], labels: {a: 1}}]}", "labels must be"),
        ("nri: {allow: [{namespaces: [a], labels: {a: b, a: c}}]}", "labels has 'a' twice"),
        ("nri: {allow: [{namespaces: [a], namespace: [b]}]}", "unknown key 'namespace'"),
        ("nri: {allow: [{namespaces: [a], privileged: 1}]}", "privileged must be true or false"),
        ("nri: {gpu_kinds: [{kind: nvidia.com/*}]}", "kind must be a kind"),
        ("nri: {gpu_kinds: [{kind: nvidia.com/gpu, capabilities: [all]}]}", "capabilities must be one of"),
        ("nri: {image_requirements: on}", "image_requirements must be one of enforce, warn, off"),
        ("nri: {unsupported_cdi: ignore}", "unsupported_cdi must be one of refuse, raw"),
        ("nri: {annotations: [gke]}", "annotations must be one of"),
    ],
)
def test_an_invalid_policy_is_reported_with_its_error(text: str, problem: str) -> None:
    assert problem in refusal(text)
    if "twice" not in problem:  # a mapping in Python cannot have a key twice
        assert not VALIDATOR.is_valid(yaml.safe_load(text))


WORDS = st.sampled_from(
    ["ml", "team-*", "*", "", "A", "a-", "nvidia.com/gpu", "nvidia.com/*", "x/y", "off", "a.b/c"]
)
NAMES = st.lists(WORDS, max_size=2)
ROWS = st.fixed_dictionaries(
    {"namespaces": NAMES},
    optional={
        "runtime_handlers": NAMES,
        "labels": st.dictionaries(WORDS, WORDS, max_size=2),
        "kinds": NAMES,
        "privileged": st.sampled_from([True, False, 1, "yes"]),
        "sources": st.lists(st.sampled_from(["annotation", "mounts", "environment", "x"]), max_size=2),
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "allow": st.lists(ROWS, max_size=2),
        "management_namespaces": NAMES,
        "management_kinds": NAMES,
        "annotations": st.lists(st.sampled_from(["cdigen", "nvidia", "x"]), max_size=2),
        "gpu_kinds": st.lists(st.fixed_dictionaries({"kind": WORDS}), max_size=2),
        "image_requirements": st.sampled_from(["enforce", "off", False, True, 0]),
        "unsupported_cdi": WORDS,
    },
)


@given(DOCUMENTS)
def test_code_and_schema_agree_on_every_policy(document: dict[str, object]) -> None:
    text = yaml.safe_dump({"nri": document})
    assert (refusal(text) == "") == VALIDATOR.is_valid({"nri": document}), refusal(text)


NAMESPACES = st.text("amlx-", max_size=3)


@given(NAMESPACES, st.lists(NAMESPACES | NAMESPACES.map("{}*".format), max_size=3))
def test_a_namespace_without_a_rule_gets_nothing(namespace: str, listed: list[str]) -> None:
    found = policy(allow=tuple(AllowRule(namespaces=(name,)) for name in listed))
    expected = any(
        namespace.startswith(name.removesuffix("*")) if name.endswith("*") else namespace == name
        for name in listed
    )
    assert found.grant(replace(POD, namespace=namespace)).permits_source("environment") is expected
    assert ALLOWED[0].namespaces == ("ml",)
