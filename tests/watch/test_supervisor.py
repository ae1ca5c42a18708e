"""The supervisor restarts real sources that fail. The tests set its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.watching import TriggerRecorder, kill, kills_threads, thread_of, threads
from support.waiting import until

from cdigen.watch.files import FileSource
from cdigen.watch.poll import PollSource
from cdigen.watch.supervisor import CHECK_S, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cdigen.watch.supervisor import Source
    from cdigen.watch.triggers import Trigger


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Refusing:
    """A source that cannot start until the test permits it."""

    name = "refusing"

    def __init__(self) -> None:
        self.starts = 0
        self.can_start = False

    def start(self, _: Callable[[Trigger], None]) -> None:
        self.starts += 1
        if not self.can_start:
            raise OSError(28, "No space left on device")

    def stop(self) -> None:
        """Do nothing."""

    def problem(self) -> str:
        return ""


@pytest.fixture
def clock() -> Clock:
    """Return a clock that does not advance."""
    return Clock()


@pytest.fixture
def supervise(recorder: TriggerRecorder, clock: Clock) -> Iterator[Callable[..., Supervisor]]:
    """Return a function that starts a supervisor of sources. The supervisors are stopped after the test."""
    supervisors = []

    def begin(*sources: Source) -> Supervisor:
        supervisor = Supervisor(sources, recorder.queue, clock=clock)
        supervisors.append(supervisor)
        supervisor.start()
        return supervisor

    yield begin
    for supervisor in supervisors:
        supervisor.stop()


def test_healthy_sources_have_no_problem_and_are_checked_periodically(
    tmp_path: Path, clock: Clock, supervise: Callable[..., Supervisor]
) -> None:
    supervisor = supervise(FileSource((str(tmp_path),)), PollSource((str(tmp_path),)))
    assert supervisor.tick() == clock.now + CHECK_S
    assert supervisor.health() == {"files": "", "poll": ""}


@kills_threads
def test_a_source_whose_thread_ends_is_unhealthy_and_is_restarted_after_a_second(
    tmp_path: Path, recorder: TriggerRecorder, clock: Clock, supervise: Callable[..., Supervisor]
) -> None:
    supervisor = supervise(FileSource((str(tmp_path / "file"),)))
    kill(thread_of("files"))
    (tmp_path / "file").touch()
    assert recorder.receives("stopped unexpectedly")
    assert supervisor.health() == {"files": "the source's thread has ended: killed"}
    assert supervisor.tick() == clock.now + 1
    clock.now += 0.9
    supervisor.tick()
    # The killed thread ran for a moment after its last trigger. A restarted thread would not end.
    assert until(lambda: threads() == [])
    clock.now += 0.1
    supervisor.tick()
    assert recorder.receives("started again")
    assert supervisor.health() == {"files": ""}
    (tmp_path / "file").unlink()
    assert recorder.receives(f"{tmp_path}/file changed")


def test_each_failure_doubles_the_delay_up_to_a_minute(
    clock: Clock, supervise: Callable[..., Supervisor]
) -> None:
    source = Refusing()
    supervisor = supervise(source)
    assert supervisor.health() == {"refusing": "cannot start: No space left on device"}
    began = clock.now
    at: list[float] = []
    while len(at) < 8:
        clock.now += 1
        before = source.starts
        supervisor.tick()
        if source.starts != before:
            at.append(clock.now - began)
    assert at == [1, 3, 7, 15, 31, 63, 123, 183]


def test_a_source_that_could_not_start_puts_a_trigger_when_it_has_started(
    recorder: TriggerRecorder, clock: Clock, supervise: Callable[..., Supervisor]
) -> None:
    source = Refusing()
    supervisor = supervise(source)
    source.can_start = True
    clock.now += 1
    supervisor.tick()
    assert recorder.receives("started again")
    assert supervisor.health() == {"refusing": ""}


@kills_threads
def test_a_healthy_minute_resets_the_delay(
    recorder: TriggerRecorder, tmp_path: Path, clock: Clock, supervise: Callable[..., Supervisor]
) -> None:
    supervisor = supervise(PollSource((str(tmp_path),), 0.01))
    for wait_s, delay_s in ((0, 1), (1, 2), (59, 4), (61, 1)):
        clock.now += wait_s
        supervisor.tick()
        kill(thread_of("poll"))
        assert recorder.receives("stopped unexpectedly")
        assert supervisor.tick() == clock.now + delay_s
        clock.now += delay_s
        supervisor.tick()
        recorder.clear()


def test_other_sources_work_while_one_source_fails(
    tmp_path: Path, recorder: TriggerRecorder, supervise: Callable[..., Supervisor]
) -> None:
    supervise(Refusing(), FileSource((str(tmp_path / "file"),)))
    (tmp_path / "file").touch()
    assert recorder.receives(f"{tmp_path}/file changed")


def test_a_source_that_is_added_later_is_also_supervised(
    supervise: Callable[..., Supervisor], clock: Clock
) -> None:
    supervisor, source = supervise(), Refusing()
    supervisor.add(source)
    assert "cannot start: No space left" in supervisor.health()["refusing"]
    clock.now += 1
    source.can_start = True
    supervisor.tick()
    assert (source.starts, supervisor.health()) == (2, {"refusing": ""})


def test_no_thread_runs_after_the_stop(tmp_path: Path, supervise: Callable[..., Supervisor]) -> None:
    supervise(FileSource((str(tmp_path),)), PollSource((str(tmp_path),))).stop()
    assert until(lambda: threads() == [])
