"""The supervisor, with real sources that are really broken; only its clock is set by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.watching import Ear, kill, kills_threads, thread_of, threads
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
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Refusing:
    """A source that cannot start, until it is told that it can."""

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
    """Return a clock that stands still."""
    return Clock()


@pytest.fixture
def supervise(ear: Ear, clock: Clock) -> Iterator[Callable[..., Supervisor]]:
    """Return a function that starts a supervisor of sources, which is stopped in the end."""
    supervisors = []

    def begin(*sources: Source) -> Supervisor:
        supervisor = Supervisor(sources, ear.inbox, clock=clock)
        supervisors.append(supervisor)
        supervisor.start()
        return supervisor

    yield begin
    for supervisor in supervisors:
        supervisor.stop()


def test_healthy_sources_have_no_problem_and_are_asked_now_and_then(
    tmp_path: Path, clock: Clock, supervise: Callable[..., Supervisor]
) -> None:
    supervisor = supervise(FileSource((str(tmp_path),)), PollSource((str(tmp_path),)))
    assert supervisor.tick() == clock.now + CHECK_S
    assert supervisor.health() == {"files": "", "poll": ""}


@kills_threads
def test_a_source_that_dies_is_unhealthy_and_is_started_again_after_a_second(
    tmp_path: Path, ear: Ear, clock: Clock, supervise: Callable[..., Supervisor]
) -> None:
    supervisor = supervise(FileSource((str(tmp_path / "file"),)))
    kill(thread_of("files"))
    (tmp_path / "file").touch()
    assert ear.hears("stopped by itself")
    assert supervisor.health() == {"files": "its thread has ended: killed"}
    assert supervisor.tick() == clock.now + 1
    clock.now += 0.9
    supervisor.tick()
    # The dead one was alive for a moment after its last word; one that was started again would stay.
    assert until(lambda: threads() == [])
    clock.now += 0.1
    supervisor.tick()
    assert ear.hears("started again")
    assert supervisor.health() == {"files": ""}
    (tmp_path / "file").unlink()
    assert ear.hears(f"{tmp_path}/file changed")


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


def test_a_source_that_could_not_start_tells_when_it_can(
    ear: Ear, clock: Clock, supervise: Callable[..., Supervisor]
) -> None:
    source = Refusing()
    supervisor = supervise(source)
    source.can_start = True
    clock.now += 1
    supervisor.tick()
    assert ear.hears("started again")
    assert supervisor.health() == {"refusing": ""}


@kills_threads
def test_a_minute_of_health_makes_the_next_delay_short_again(
    ear: Ear, tmp_path: Path, clock: Clock, supervise: Callable[..., Supervisor]
) -> None:
    supervisor = supervise(PollSource((str(tmp_path),), 0.01))
    for wait_s, delay_s in ((0, 1), (1, 2), (59, 4), (61, 1)):
        clock.now += wait_s
        supervisor.tick()
        kill(thread_of("poll"))
        assert ear.hears("stopped by itself")
        assert supervisor.tick() == clock.now + delay_s
        clock.now += delay_s
        supervisor.tick()
        ear.forget()


def test_the_others_go_on_while_one_is_broken(
    tmp_path: Path, ear: Ear, supervise: Callable[..., Supervisor]
) -> None:
    supervise(Refusing(), FileSource((str(tmp_path / "file"),)))
    (tmp_path / "file").touch()
    assert ear.hears(f"{tmp_path}/file changed")


def test_a_source_that_is_added_later_is_watched_as_the_others_are(
    supervise: Callable[..., Supervisor], clock: Clock
) -> None:
    supervisor, source = supervise(), Refusing()
    supervisor.add(source)
    assert "cannot start: No space left" in supervisor.health()["refusing"]
    clock.now += 1
    source.can_start = True
    supervisor.tick()
    assert (source.starts, supervisor.health()) == (2, {"refusing": ""})


def test_nothing_runs_after_the_stop(tmp_path: Path, supervise: Callable[..., Supervisor]) -> None:
    supervise(FileSource((str(tmp_path),)), PollSource((str(tmp_path),))).stop()
    assert until(lambda: threads() == [])
