"""The health of the devices of a real daemon, as the commands and the log show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.host import Host, daemon
from support.daemon.kernel_records import xid
from support.hosts.nvidia_kernel import example_gpus

if TYPE_CHECKING:
    from support.command.fixtures import Run
    from support.daemon.kernel_records import FakeLog

Json = Callable[..., Any]
pytestmark = [pytest.mark.usefixtures("real_nodes"), pytest.mark.process]

FIRST, SECOND = (gpu.bdf for gpu in example_gpus(2))
GPU = "nvidia.com/gpu"
HEALTHY: dict[str, list[str]] = {f"{GPU}=0": [], f"{GPU}=1": []}


@pytest.fixture
def host(host: Host) -> Host:
    host.boot()
    # The nodes of this tree have no driver, which a probe would report.
    host.configure("health: {ignore: [node-unusable]}\n")
    return host


@pytest.fixture
def json_of(host: Host, cdigen: Run) -> Json:
    """Return a function that runs a command on HOST and returns its JSON output."""
    return lambda *arguments: cdigen(*arguments, "--root", host.root, "--json").json


def causes(json_of: Json) -> dict[str, list[str]]:
    return {row["device"]: [cause["cause"] for cause in row["causes"]] for row in json_of("health")}


def test_an_error_is_in_the_output_of_all_commands_and_in_the_log(
    host: Host, log: FakeLog, json_of: Json
) -> None:
    with daemon(host) as running:
        running.sees(lambda: causes(json_of) == HEALTHY)
        log.write(xid(79, 1, FIRST))
        running.sees(lambda: causes(json_of) == {**HEALTHY, f"{GPU}=0": ["xid-79"]})
        row = json_of("status")["devices"][0]
        assert (row["device"], row["health"]) == (f"{GPU}=0", "unhealthy")
        health = {row["device"]: row["health"] for row in json_of("list")}
        assert [health[f"{GPU}={name}"] for name in ("0", "1", "all")] == [
            "unhealthy",
            "healthy",
            "unhealthy",
        ]
        found = json_of("inspect")["vendors"]["nvidia"]["accelerators"]
        assert [gpu["health"] for gpu in found] == ["unhealthy", "healthy"]
        details = [row["detail"] for row in json_of("doctor") if row["check"] == "device-health"]
        assert "xid-79 since " in details[0]
        running.sees(lambda: running.lines("health"))
        (line, *_) = running.lines("health")
        assert (line["level"], line["device"], line["causes"][0]["cause"]) == (
            "warning",
            f"{GPU}=0",
            "xid-79",
        )


@pytest.mark.usefixtures("log")
def test_a_mark_takes_effect_at_once_and_lasts_over_a_reboot_until_it_is_cleared(
    host: Host, json_of: Json
) -> None:
    with daemon(host) as running:
        running.sees(lambda: causes(json_of) == HEALTHY)
        assert json_of("health", "--mark", SECOND, "--reason", "ticket 4711")["device"] == f"{GPU}=1"
        running.sees(lambda: causes(json_of) == {**HEALTHY, f"{GPU}=1": ["marked"]})
        (cause,) = json_of("health")[1]["causes"]
        assert (cause["detail"], cause["clears_when"]) == (
            "ticket 4711",
            "the mark is cleared with 'cdigen health --clear DEVICE'",
        )
        running.stop()
    host.boot(2)
    with daemon(host) as running:
        running.sees(lambda: causes(json_of) == {**HEALTHY, f"{GPU}=1": ["marked"]})
        json_of("health", "--clear", "1")
        running.sees(lambda: causes(json_of) == HEALTHY)
