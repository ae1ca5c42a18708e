"""Specs like those of a DRA driver, with a file of 4 kB for each claim; `busy_machine` uses processors."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.abilities import tool
from support.nri.plugin import put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KIND = "k8s.gpu.nvidia.com/claim"
SIZE, DEVICES = 4096, 8


def write_claim(folder: Path, claim: int, *, version: int = 0) -> None:
    """Write the spec of CLAIM into FOLDER by a rename; its content depends on VERSION."""
    put(folder / f"claim{claim}.json", content(claim, version))


def content(claim: int, version: int = 0) -> str:
    """Return the spec of CLAIM: some devices with nodes and mounts, padded to SIZE."""
    devices = [
        {
            "name": f"{claim:08x}-gpu-{number}",
            "containerEdits": {
                "env": [f"CLAIM_{number}={version}"],
                "deviceNodes": [{"path": f"/dev/nvidia{number}", "hostPath": "/dev/null"}],
                "mounts": [
                    {
                        "hostPath": f"/var/lib/kubelet/plugins/gpu.nvidia.com/{claim}/{number}",
                        "containerPath": f"/var/run/claim/{number}",
                        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
                    }
                ],
            },
        }
        for number in range(DEVICES)
    ]
    document = {"cdiVersion": "0.5.0", "kind": KIND, "devices": devices, "containerEdits": {"env": ["PAD="]}}
    text = json.dumps(document)
    return text.replace("PAD=", f"PAD={'x' * (SIZE - len(text))}")


@contextmanager
def busy_machine(loops: int) -> Iterator[None]:
    """Keep LOOPS processors busy while the body runs."""
    until_the_tests_end = (tool("setpriv", "util-linux"), "--pdeathsig", "KILL")
    command = [*until_the_tests_end, sys.executable, "-S", "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
