"""`cdigen kubelet` at its start: what is given wrongly, what is waited for, and what its log holds."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.kubelet.process import Side, cdigen_kubelet, serving, side_of
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process
# As another user, who may not read where the tests' Python is: all that is needed is imported before.
AS_NOBODY = """
import os, sys
from cdigen.cli import kubelet, main, parser
from cdigen.frontend import log, sd_notify
from cdigen.kubelet import offering, plugin
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.fixture
def side() -> Iterator[Side]:
    with side_of() as made:
        yield made


def refused(
    side: Side, *arguments: str | Path, program: tuple[str, ...] = ("-m", "cdigen")
) -> tuple[int, str]:
    """Return the exit code and the one line of a start that is refused."""
    command = [sys.executable, *program, "kubelet", "--root", str(side.root), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return done.returncode, line


def test_a_folder_that_can_never_be_the_kubelets_is_refused_in_one_line(side: Side) -> None:
    file = side.root / "file"
    file.write_text("")
    (side.root / "link").symlink_to(file)
    long = side.root / ("x" * 80)
    for given, why in (
        (file, f"the kubelet's folder {file} is not a folder"),
        (side.root / "link", f"the kubelet's folder {side.root}/link is not a folder"),
        ("some/where", "--kubelet-dir 'some/where' is not absolute"),
        (long, f"the path of the kubelet's folder {long} is too long"),
    ):
        code, line = refused(side, "--kubelet-dir", given)
        assert code == 2
        assert why in line


@pytest.mark.needs_root
def test_who_may_not_use_the_folder_is_told_so_and_does_not_wait(side: Side) -> None:
    side.root.chmod(0o755)
    (side.kubelet_dir / "device-plugins").mkdir(mode=0o755)
    for folder in (side.kubelet_dir, side.root / "none/yet"):
        code, line = refused(side, "--kubelet-dir", folder, program=("-c", AS_NOBODY))
        assert code == 5, line
        assert f"the kubelet's folder {folder}/device-plugins cannot be used: Permission denied" in line
        assert "'cdigen kubelet' as root" in line


def test_root_alone_may_ask_and_everybody_may_read_the_status_whatever_the_umask_is(side: Side) -> None:
    side.kubelet.start()
    before = os.umask(0)
    try:
        with serving(side):
            (ours,) = side.kubelet.plugins.glob("cdigen-*")
            assert ours.stat().st_mode & 0o077 == 0
            # Without what is being written.
            modes = {path.name: path.stat().st_mode & 0o777 for path in side.run_dir.glob("[a-z]*")}
            assert modes == {"lock": 0o600, "http.sock": 0o660, "status.json": 0o644}
            assert side.run_dir.stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(before)


def test_a_kubelet_whose_folder_comes_later_is_registered_with_once_and_after_each_restart(
    side: Side,
) -> None:
    side.kubelet_dir.rmdir()
    with cdigen_kubelet(side) as process:
        assert until(side.serves_http)
        assert until(lambda: side.resource()["state"] == "waiting")
        for _ in range(3):
            side.kubelet.start()
            assert until(lambda: side.lists(8))
            side.kubelet.kill()
        assert len(side.kubelet.registered) == 3
        assert process.process.poll() is None


@pytest.mark.needs_root
def test_a_folder_that_is_a_link_is_the_one_that_it_leads_to_once_that_is_there(side: Side) -> None:
    link = side.root / "l"
    side.kubelet_dir.rmdir()
    link.symlink_to("k")
    with cdigen_kubelet(side, "--kubelet-dir", link) as process:
        assert until(side.serves_http)
        side.kubelet.start()
        assert until(lambda: side.lists(8))
        assert process.process.poll() is None


def test_the_log_is_json_whatever_the_environment_asks_of_grpcio(side: Side) -> None:
    asked = {
        "GRPC_VERBOSITY": "DEBUG",
        "GRPC_TRACE": "all",
        "grpc_poll_strategy": "none",
        "GRPC_POLL_STRATEGY": "poll",
        "http_proxy": "http://127.0.0.1:1",
        "HTTPS_PROXY": "http://127.0.0.1:1",
    }
    side.kubelet.start()
    with cdigen_kubelet(side, environment=asked) as process:
        assert until(lambda: side.lists(8))
        # What makes grpcio log by itself: a peer that goes away, a socket that cannot be made.
        side.kubelet.kill()
        (side.kubelet_dir / "device-plugins").rename(side.kubelet_dir / "away")
        (side.kubelet_dir / "device-plugins").write_text("")
        assert until(lambda: side.resource()["state"] != "registered")
        (side.kubelet_dir / "device-plugins").unlink()
        side.kubelet.start()
        assert until(lambda: side.lists(8))
        assert process.stop() == 0
        assert process.lines()
        assert [line for line in process.text.splitlines() if not line.startswith("{")] == []
