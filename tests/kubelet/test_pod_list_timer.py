"""PodListTimer has the time of the next request for the kubelet's list of pods."""

import pytest

from cdigen.kubelet.allocation.kubelet_view import PODS_S, PodListTimer


def test_without_an_allocation_a_request_is_due_at_a_fixed_interval() -> None:
    timer = PodListTimer()

    assert timer.is_due(100.0)
    assert timer.due_s == 100.0 + PODS_S
    assert not timer.is_due(100.0 + PODS_S - 1)
    assert timer.is_due(100.0 + PODS_S)


def test_only_the_first_allocation_after_a_request_wakes_the_main_thread() -> None:
    timer = PodListTimer()
    timer.is_due(100.0)

    assert timer.allocated()
    assert not timer.allocated()
    timer.is_due(110.0)
    timer.is_due(111.0)
    assert timer.allocated()


def test_after_an_allocation_the_pods_are_requested_soon_and_once_more() -> None:
    timer = PodListTimer()
    timer.is_due(100.0)
    timer.allocated()

    assert not timer.is_due(110.0)
    assert 110.0 < timer.due_s < 111.0
    assert timer.is_due(timer.due_s)
    again_s = timer.due_s
    assert 111.0 < again_s < 120.0
    assert timer.is_due(again_s)
    assert timer.due_s == again_s + PODS_S


def test_no_request_is_due_during_an_allocation() -> None:
    timer = PodListTimer()
    timer.is_due(100.0)
    timer.allocated()
    assert not timer.is_due(110.0, 110.0)
    # The kubelet requests devices for further containers.
    assert not timer.is_due(110.7, 110.69)
    assert timer.due_s == pytest.approx(110.79)
    assert timer.is_due(110.8, 110.69)


def test_a_request_is_due_although_allocations_follow_each_other_without_a_pause() -> None:
    timer = PodListTimer()
    timer.is_due(100.0)
    timer.allocated()
    due_s = [at_s for tenths in range(100) if timer.is_due(at_s := 110.0 + tenths / 10, at_s)]
    assert due_s[0] == pytest.approx(115.7, abs=0.2)


def test_claims_change_without_allocations_and_shorten_the_interval() -> None:
    timer = PodListTimer()
    assert timer.is_due(100.0, has_claims=True)
    assert not timer.is_due(104.9, has_claims=True)
    assert timer.is_due(105.0, has_claims=True)
