"""The daemon and a driver container: its root is watched as it is now, and for what it is."""

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
    """Return a host whose driver lies in a driver container's tree, where an absolute link is on the way."""
    made = Host(tmp_path / "host").prepare()
    made.load()
    tree = Host(made.root / DRIVER_ROOT)
    tree.install(OLD)
    (tree.root / "usr/lib").rename(tree.root / "usr/elsewhere")
    (tree.root / "usr/lib").symlink_to("/usr/elsewhere")
    return made


def library(host: Host) -> Path:
    return host.root / DRIVER_ROOT / "usr/elsewhere/x86_64-linux-gnu" / LIBRARY


def test_a_driver_root_with_proc_in_it_is_no_reason_to_look_again_and_again(host: Host) -> None:
    # That no driver is behind the nodes of this host is found a moment later, and makes a cycle.
    host.configure(f"driver_root: /{DRIVER_ROOT}\nhealth: {{ignore: [node-unusable]}}\n")
    proc = host.root / DRIVER_ROOT / "proc"
    proc.mkdir()
    script = f'mount --rbind /proc {proc}; exec "$@"'
    before = (*unshared("--mount", "--propagation", "private"), "/bin/sh", "-c", script, "sh")
    with daemon(host, before=before) as running:
        running.sees(lambda: running.state == "ready")
        seen = running.rests()
        # Five times the interval of the poll; processes come and go all the while.
        assert running.rests(1.0) == seen


@pytest.mark.parametrize("when", ["from the start", "from a reload on"])
def test_links_of_a_driver_root_are_followed_within_it(when: str, host: Host) -> None:
    host.configure("" if when == "from a reload on" else f"driver_root: /{DRIVER_ROOT}\n")
    with daemon(host) as running:
        running.rests()
        host.configure(f"driver_root: /{DRIVER_ROOT}\n")
        running.sees(lambda: running.state == "ready")
        running.rests()
        assert LIBRARY in host.spec.read_text()
        library(host).unlink()
        running.sees(lambda: LIBRARY not in host.spec.read_text())
