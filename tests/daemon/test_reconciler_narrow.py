"""`nri: {narrow: true}` and the daemon: the parts of the driver come and go with the key."""

import os

import pytest
from support.daemon.cycles import Looker
from support.daemon.host import Host, daemon

pytestmark = pytest.mark.usefixtures("real_nodes")

WHOLE = "nvidia.com-gpu.json"
ALL = ["nvidia.com-gpu-compute.json", "nvidia.com-gpu-graphics.json", WHOLE]


@pytest.fixture
def host(host: Host) -> Host:
    host.configure("nri: {narrow: true}\n")
    return host


def test_the_parts_come_with_the_whole_and_are_then_left_alone(host: Host) -> None:
    looker = Looker(host)
    assert [spec.result for spec in looker.look().report.specs] == ["written"] * 3
    assert sorted(os.listdir(host.specs)) == ALL
    report = looker.look().report
    assert (report.result, {spec.result for spec in report.specs}) == ("unchanged", {"unchanged"})


def test_the_parts_go_with_the_key_and_the_whole_stays_as_it_is(host: Host, looker: Looker) -> None:
    before = host.spec.stat()
    host.configure()
    report = looker.look().report
    assert {spec.kind: spec.result for spec in report.specs} == {
        "nvidia.com/gpu": "unchanged",
        "nvidia.com/gpu-compute": "withdrawn",
        "nvidia.com/gpu-graphics": "withdrawn",
    }
    assert os.listdir(host.specs) == [WHOLE]
    after = host.spec.stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_the_parts_go_with_the_driver(host: Host, looker: Looker) -> None:
    host.uninstall()
    host.unload()
    looker.look()
    assert os.listdir(host.specs) == []


@pytest.mark.process
def test_a_running_daemon_follows_the_key(host: Host) -> None:
    with daemon(host) as running:
        running.sees(lambda: sorted(os.listdir(host.specs)) == ALL)
        host.configure()
        running.sees(lambda: os.listdir(host.specs) == [WHOLE])
        host.configure("nri: {narrow: true}\n")
        running.sees(lambda: sorted(os.listdir(host.specs)) == ALL)
