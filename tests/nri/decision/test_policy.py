"""Which requests count, and how the configuration says so."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.config_text import VALIDATOR, read, refusal
from support.nri.host import ALLOWED, DEVICES, POD, allowed, container, devices, listing, outcome, policy

from cdigen.config import AllowRule, GpuKind, NriConfig, Settings
from cdigen.model.profile import CAPABILITIES, Profile
from cdigen.nri.decision.policy import needs_decision, policy_of
from cdigen.nri.decision.select import DeviceNames
from cdigen.nri.pods import Container
from cdigen.value import replace

ALL = "NVIDIA_VISIBLE_DEVICES=all"
OWN = {"devices.cdigen.dev": "nvidia.com/gpu=0"}
ELSEWHERE = replace(POD, namespace="other")


def test_by_default_nothing_counts_anywhere() -> None:
    for decision in (outcome(ALL, allow=()), outcome(asked=OWN, allow=())):
        assert (decision.outcome, decision.devices) == ("nothing", ())
        assert [note.cause for note in decision.notes] == ["not_counted"]


def test_nothing_counts_outside_the_namespaces_that_are_listed() -> None:
    assert devices(ALL) == ("nvidia.com/gpu=all",)
    assert devices(ALL, pod=ELSEWHERE) == ()
    assert devices(asked=OWN, pod=ELSEWHERE) == ()


def test_annotations_where_they_do_not_count_can_be_refused() -> None:
    decision = outcome(asked=OWN, pod=ELSEWHERE, default_action="refuse")
    assert (decision.outcome, decision.cause) == ("refuse", "default_action")
    assert "'other'" in decision.reason
    assert outcome(ALL, pod=ELSEWHERE, default_action="refuse").outcome == "nothing"


@pytest.mark.parametrize("empty", ["", " ", ","])
def test_an_empty_annotation_takes_the_environment_back_and_that_is_said(empty: str) -> None:
    decision = outcome(ALL, asked={"devices.cdigen.dev": empty})
    assert (decision.outcome, decision.devices) == ("nothing", ())
    (note,) = decision.notes
    assert note.cause == "overruled"
    assert "devices.cdigen.dev is empty" in note.text


@pytest.mark.parametrize("visible", ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=", "HOME=/"])
def test_an_empty_annotation_above_nothing_is_nothing_to_say(visible: str) -> None:
    assert outcome(visible, asked={"devices.cdigen.dev": ""}).notes == ()


@pytest.mark.parametrize(
    ("pattern", "counts"),
    [("ml", True), ("m", False), ("m*", True), ("ml*", True), ("*", True), ("l*", False)],
)
def test_a_namespace_is_named_or_how_it_begins(pattern: str, *, counts: bool) -> None:
    assert policy(allow=(AllowRule(namespaces=(pattern,)),)).grant(POD).counts("environment") is counts


@pytest.mark.parametrize(
    ("row", "counts"),
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
def test_a_container_has_to_fit_in_every_respect(row: dict[str, Any], *, counts: bool) -> None:
    assert bool(devices(ALL, allow=allowed(**row))) is counts


PRIVILEGED = replace(container(), may_use_all_devices=True)
# As accept-nvidia-visible-devices-as-volume-mounts, and not -envvar-when-unprivileged, of NVIDIA's runtime.
AS_BY_NVIDIA = (
    AllowRule(namespaces=("*",), sources=("mounts",)),
    AllowRule(namespaces=("*",), sources=("environment",), privileged=True),
)


def test_an_empty_runtime_handler_is_a_pod_without_a_runtime_class() -> None:
    rows = policy(allow=allowed(runtime_handlers=("",)))
    assert rows.grant(replace(POD, runtime_handler="")).counts("environment")


@pytest.mark.parametrize(
    ("here", "gpu"),
    [
        (container(), ""),
        (listing("0"), "0"),
        (PRIVILEGED, "all"),
        (replace(listing("0"), may_use_all_devices=True), "0"),
    ],
)
def test_the_environment_can_count_for_privileged_containers_alone(here: Container, gpu: str) -> None:
    found = devices(ALL, here=here, allow=AS_BY_NVIDIA)
    assert found == ((f"nvidia.com/gpu={gpu}",) if gpu else ())
    given = replace(here, env=(ALL,))
    assert needs_decision(POD, given, policy(allow=AS_BY_NVIDIA)) is bool(gpu)


def test_what_counts_for_privileged_containers_alone_may_count_for_a_pod() -> None:
    assert policy(allow=AS_BY_NVIDIA).grant(POD).counts("environment")
    assert not policy(allow=AS_BY_NVIDIA).grant(POD, container()).counts("environment")


def test_sources_count_one_by_one() -> None:
    allow = allowed("environment")
    assert devices(ALL, asked=OWN, allow=allow) == ("nvidia.com/gpu=all",)
    assert devices(asked=OWN, allow=allow) == ()


@pytest.mark.parametrize(
    "kind",
    ["nvidia.com/management", "nvidia.com/mig", "nvidia.com/nvswitch", "management.nvidia.com/gpu"],
)
@pytest.mark.parametrize("source", ["annotation", "environment"])
def test_kinds_for_administrators_count_only_in_their_own_namespaces(kind: str, source: str) -> None:
    allow = (AllowRule(namespaces=("*",), kinds=("*", kind)),)
    assert not policy(allow=allow).grant(POD).permits(source, kind)
    assert policy(allow=(), management_namespaces=("ml",)).grant(POD).permits(source, kind)
    assert not policy(allow=(), management_namespaces=("ml",)).grant(POD).permits(source, "nvidia.com/gpu")


def test_a_kind_that_is_named_and_not_allowed_is_refused() -> None:
    asked = "NVIDIA_VISIBLE_DEVICES=nvidia.com/management=all"
    for decision in (
        outcome(asked={"devices.cdigen.dev": "nvidia.com/gpu=0,nvidia.com/management=all"}),
        outcome(asked={"nvidia.cdi.k8s.io/pod": "nvidia.com/management=all"}),
        outcome(asked),
    ):
        assert (decision.outcome, decision.cause) == ("refuse", "not_permitted"), decision
        assert "nvidia.com/management" in decision.reason
    assert devices(asked, management_namespaces=("ml",)) == ("nvidia.com/management=all",)


@pytest.mark.parametrize("source", ["annotation", "environment"])
@pytest.mark.parametrize(
    ("kind", "counts"),
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
def test_without_kinds_of_its_own_a_row_allows_what_variables_can_name(
    kind: str, source: str, *, counts: bool
) -> None:
    assert policy().grant(POD).permits(source, kind) is counts
    written = policy(allow=allowed(kinds=(kind,))).grant(POD)
    assert written.permits(source, kind) is (kind != "nvidia.com/nvswitch")


def test_without_kinds_of_its_own_a_row_allows_the_kinds_of_gpus_that_are_configured() -> None:
    named = policy(gpu_kinds=(GpuKind(kind="nvidia.com/compute"),)).grant(POD)
    assert named.permits("annotation", "nvidia.com/compute")
    assert not named.permits("annotation", "nvidia.com/gpu")


def test_devices_of_other_pods_and_vendors_have_to_be_allowed_by_name() -> None:
    names = DeviceNames([*DEVICES, "k8s.gpu.nvidia.com/claim=0b1c-gpu-0", "example.com/hostroot=all"])
    for device in ("k8s.gpu.nvidia.com/claim=0b1c-gpu-0", "example.com/hostroot=all"):
        assert outcome(asked={"devices.cdigen.dev": device}, names=names).cause == "not_permitted"
        assert outcome(f"NVIDIA_VISIBLE_DEVICES={device}", names=names).cause == "not_permitted"
        allow = allowed(kinds=(device.partition("=")[0],))
        assert devices(asked={"devices.cdigen.dev": device}, names=names, allow=allow) == (device,)


def test_profiles_are_the_kinds_of_gpus_where_none_are_named() -> None:
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
  require: off
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
        require="off",
        unsupported_cdi="raw",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nri: []", "nri must be a mapping"),
        ("nri: {allow: {}}", "nri: allow must be a list"),
        ("nri: {allow: [ml]}", "nri: allow: must be a list of mappings"),
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
        ("nri: {require: on}", "require must be one of enforce, warn, off"),
        ("nri: {unsupported_cdi: ignore}", "unsupported_cdi must be one of refuse, raw"),
        ("nri: {annotations: [gke]}", "annotations must be one of"),
    ],
)
def test_what_is_wrong_with_the_policy_is_named(text: str, problem: str) -> None:
    assert problem in refusal(text)
    if "twice" not in problem:  # a mapping in Python has no key twice
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
        "require": st.sampled_from(["enforce", "off", False, True, 0]),
        "unsupported_cdi": WORDS,
    },
)


@given(DOCUMENTS)
def test_code_and_schema_agree_on_every_policy(document: dict[str, object]) -> None:
    text = yaml.safe_dump({"nri": document})
    assert (refusal(text) == "") == VALIDATOR.is_valid({"nri": document}), refusal(text)


NAMESPACES = st.text("amlx-", max_size=3)


@given(NAMESPACES, st.lists(NAMESPACES | NAMESPACES.map("{}*".format), max_size=3))
def test_who_is_not_listed_gets_nothing(namespace: str, listed: list[str]) -> None:
    found = policy(allow=tuple(AllowRule(namespaces=(name,)) for name in listed))
    expected = any(
        namespace.startswith(name.removesuffix("*")) if name.endswith("*") else namespace == name
        for name in listed
    )
    assert found.grant(replace(POD, namespace=namespace)).counts("environment") is expected
    assert ALLOWED[0].namespaces == ("ml",)
