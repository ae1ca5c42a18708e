"""What the real daemon knows of devices' health, as the command, the log and the doctor show it."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from support import json_output
from support.abilities import WARNINGS
from support.command.in_process import run_here
from support.daemon.host import Host, daemon
from support.daemon.kernel_records import FakeLog, record
from support.hosts.nvidia_kernel import example_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("real_nodes"), pytest.mark.process]

FIRST, SECOND = (gpu.bdf for gpu in example_gpus(2))
GPU = "nvidia.com/gpu"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path / "host").make()
    made.put("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")
    # The nodes of this tree have no driver, which a probe finds soon.
    made.configure("health: {ignore: [node-unusable]}\n")
    return made


@pytest.fixture
def log(host: Host) -> Iterator[FakeLog]:
    path = host.root / "dev/kmsg"
    path.unlink(missing_ok=True)
    made = FakeLog(path)
    yield made
    made.close()


def cdigen(host: Host, *arguments: str) -> Any:
    """Return what the command says as JSON of HOST, whose daemon runs."""
    words = (*arguments, "--root", str(host.root), "--json")
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONWARNINGS": WARNINGS}
    code, out, _ = run_here(words, stdin=b"", environment=environment)
    json_output.check(words, code, out.decode())
    return json.loads(out)


def causes(host: Host) -> dict[str, list[str]]:
    return {row["device"]: [cause["cause"] for cause in row["causes"]] for row in cdigen(host, "health")}


def xid(log: FakeLog) -> None:
    said = "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    log.write(record(f"NVRM: Xid (PCI:{FIRST[:-2]}): {said}", 1, stamp_us=int(time.monotonic() * 1e6)))


def test_an_error_shows_everywhere(host: Host, log: FakeLog) -> None:
    with daemon(host) as running:
        running.sees(lambda: causes(host) == {f"{GPU}=0": [], f"{GPU}=1": []})
        xid(log)
        running.sees(lambda: causes(host) == {f"{GPU}=0": ["xid-79"], f"{GPU}=1": []})
        row = cdigen(host, "status")["devices"][0]
        assert (row["device"], row["health"]) == (f"{GPU}=0", "unhealthy")
        health = {row["device"]: row["health"] for row in cdigen(host, "list")}
        assert [health[f"{GPU}={name}"] for name in ("0", "1", "all")] == [
            "unhealthy",
            "healthy",
            "unhealthy",
        ]
        found = cdigen(host, "inspect")["vendors"]["nvidia"]["accelerators"]
        assert [gpu["health"] for gpu in found] == ["unhealthy", "healthy"]
        told = [row["detail"] for row in cdigen(host, "doctor") if row["check"] == "device-health"]
        assert "xid-79 since " in told[0]
        running.sees(lambda: running.lines("health"))
        (line, *_) = running.lines("health")
        assert (line["level"], line["device"], line["causes"][0]["cause"]) == (
            "warning",
            f"{GPU}=0",
            "xid-79",
        )


@pytest.mark.usefixtures("log")
def test_a_mark_counts_at_once_and_lasts_until_it_is_cleared(host: Host) -> None:
    with daemon(host) as running:
        running.sees(lambda: causes(host) == {f"{GPU}=0": [], f"{GPU}=1": []})
        assert cdigen(host, "health", "--mark", SECOND, "--reason", "ticket 4711")["device"] == f"{GPU}=1"
        running.sees(lambda: causes(host) == {f"{GPU}=0": [], f"{GPU}=1": ["marked"]})
        (cause,) = cdigen(host, "health")[1]["causes"]
        assert (cause["detail"], cause["clears_when"]) == (
            "ticket 4711",
            "someone clears it with 'cdigen health --clear'",
        )
        running.stop()
    with daemon(host) as running:
        running.sees(lambda: causes(host) == {f"{GPU}=0": [], f"{GPU}=1": ["marked"]})
        cdigen(host, "health", "--clear", "1")
        running.sees(lambda: causes(host) == {f"{GPU}=0": [], f"{GPU}=1": []})
