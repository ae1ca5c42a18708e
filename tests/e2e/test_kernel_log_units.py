"""The units of the kernel log on Debian 13: the reader, its privileges, and the daemon as its client.

The tests read the kernel log of this machine.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.containers.booted_host import GPUS, GpuHost, eventually, gpu_host
from support.daemon.kernel_records import FAULT, FORGED, FakeLog, record
from support.hosts.nvidia_kernel import write

pytestmark = pytest.mark.e2e

VERSION = "550.163.01"
CAP_SYSLOG = 1 << 34
# This program runs instead of the daemon, in a copy of the daemon's unit.
LISTENER = """
import json, os, sys
sys.path.insert(0, "/usr/lib/cdigen")
from cdigen.watch.kernel_log import KernelLogSource
from cdigen.watch.triggers import TriggerQueue
source, queue = KernelLogSource(), TriggerQueue()
source.start(queue.put)
texts = []
while True:
    queue.wait(0.2)
    queue.take()
    texts += [record.text for record in source.take().records]
    try:
        open("/dev/kmsg").close()
        refusal = ""
    except OSError as error:
        refusal = error.strerror
    with open("/run/received.new", "w") as file:
        json.dump({"problem": source.problem(), "texts": texts, "own": refusal}, file)
    os.rename("/run/received.new", "/run/received")
