"""The kernel's log by its units, on Debian 13: who reads it, with which rights, and who hears it.

The log is this machine's.
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
# In the daemon's place, in a unit like the daemon's.
LISTENER = """
import json, os, sys
sys.path.insert(0, "/usr/lib/cdigen")
from cdigen.watch.kernel_log import KernelLogSource
from cdigen.watch.triggers import Inbox
source, inbox = KernelLogSource(), Inbox()
source.start(inbox.put)
texts = []
while True:
    inbox.wait(0.2)
    inbox.take()
    texts += [record.text for record in source.take().records]
    try:
        open("/dev/kmsg").close()
        refusal = ""
    except OSError as error:
        refusal = error.strerror
    with open("/run/heard.new", "w") as file:
        json.dump({"problem": source.problem(), "texts": texts, "own": refusal}, file)
    os.rename("/run/heard.new", "/run/heard")
"""
EXEC = "ExecStart=/usr/bin/python3 -BIS /listen.py"


@pytest.fixture(scope="module")
def gpus(cache: Path, images: Path) -> Iterator[GpuHost]:
    """Boot a host with a listener in the daemon's place."""
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


def heard(gpus: GpuHost) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(gpus.host.attempt("cat /run/heard").stdout or '{"texts": []}')
    return told


def hears(gpus: GpuHost, name: str) -> bool:
    """Let the kernel write a line that begins with NAME; return whether it is heard."""
    gpus.host.attempt(f"python3 -ISBc '{FAULT}' '{name}'")
    return eventually(lambda: any(text.startswith(f"{name}[") for text in heard(gpus)["texts"]))


def readers(gpus: GpuHost) -> list[str]:
    """Return the processes that read the log."""
    return gpus.host.attempt("pgrep --full cdigen-kernel-log").stdout.split()


def test_the_daemon_hears_what_it_may_not_read_and_nothing_that_is_forged(gpus: GpuHost) -> None:
    gpus.host.run("rm -f /run/heard; systemctl start listener")
    gpus.host.run(f"echo '{FORGED}' >/dev/kmsg")
    assert hears(gpus, "NVRM: unit"), gpus.host.attempt("journalctl --no-pager -n 30")
    told = heard(gpus)
    assert [text for text in told["texts"] if text in FORGED] == []
    assert told["problem"] == ""
    # ProtectKernelLogs=, or the kernel itself (kernel.dmesg_restrict).
    assert told["own"] in {"Permission denied", "Operation not permitted"}


def test_the_reader_has_one_privilege_and_one_file(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start listener")
    assert eventually(lambda: len(readers(gpus)) == 1)
    assert hears(gpus, "NVRM: rights")
    (reader,) = readers(gpus)
    status = dict(
        line.split(":\t", 1)
        for line in gpus.host.run(f"cat /proc/{reader}/status").splitlines()
        if ":\t" in line
    )
    assert int(status["Uid"].split()[0]) >= 61184  # a dynamic user's
    rights = {int(status[f"Cap{name}"], 16) for name in ("Prm", "Eff", "Bnd", "Amb")}
    assert rights == {CAP_SYSLOG}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    open_files = gpus.host.run(f"readlink /proc/{reader}/fd/*").split()
    assert open_files[0] == "/dev/kmsg"
    assert {name.split(":")[0] for name in open_files[1:]} == {"socket"}
    limits = gpus.host.run(f"grep 'Max open files' /proc/{reader}/limits").split()
    assert limits[3:5] == ["2", "2"]


def test_when_the_daemon_ends_so_does_the_reader(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start listener")
    assert eventually(lambda: len(readers(gpus)) == 1)
    gpus.host.run("systemctl stop listener")
    assert eventually(lambda: readers(gpus) == [])
    left = "systemctl list-units --all --no-legend 'cdigen-kernel-log@*'"
    assert eventually(lambda: gpus.host.run(left) == "")


def test_a_reader_that_was_killed_is_the_end_of_the_connection(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start listener")
    assert eventually(lambda: len(readers(gpus)) == 1)
    gpus.host.run(f"kill -9 {readers(gpus)[0]}")
    assert eventually(lambda: "has ended" in heard(gpus)["problem"])
    gpus.host.run("systemctl stop listener")


def test_nobody_but_root_reaches_the_socket(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start cdigen-kernel-log.socket")
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/cdigen-kernel-log.sock')"
    done = gpus.host.attempt(f'setpriv --reuid=65534 --clear-groups python3 -c "{connect}"')
    assert "PermissionError" in done.stderr
    gpus.host.run(f'python3 -c "{connect}"')


def causes(gpus: GpuHost, address: str) -> list[str]:
    """Return why the GPU at ADDRESS is unhealthy, as inventory.json of the real daemon has it.

    That it is on no bus of this machine is one of the reasons.
    """
    told = json.loads(gpus.host.attempt("cat /run/cdigen/inventory.json").stdout or '{"vendors": {}}')
    rows = told["vendors"].get("nvidia", {"accelerators": []})["accelerators"]
    return [cause["cause"] for row in rows if row["address"] == address for cause in row["causes"]]


def test_an_error_in_the_log_is_in_the_inventory_of_the_daemon_in_its_unit(gpus: GpuHost) -> None:
    """The last one: the host's log is the test's own afterwards."""
    # A FIFO gives each record once, so no other may read it.
    gpus.host.run("systemctl stop listener cdigen-kernel-log.socket 'cdigen-kernel-log@*'; rm /dev/kmsg")
    log = FakeLog(Path(f"/proc/{gpus.host.pid}/root/dev/kmsg"))
    try:
        first, second = (gpu.bdf for gpu in GPUS)
        # From before the daemon's start.
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
