"""The containers that engines report at real sockets, with valid, slow, endless and invalid responses."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.engine_double import LISTED, EngineDouble, answers, cdi, container
from support.waiting import PATIENCE_S, limited

from cdigen.device_users.engines import MAX_CONTAINERS, Engine

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
def test_the_devices_of_a_container_are_reported(
    docker: EngineDouble,
    engine: Engine,
    host: dict[str, Any],
    devices: tuple[str, ...],
    nodes: tuple[str, ...],
) -> None:
    docker.answers = answers(container("web", **host), container("other", "b"))
    report = engine.query()
    (one,) = report.containers
    assert (report.engine, one.name, one.devices, one.nodes) == ("Docker", "web", devices, nodes)
    assert one.since_s == 1_795_446_000
    assert (report.problem, report.has_failed) == ("", False)
    assert "hunter2" not in repr(vars(engine))


def test_podman_is_recognized_by_its_server_header(docker: EngineDouble, engine: Engine) -> None:
    docker.server = b"Libpod/4.3.1 (linux)"
    assert engine.query().engine == "podman"


def test_a_container_is_inspected_once_and_forgotten_when_it_is_gone(
    docker: EngineDouble, engine: Engine
) -> None:
    docker.answers = answers(container("web", **cdi(f"{GPU}=0")))
    assert [len(engine.query().containers) for _ in range(3)] == [1, 1, 1]
    assert [target == LISTED for target in docker.targets] == [True, False, True, True]
    docker.answers[LISTED] = []
    assert engine.query().containers == ()
    assert vars(engine)["_known"] == {}


@pytest.mark.parametrize(
    ("mode", "why", "deadline_s"),
    [
        ("hangs", "no response in time", 0.5),
        ("drips", "no response in time", 0.5),
        ("floods", "the response has more than 2 MiB", PATIENCE_S),
        ("garbage", "unexpected HTTP status", PATIENCE_S),
        ("refuses", "unexpected HTTP status: 'HTTP/1.0 500 Oops'", PATIENCE_S),
    ],
)
@limited(3)
def test_the_query_of_a_misbehaving_engine_ends_at_its_deadline(
    docker: EngineDouble, mode: str, why: str, deadline_s: float, within_s: float
) -> None:
    engine = Engine(str(docker.path), deadline_s=deadline_s)
    docker.mode = mode
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.monotonic()
    report = engine.query()
    assert time.monotonic() - begun < within_s
    assert report.has_failed
    assert report.problem.startswith(why)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


@pytest.mark.parametrize(
    "body",
    [
        {}, None, 5, [5], [{}], [{"Id": "../../images"}], [{"Id": "a b"}], [{"Id": 7}], [{"Id": "x" * 999}],
        [[[[]]]], "[]",
    ],
)  # fmt: skip
def test_an_invalid_list_is_reported_as_a_problem(docker: EngineDouble, engine: Engine, body: Any) -> None:
    docker.answers = {LISTED: body}
    assert engine.query().containers == ()
    assert engine.query().problem


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
def test_an_invalid_inspection_has_no_devices(docker: EngineDouble, engine: Engine, host: Any) -> None:
    docker.answers = answers(container("web"))
    docker.answers[f"/containers/{'a' * 64}/json"] = host
    report = engine.query()
    assert (report.containers, report.has_failed) == ((), False)


def test_only_the_first_containers_of_a_long_list_are_read(docker: EngineDouble, engine: Engine) -> None:
    rows = [{"Id": f"{n:064x}", "Names": ["/x" * 500]} for n in range(MAX_CONTAINERS + 9)]
    inspection = container("x", **cdi(*[f"{GPU}=0"] * 1000))
    docker.answers = {LISTED: rows} | {f"/containers/{row['Id']}/json": inspection for row in rows}
    report = Engine(vars(engine)["_path"], deadline_s=20).query()
    assert report.problem == "only 256 containers were read"
    assert len(report.containers) == MAX_CONTAINERS
    assert {(len(one.name), len(one.devices)) for one in report.containers} == {(200, 64)}


@pytest.mark.parametrize(
    ("young", "problem"),
    [
        (None, ""),
        (
            {"Config": "x" * (1 << 20)},
            "not all containers could be read: the response has more than 1 MiB",
        ),
    ],
)
def test_a_container_that_cannot_be_inspected_does_not_hide_other_containers(
    docker: EngineDouble, engine: Engine, young: Any, problem: str
) -> None:
    docker.answers = answers(container("young"), container("train", "b", **cdi(f"{GPU}=0")))
    path = f"/containers/{'a' * 64}/json"
    del docker.answers[path]
    if young is not None:
        docker.answers[path] = young
    report = engine.query()
    assert ([one.name for one in report.containers], report.problem) == (["train"], problem)


def test_a_missing_engine_is_reported(tmp_path: Path) -> None:
    report = Engine(str(tmp_path / "none")).query()
    assert report.has_failed
    assert report.problem == "cannot connect: No such file or directory"
    (tmp_path / "file").write_text("")
    assert "Connection refused" in Engine(str(tmp_path / "file")).query().problem