"""
EXEC = "ExecStart=/usr/bin/python3 -BIS /listen.py"


@pytest.fixture(scope="module")
def gpus(cache: Path, images: Path) -> Iterator[GpuHost]:
    """Boot a host with a listener instead of the daemon."""
    with gpu_host(cache / "host-trixie", VERSION, images=images) as found:
        unit = (found.root / "usr/lib/systemd/system/cdigen.service").read_text()
        changed = [line for line in unit.splitlines() if not line.startswith(("ExecReload=", "WatchdogSec="))]
        text = "\n".join(changed).replace("Type=notify", "Type=exec")
        write(
            found.root / "etc/systemd/system/listener.service",
            text.replace("ExecStart=/usr/bin/cdigen run", EXEC),
        )
        write(found.root / "listen.py", LISTENER)
        found.host.run("mknod --mode=0644 /dev/kmsg c 1 11; systemctl daemon-reload")
        yield found


def received(gpus: GpuHost) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gpus.host.attempt("cat /run/received").stdout or '{"texts": []}')
    return found


def receives(gpus: GpuHost, name: str) -> bool:
    """Let the kernel write a line that begins with NAME; return whether the listener receives it."""
    gpus.host.attempt(f"python3 -ISBc '{FAULT}' '{name}'")
    return eventually(lambda: any(text.startswith(f"{name}[") for text in received(gpus)["texts"]))


def readers(gpus: GpuHost) -> list[str]:
    """Return the processes that read the log."""
    return gpus.host.attempt("pgrep --full cdigen-kernel-log").stdout.split()


def test_a_daemon_without_access_to_the_log_receives_only_records_of_the_kernel(gpus: GpuHost) -> None:
    gpus.host.run("rm -f /run/received; systemctl start listener")
    gpus.host.run(f"echo '{FORGED}' >/dev/kmsg")
    assert receives(gpus, "NVRM: unit"), gpus.host.attempt("journalctl --no-pager -n 30")
    found = received(gpus)
    assert [text for text in found["texts"] if text in FORGED] == []
    assert found["problem"] == ""
    # ProtectKernelLogs= or the sysctl kernel.dmesg_restrict causes this error.
    assert found["own"] in {"Permission denied", "Operation not permitted"}


def test_the_reader_has_only_the_capability_cap_syslog_and_opens_only_the_kernel_log(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start listener")
    assert eventually(lambda: len(readers(gpus)) == 1)
    assert receives(gpus, "NVRM: rights")
    (reader,) = readers(gpus)
    status = dict(
        line.split(":\t", 1)
        for line in gpus.host.run(f"cat /proc/{reader}/status").splitlines()
        if ":\t" in line
    )
    assert int(status["Uid"].split()[0]) >= 61184  # a dynamic user
    rights = {int(status[f"Cap{name}"], 16) for name in ("Prm", "Eff", "Bnd", "Amb")}
    assert rights == {CAP_SYSLOG}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    open_files = gpus.host.run(f"readlink /proc/{reader}/fd/*").split()
    assert open_files[0] == "/dev/kmsg"
    assert {name.split(":")[0] for name in open_files[1:]} == {"socket"}
    limits = gpus.host.run(f"grep 'Max open files' /proc/{reader}/limits").split()
    assert limits[3:5] == ["2", "2"]


def test_the_reader_ends_with_the_daemon(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start listener")
    assert eventually(lambda: len(readers(gpus)) == 1)
    gpus.host.run("systemctl stop listener")
    assert eventually(lambda: readers(gpus) == [])
    list_units = "systemctl list-units --all --no-legend 'cdigen-kernel-log@*'"
    assert eventually(lambda: gpus.host.run(list_units) == "")


def test_the_daemon_reports_the_end_of_the_connection_if_the_reader_is_killed(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start listener")
    assert eventually(lambda: len(readers(gpus)) == 1)
    gpus.host.run(f"kill -9 {readers(gpus)[0]}")
    assert eventually(lambda: "has ended" in received(gpus)["problem"])
    gpus.host.run("systemctl stop listener")


def test_only_root_can_connect_to_the_socket(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start cdigen-kernel-log.socket")
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/cdigen-kernel-log.sock')"
    done = gpus.host.attempt(f'setpriv --reuid=65534 --clear-groups python3 -c "{connect}"')
    assert "PermissionError" in done.stderr
    gpus.host.run(f'python3 -c "{connect}"')


def causes(gpus: GpuHost, address: str) -> list[str]:
    """Return the causes of the GPU at ADDRESS in inventory.json of the real daemon.

    One cause is always in the result: no PCI bus of this machine has the GPU.
    """
    document = json.loads(gpus.host.attempt("cat /run/cdigen/inventory.json").stdout or '{"vendors": {}}')
    rows = document["vendors"].get("nvidia", {"accelerators": []})["accelerators"]
    return [cause["cause"] for row in rows if row["address"] == address for cause in row["causes"]]


def test_the_daemon_in_its_unit_writes_an_error_of_the_log_to_the_inventory(gpus: GpuHost) -> None:
    """This test runs last because it replaces the log of the host."""
    # A FIFO returns each record once, so no other process may read it.
    gpus.host.run("systemctl stop listener cdigen-kernel-log.socket 'cdigen-kernel-log@*'; rm /dev/kmsg")
    log = FakeLog(Path(f"/proc/{gpus.host.pid}/root/dev/kmsg"))
    try:
        first, second = (gpu.bdf for gpu in GPUS)
        # This record is older than the daemon.
        log.write(record(f"NVRM: Xid (PCI:{first[:-2]}): 79, GPU has fallen off the bus.", 7))
        gpus.host.run("systemctl start cdigen")
        assert eventually(lambda: "xid-79" in causes(gpus, first)), gpus.host.attempt("cdigen status")
        began = time.monotonic()
        log.write(record(f"NVRM: Xid (PCI:{second[:-2]}): 95, pid=7, name=x, Uncontained: LTC TAG", 8))
        assert eventually(lambda: "xid-95" in causes(gpus, second))
        print(f"an Xid was in inventory.json after {time.monotonic() - began:.3f} s")
        assert "xid-79" not in causes(gpus, second)
        sources = json.loads(gpus.host.attempt("cdigen status --json").stdout)["sources"]
        assert sources["kernel-log"]["healthy"]
    finally:
        log.close()
        gpus.host.attempt("systemctl stop cdigen")
