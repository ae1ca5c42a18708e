"""PodListTimer has the time of the next request for the kubelet's list of pods."""

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
