"""What engines tell of their containers, at real sockets: honest, slow, endless and lying ones."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.engine_double import LISTED, EngineDouble, answers, cdi, container
from support.waiting import PATIENCE_S, limited

from cdigen.holders.engines import MAX_CONTAINERS, Engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GPU = "nvidia.com/gpu"


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[EngineDouble]:
    made = EngineDouble(tmp_path / "s")
    yield made
    made.close()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(str(tmp_path / "s"), deadline_s=PATIENCE_S)


@pytest.mark.parametrize(
    ("host", "devices", "nodes"),
    [
        (cdi(f"{GPU}=0", f"{GPU}=1"), (f"{GPU}=0", f"{GPU}=1"), ()),
        ({"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["GPU-7"]}]}, (f"{GPU}=GPU-7",), ()),
        ({"DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None}]}, (f"{GPU}=all",), ()),
        ({"DeviceRequests": [{"Driver": "", "Count": 2}]}, (f"{GPU}=0", f"{GPU}=1"), ()),
        ({"Devices": [{"PathOnHost": "/dev/nvidia0"}]}, (), ("/dev/nvidia0",)),
        ({"Devices": [{"PathOnHost": f"{GPU}=0"}]}, (f"{GPU}=0",), ()),
    ],
)
def test_what_a_container_has_is_told(
    docker: EngineDouble,
    engine: Engine,
    host: dict[str, Any],
    devices: tuple[str, ...],
    nodes: tuple[str, ...],
) -> None:
    docker.answers = answers(container("web", **host), container("other", "b"))
    told = engine.ask()
    (one,) = told.containers
    assert (told.engine, one.name, one.devices, one.nodes) == ("Docker", "web", devices, nodes)
    assert one.since_s == 1_795_446_000
    assert (told.problem, told.is_silent) == ("", False)
    assert "hunter2" not in repr(vars(engine))


def test_podman_is_known_by_its_own_word(docker: EngineDouble, engine: Engine) -> None:
    docker.server = b"Libpod/4.3.1 (linux)"
    assert engine.ask().engine == "podman"


def test_a_container_is_inspected_once_and_forgotten_when_it_is_gone(
    docker: EngineDouble, engine: Engine
) -> None:
    docker.answers = answers(container("web", **cdi(f"{GPU}=0")))
    assert [len(engine.ask().containers) for _ in range(3)] == [1, 1, 1]
    assert [target == LISTED for target in docker.asked] == [True, False, True, True]
    docker.answers[LISTED] = []
    assert engine.ask().containers == ()
    assert vars(engine)["_known"] == {}


@pytest.mark.parametrize(
    ("mode", "why", "deadline_s"),
    [
        ("hangs", "no answer in time", 0.5),
        ("drips", "no answer in time", 0.5),
        ("floods", "its answer has more than 2 MiB", PATIENCE_S),
        ("garbage", "it answers", PATIENCE_S),
        ("refuses", "it answers 'HTTP/1.0 500 Oops'", PATIENCE_S),
    ],
)
@limited(3)
def test_an_engine_that_misbehaves_costs_its_deadline_at_most(
    docker: EngineDouble, mode: str, why: str, deadline_s: float, within_s: float
) -> None:
    engine = Engine(str(docker.path), deadline_s=deadline_s)
    docker.mode = mode
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.monotonic()
    told = engine.ask()
    assert time.monotonic() - begun < within_s
    assert told.is_silent
    assert told.problem.startswith(why)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


@pytest.mark.parametrize(
    "body",
    [
        {}, None, 5, [5], [{}], [{"Id": "../../images"}], [{"Id": "a b"}], [{"Id": 7}], [{"Id": "x" * 999}],
        [[[[]]]], "[]",
    ],
)  # fmt: skip
def test_a_list_of_anything_is_no_trouble(docker: EngineDouble, engine: Engine, body: Any) -> None:
    docker.answers = {LISTED: body}
    assert engine.ask().containers == ()
    assert engine.ask().problem


@pytest.mark.parametrize(
    "host",
    [
        {"HostConfig": 5},
        {"HostConfig": {"DeviceRequests": {"a": 1}, "Devices": "x"}},
        {
            "HostConfig": {
                "DeviceRequests": [1, {"Driver": "cdi", "DeviceIDs": [{}, 5]}],
                "Devices": [None, {}],
            }
        },
        {"HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": 5}]}},
        {"HostConfig": {"DeviceRequests": [{"Driver": [], "DeviceIDs": ["0"]}]}},
        {"HostConfig": {"DeviceRequests": [{"Driver": "", "Count": "2", "DeviceIDs": {"0": 1}}]}},
        [],
        None,
    ],
)
def test_an_inspection_of_anything_has_no_devices(docker: EngineDouble, engine: Engine, host: Any) -> None:
    docker.answers = answers(container("web"))
    docker.answers[f"/containers/{'a' * 64}/json"] = host
    told = engine.ask()
    assert (told.containers, told.is_silent) == ((), False)


def test_of_a_list_without_end_the_first_are_looked_at(docker: EngineDouble, engine: Engine) -> None:
    rows = [{"Id": f"{n:064x}", "Names": ["/x" * 500]} for n in range(MAX_CONTAINERS + 9)]
    inspection = container("x", **cdi(*[f"{GPU}=0"] * 1000))
    docker.answers = {LISTED: rows} | {f"/containers/{row['Id']}/json": inspection for row in rows}
    told = Engine(vars(engine)["_path"], deadline_s=20).ask()
    assert told.problem == "only 256 containers were looked at"
    assert len(told.containers) == MAX_CONTAINERS
    assert {(len(one.name), len(one.devices)) for one in told.containers} == {(200, 64)}


@pytest.mark.parametrize(
    ("young", "problem"),
    [
        (None, ""),
        (
            {"Config": "x" * (1 << 20)},
            "not all containers could be looked at: its answer has more than 1 MiB",
        ),
    ],
)
def test_a_container_that_cannot_be_inspected_hides_no_other(
    docker: EngineDouble, engine: Engine, young: Any, problem: str
) -> None:
    docker.answers = answers(container("young"), container("train", "b", **cdi(f"{GPU}=0")))
    path = f"/containers/{'a' * 64}/json"
    del docker.answers[path]
    if young is not None:
        docker.answers[path] = young
    told = engine.ask()
    assert ([one.name for one in told.containers], told.problem) == (["train"], problem)


def test_nobody_there_is_said(tmp_path: Path) -> None:
    told = Engine(str(tmp_path / "none")).ask()
    assert told.is_silent
    assert told.problem == "cannot ask it: No such file or directory"
    (tmp_path / "file").write_text("")
    assert "Connection refused" in Engine(str(tmp_path / "file")).ask().problem
