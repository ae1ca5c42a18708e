"""A link that has ended or hangs is a problem of the process."""

from __future__ import annotations

from cdigen.service.liveness import Liveness


def test_a_link_without_beats_hangs_and_an_ended_link_is_a_problem() -> None:
    now_s = 100.0
    link = Liveness("the runtime", clock=lambda: now_s)
    assert link.problem(is_running=True) == ""
    assert link.problem(is_running=False) == "the thread that serves the runtime has ended"
    now_s += 31
    assert link.problem(is_running=True) == "the runtime has not been served for 31 s"
    link.beat()
    assert link.problem(is_running=True) == ""
