"""The daemon watches the root of a driver container, and the files in this root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.host import OLD, Host, daemon, unshared

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
DRIVER_ROOT = "run/nvidia/driver"
LIBRARY = f"libnvidia-opticalflow.so.{OLD}"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host with a driver container. An absolute link is in the path of the driver's libraries."""
    made = Host(tmp_path / "host").prepare()
    made.load()
    tree = Host(made.root / DRIVER_ROOT)
    tree.install(OLD)
    (tree.root / "usr/lib").rename(tree.root / "usr/elsewhere")
    (tree.root / "usr/lib").symlink_to("/usr/elsewhere")
    return made


def library(host: Host) -> Path:
    return host.root / DRIVER_ROOT / "usr/elsewhere/x86_64-linux-gnu" / LIBRARY


def test_a_driver_root_with_proc_in_it_causes_no_endless_cycles(host: Host) -> None:
    # The nodes of this host have no driver. The probe must not report them, because this would cause a cycle.
    host.configure(f"driver_root: /{DRIVER_ROOT}\nhealth: {{ignore: [node-unusable]}}\n")
    proc = host.root / DRIVER_ROOT / "proc"
    proc.mkdir()
    script = f'mount --rbind /proc {proc}; exec "$@"'
    before = (*unshared("--mount", "--propagation", "private"), "/bin/sh", "-c", script, "sh")
    with daemon(host, before=before) as running:
        running.sees(lambda: running.state == "ready")
        cycles = running.rests()
        # The wait is five times the poll interval. Processes start and end during this time.
        assert running.rests(1.0) == cycles


@pytest.mark.parametrize("when", ["from the start", "from a reload on"])
def test_links_in_a_driver_root_are_resolved_within_the_driver_root(when: str, host: Host) -> None:
    host.configure("" if when == "from a reload on" else f"driver_root: /{DRIVER_ROOT}\n")
    with daemon(host) as running:
        running.rests()
        host.configure(f"driver_root: /{DRIVER_ROOT}\n")
        running.sees(lambda: running.state == "ready")
        running.rests()
        assert LIBRARY in host.spec.read_text()
        library(host).unlink()
        running.sees(lambda: LIBRARY not in host.spec.read_text())
