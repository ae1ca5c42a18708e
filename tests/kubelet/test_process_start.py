"""`cdigen kubelet` at its start: rejected options, the wait for the kubelet's folder, and the log."""

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
# Other users may lack access to the Python of the tests, so root imports all modules before setuid.
AS_NOBODY = """
import os, sys
from cdigen.cli import main
from cdigen.cli.services import kubelet
from cdigen.cli.shared import parser
from cdigen.service.process import log, sd_notify
from cdigen.kubelet import advertised_resources, plugin
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
    """Return the exit code of a refused start, and its single line on stderr."""
    command = [sys.executable, *program, "kubelet", "--root", str(side.root), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return done.returncode, line


def test_an_unusable_folder_of_the_kubelet_is_refused_in_one_line(side: Side) -> None:
    file = side.root / "file"
    file.write_text("")
    (side.root / "link").symlink_to(file)
    long = side.root / ("x" * 80)
    for option, reason in (
        (file, f"the kubelet's folder {file} is not a folder"),
        (side.root / "link", f"the kubelet's folder {side.root}/link is not a folder"),
        ("some/where", "--kubelet-dir 'some/where' is not absolute"),
        (long, f"the kubelet's folder {long}: the path is too long"),
    ):
        code, line = refused(side, "--kubelet-dir", option)
        assert code == 2
        assert reason in line


@pytest.mark.needs_root
def test_without_access_to_the_kubelets_folder_a_start_fails_and_does_not_wait(side: Side) -> None:
    side.root.chmod(0o755)
    (side.kubelet_dir / "device-plugins").mkdir(mode=0o755)
    for folder in (side.kubelet_dir, side.root / "none/yet"):
        code, line = refused(side, "--kubelet-dir", folder, program=("-c", AS_NOBODY))
        assert code == 5, line
        assert f"the kubelet's folder {folder}/device-plugins cannot be used: Permission denied" in line
        assert "'cdigen kubelet' as root" in line


def test_with_umask_0_only_root_can_connect_and_all_users_can_read_the_status(side: Side) -> None:
    side.kubelet.start()
    before = os.umask(0)
    try:
        with serving(side):
            (ours,) = side.kubelet.plugins.glob("cdigen-*")
            assert ours.stat().st_mode & 0o077 == 0
            # The pattern excludes temporary files.
            modes = {path.name: path.stat().st_mode & 0o777 for path in side.run_dir.glob("[a-z]*")}
            assert modes == {"lock": 0o600, "http.sock": 0o660, "status.json": 0o644}
            assert side.run_dir.stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(before)


def test_cdigen_waits_for_the_kubelets_folder_and_registers_once_after_each_kubelet_start(
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
def test_a_symbolic_link_to_a_folder_that_is_created_later_is_followed(side: Side) -> None:
    link = side.root / "l"
    side.kubelet_dir.rmdir()
    link.symlink_to("k")
    with cdigen_kubelet(side, "--kubelet-dir", link) as process:
        assert until(side.serves_http)
        side.kubelet.start()
        assert until(lambda: side.lists(8))
        assert process.process.poll() is None


def test_the_log_is_json_with_any_settings_of_grpcio_in_the_environment(side: Side) -> None:
    settings = {
        "GRPC_VERBOSITY": "DEBUG",
        "GRPC_TRACE": "all",
        "grpc_poll_strategy": "none",
        "GRPC_POLL_STRATEGY": "poll",
        "http_proxy": "http://127.0.0.1:1",
        "HTTPS_PROXY": "http://127.0.0.1:1",
    }
    side.kubelet.start()
    with cdigen_kubelet(side, environment=settings) as process:
        assert until(lambda: side.lists(8))
        # grpcio would write to the log if a peer disconnects, or if a socket cannot be made.
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
