"""Device requests in annotations of a pod."""

from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.nri.host import devices, outcome

from cdigen.nri.decision.request.annotations import PREFIXES
from cdigen.nri.decision.request.refusal import REFUSAL_CAUSES

GPU = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OWN = "devices.cdigen.dev"


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
def test_annotations_contain_qualified_device_names(prefix: str, end: str, value: str) -> None:
    assert devices(pod_annotations={f"{prefix}{end}": value}) == (f"{GPU}=0", "nvidia.com/gds=all")


def test_only_the_most_specific_annotation_applies() -> None:
    asked = {OWN: f"{GPU}=0", f"{OWN}/pod": f"{GPU}=1:0", f"{OWN}/container.other": f"{GPU}=all"}
    assert devices(pod_annotations=asked) == (f"{GPU}=1:0",)


def test_annotations_with_different_prefixes_are_combined() -> None:
    asked = {"nvidia.cdi.k8s.io/pod": f"{GPU}=0", OWN: f"{GPU}=1:0,{GPU}=0"}
    assert devices(pod_annotations=asked) == (f"{GPU}=1:0", f"{GPU}=0")


def test_an_annotation_is_ignored_if_the_policy_does_not_list_its_prefix() -> None:
    assert devices(pod_annotations={"nvidia.cdi.k8s.io": f"{GPU}=0"}, annotations=("cdigen",)) == ()


def test_an_annotation_overrides_the_environment_even_if_the_annotation_is_empty() -> None:
    assert devices(f"{VISIBLE}=all", pod_annotations={OWN: f"{GPU}=0"}) == (f"{GPU}=0",)
    assert devices(f"{VISIBLE}=all", pod_annotations={OWN: ""}) == ()


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
    start_s = process_time()
    decision = outcome(pod_annotations={prefix: value})
    assert process_time() - start_s < 0.5
    assert (decision.outcome, decision.cause) == ("refuse", "annotation")
    assert decision.reason.isprintable()
    assert len(decision.reason) < 300


TEXTS = st.text(max_size=40) | st.sampled_from(["0", "all", "[]", "- a", "a,b", "nvidia.com/gpu=0"])


@given(TEXTS, st.sampled_from(sorted(prefix for row in PREFIXES.values() for prefix in row)))
@example("\ud800", OWN)
@example("!!python/object/apply:os.system [true]", OWN)
def test_any_annotation_is_accepted_or_refused(value: str, prefix: str) -> None:
    decision = outcome(pod_annotations={prefix: value})
    assert decision.outcome in {"nothing", "inject"} or decision.cause in REFUSAL_CAUSES
