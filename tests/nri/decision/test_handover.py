"""Markers of containers that another instance of cdigen injected, and forged markers."""

from __future__ import annotations

from support.nri.host import container

from cdigen.nri.decision.result.handover import (
    INJECTED_INTO_ANNOTATION,
    by_other_instance,
    injected_into,
    new_instance,
    verified_markers,
)
from cdigen.nri.decision.result.injection import INJECTED_ANNOTATION
from cdigen.nri.injected_containers import MAX_DEVICES
from cdigen.nri.pods import Adjustment, Container
from cdigen.value import replace

GPU = "nvidia.com/gpu=0"
OWN, OTHER = "1" * 16, "2" * 16
REQUESTING = replace(container("NVIDIA_VISIBLE_DEVICES=0"), id="c1")


def marked(*, by: str | None, marker: str = GPU, of: str = "c1") -> Container:
    """Return a container with MARKER. Its injected-into annotation names the container OF and instance BY."""
    target = {} if by is None else {INJECTED_INTO_ANNOTATION: injected_into(replace(REQUESTING, id=of), by)}
    return replace(REQUESTING, annotations={INJECTED_ANNOTATION: marker, **target})


def test_a_marker_is_verified_by_the_id_of_the_container() -> None:
    both = f"{GPU},nvidia.com/gpu=1"
    assert verified_markers(marked(by=OTHER)) == (GPU,)
    assert verified_markers(marked(by=OTHER, marker=both)) == tuple(both.split(","))
    assert verified_markers(REQUESTING) is None


def test_a_marker_of_another_container_is_invalid() -> None:
    """Such a marker comes from a checkpoint, or from a pod's annotations that the runtime copies."""
    assert verified_markers(marked(by=OTHER, of="c0")) is None
    for target in ("", "/", f"/{OTHER}", "c1x/1", " c1/1", "c"):
        forged = replace(REQUESTING, annotations={INJECTED_ANNOTATION: GPU, INJECTED_INTO_ANNOTATION: target})
        assert verified_markers(forged) is None
    nameless = replace(
        REQUESTING, id="", annotations={INJECTED_ANNOTATION: GPU, INJECTED_INTO_ANNOTATION: f"/{OTHER}"}
    )
    assert verified_markers(nameless) is None


def test_a_marker_without_an_injected_into_annotation_is_invalid() -> None:
    assert verified_markers(marked(by=None)) is None


def test_a_huge_marker_is_cut() -> None:
    longest = marked(by=OTHER, marker="," * (4 << 20))
    assert 0 < len(verified_markers(longest) or ()) <= MAX_DEVICES


def test_an_injected_into_annotation_without_a_marker_is_ignored() -> None:
    alone = replace(REQUESTING, annotations={INJECTED_INTO_ANNOTATION: injected_into(REQUESTING, OTHER)})
    assert verified_markers(alone) is None
    adjustment = Adjustment(annotations=alone.annotations)
    assert by_other_instance(REQUESTING, adjustment, instance=OWN) is None


def test_a_validator_distinguishes_its_own_changes_from_changes_of_another_instance() -> None:
    made = Adjustment(annotations=marked(by=OTHER).annotations, cdi_devices=(GPU,))
    assert by_other_instance(REQUESTING, made, instance=OWN) == (GPU,)
    assert by_other_instance(REQUESTING, made, instance=OTHER) is None
    stale = replace(made, annotations=marked(by=OTHER, of="c0").annotations)
    assert by_other_instance(REQUESTING, stale, instance=OWN) is None
    unbound = replace(made, annotations={INJECTED_ANNOTATION: GPU})
    assert by_other_instance(REQUESTING, unbound, instance=OWN) is None
    assert by_other_instance(REQUESTING, Adjustment(), instance=OWN) is None


def test_each_process_has_its_own_instance_name() -> None:
    assert len({new_instance() for _ in range(100)}) == 100
