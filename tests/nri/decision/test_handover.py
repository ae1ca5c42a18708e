"""Containers that another cdigen gives their devices: what tells that, and who can write it."""

from __future__ import annotations

import pytest
from support.nri.host import POD, container

from cdigen.nri.book import MAX_DEVICES
from cdigen.nri.decision.answer import MARK
from cdigen.nri.decision.handover import SEAL, earlier, new_instance, others, seal
from cdigen.nri.pods import Adjustment, Container
from cdigen.value import replace

GPU = "nvidia.com/gpu=0"
OURS, THEIRS = "1" * 16, "2" * 16
ASKS = replace(container("NVIDIA_VISIBLE_DEVICES=0"), id="c1")


def marked(*, by: str | None, mark: str = GPU, of: str = "c1") -> Container:
    """Return the container as a plugin sees it behind another one, BY which it was given MARK."""
    sealed = {} if by is None else {SEAL: seal(replace(ASKS, id=of), by)}
    return replace(ASKS, annotations={MARK: mark, **sealed})


@pytest.mark.parametrize("trusts_mark", [False, True])
def test_what_another_has_given_is_told_by_the_id_of_the_container(*, trusts_mark: bool) -> None:
    both = f"{GPU},nvidia.com/gpu=1"
    assert earlier(POD, marked(by=THEIRS), trusts_mark=trusts_mark) == (GPU,)
    assert earlier(POD, marked(by=THEIRS, mark=both), trusts_mark=trusts_mark) == tuple(both.split(","))
    assert earlier(POD, ASKS, trusts_mark=trusts_mark) is None


@pytest.mark.parametrize("trusts_mark", [False, True])
def test_the_marks_of_another_container_count_for_nothing(*, trusts_mark: bool) -> None:
    """They come from a checkpoint, or from a pod whose annotations the runtime passes on."""
    copied = marked(by=THEIRS, of="c0")
    assert earlier(POD, copied, trusts_mark=trusts_mark) is None
    for sealed in ("", "/", f"/{THEIRS}", "c1x/1", " c1/1", "c"):
        forged = replace(ASKS, annotations={MARK: GPU, SEAL: sealed})
        assert earlier(POD, forged, trusts_mark=trusts_mark) is None
    nameless = replace(ASKS, id="", annotations={MARK: GPU, SEAL: f"/{THEIRS}"})
    assert earlier(POD, nameless, trusts_mark=trusts_mark) is None


def test_of_a_mark_as_long_as_a_message_little_is_kept() -> None:
    longest = marked(by=None, mark="," * (4 << 20))
    assert len(earlier(POD, longest, trusts_mark=True) or ()) <= MAX_DEVICES


def test_a_seal_without_a_mark_says_nothing() -> None:
    alone = replace(ASKS, annotations={SEAL: seal(ASKS, THEIRS)})
    assert earlier(POD, alone, trusts_mark=True) is None
    assert others(ASKS, Adjustment(annotations=alone.annotations), instance=OURS, trusts_mark=True) is None


def test_a_mark_without_a_seal_is_an_older_versions_unless_it_may_be_the_pods() -> None:
    older = marked(by=None)
    assert earlier(POD, older, trusts_mark=True) == (GPU,)
    assert earlier(POD, older, trusts_mark=False) is None
    assert earlier(replace(POD, annotations={MARK: GPU}), older, trusts_mark=True) is None
    assert earlier(replace(POD, annotations={MARK: "x"}), older, trusts_mark=True) is None


def test_a_validator_tells_its_own_part_from_that_of_another() -> None:
    made = Adjustment(annotations=marked(by=THEIRS).annotations, cdi_devices=(GPU,))
    assert others(ASKS, made, instance=OURS, trusts_mark=False) == (GPU,)
    assert others(ASKS, made, instance=THEIRS, trusts_mark=True) is None
    stale = replace(made, annotations=marked(by=THEIRS, of="c0").annotations)
    assert others(ASKS, stale, instance=OURS, trusts_mark=True) is None
    older = replace(made, annotations={MARK: GPU})
    assert others(ASKS, older, instance=OURS, trusts_mark=True) == (GPU,)
    assert others(ASKS, older, instance=OURS, trusts_mark=False) is None
    assert others(ASKS, Adjustment(), instance=OURS, trusts_mark=True) is None


def test_no_two_processes_are_called_alike() -> None:
    assert len({new_instance() for _ in range(100)}) == 100
