"""``cdigen configure`` from the outside: what it prints, what it changes, what it refuses."""

import json
import os
import pty
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.abilities import cannot_run, tool
from support.command.fixtures import Run

from cdigen.runtimes.installed import FOLDERS

DAEMON_JSON = '{\n    "bridge": "none"\n}\n'
CONTAINERD = """\
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"  # Debian's
"""
RUNTIMES = ("podman", "docker", "containerd", "crio")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host with configurations of all the runtimes."""
    for path, content in {
        "etc/docker/daemon.json": DAEMON_JSON,
        "etc/containerd/config.toml": CONTAINERD,
        "etc/containers/containers.conf": "[engine]\n",
        "etc/crio/crio.conf": "[crio]\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    (tmp_path / "usr/bin").mkdir(parents=True)
    for binary in ("podman", "dockerd", "containerd", "crio"):
        (tmp_path / "usr/bin" / binary).touch(0o755)
    return tmp_path


def files(root: Path) -> dict[str, tuple[bytes, int]]:
    """Return all below ``/etc``: content and mode."""
    found = (path for path in (root / "etc").rglob("*"))
    return {str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mode) for path in found}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_configure_and_undo_leave_no_trace(cdigen: Run, root: Path, runtime: str) -> None:
    before = files(root)
    assert cdigen("configure", runtime, "--root", root).code == 0
    assert files(root) != before
    assert cdigen("configure", runtime, "--undo", "--root", root).code == 0
    assert files(root) == before


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_second_time_there_is_nothing_to_do(cdigen: Run, root: Path, runtime: str) -> None:
    cdigen("configure", runtime, "--root", root)
    inodes = {path: path.stat().st_ino for path in root.rglob("*")}
    done = cdigen("configure", runtime, "--root", root)
    assert (done.code, done.out) == (0, "")
    assert "nothing to do" in done.err
    assert {path: path.stat().st_ino for path in root.rglob("*")} == inodes


@pytest.mark.parametrize("runtime", ["containerd", "crio"])
def test_a_required_plugin_is_set_with_a_warning_and_undone_without_a_trace(
    cdigen: Run, root: Path, runtime: str
) -> None:
    before = files(root)
    done = cdigen("configure", runtime, "--nri-required", "--root", root)
    assert (done.code, done.err.count("[nri-required]")) == (0, 1)
    assert "system pods included" in done.err
    again = cdigen("configure", runtime, "--nri-required", "--json", "--root", root)
    assert (again.json["files"], again.json["findings"]) == ([], [])
    cdigen("configure", runtime, "--undo", "--root", root)
    assert files(root) == before


def test_undo_twice_is_nothing_to_undo(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root)
    cdigen("configure", "docker", "--undo", "--root", root)
    done = cdigen("configure", "docker", "--undo", "--root", root)
    assert (done.code, done.out) == (0, "")
    assert "nothing to undo" in done.err


def test_undo_without_anything_done_makes_nothing(cdigen: Run, root: Path) -> None:
    assert cdigen("configure", "docker", "--undo", "--root", root).code == 0
    assert not (root / "var").exists()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_dry_run_prints_a_diff_that_patch_takes_and_changes_nothing(
    cdigen: Run, root: Path, runtime: str
) -> None:
    before = files(root)
    dry = cdigen("configure", runtime, "--dry-run", "--root", root)
    assert dry.code == 0
    assert files(root) == before
    assert not (root / "var").exists()
    # patch(1) makes no files below folders that are missing from an absolute name.
    diff = dry.out.replace("--- /etc", "--- etc").replace("+++ /etc", "+++ etc")
    subprocess.run([tool("patch"), "-p0"], cwd=root, input=diff, text=True, check=True, capture_output=True)
    patched = {path: content for path, (content, _) in files(root).items() if content}
    subprocess.run(
        [tool("patch"), "-p0", "-R"], cwd=root, input=diff, text=True, check=True, capture_output=True
    )
    cdigen("configure", runtime, "--root", root)
    assert {path: content for path, (content, _) in files(root).items() if content} == patched


def test_a_dry_run_prints_no_escape_sequence_of_a_file_name(cdigen: Run, root: Path) -> None:
    file = root / "etc/containers/containers.conf.d/99-\x1b[2J\u00e9.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[engine]\ncdi_spec_dirs = ["/x"]\n')
    dry = cdigen("configure", "podman", "--dry-run", "--root", root)
    assert "\x1b" not in dry.out
    assert '--- "/etc/containers/containers.conf.d/99-\\033[2J\\303\\251.conf"\n' in dry.out
    diff = dry.out.replace('"/etc', '"etc')
    subprocess.run([tool("patch"), "-p0"], cwd=root, input=diff, text=True, check=True, capture_output=True)
    assert "/run/cdi" in file.read_text()


def test_a_dry_run_prints_no_escape_sequence_of_a_file_to_a_terminal(root: Path) -> None:
    file = root / "etc/docker/daemon.json"
    file.write_text('{\n    "bridge": "\u009b2J",\t\n    "x": 1}\n')
    command = [sys.executable, "-m", "cdigen", "configure", "docker", "--dry-run", "--root", str(root)]
    terminal, end = pty.openpty()
    with open(terminal, "rb", buffering=0) as output:
        subprocess.run(command, check=True, stdout=end, stderr=subprocess.DEVNULL)
        os.close(end)
        text = output.read(1 << 16).decode()
    assert "\\x9b2J" in text
    assert "\x9b" not in text


def test_json_says_what_was_done_and_what_remains_to_be(cdigen: Run, root: Path) -> None:
    done = cdigen("configure", "docker", "--json", "--root", root)
    document = done.json
    (file,) = document["files"]
    assert (document["runtime"], document["changed"], document["restarted"]) == ("docker", True, False)
    assert document["restart"] == "systemctl restart docker"
    assert (file["path"], file["result"]) == ("/etc/docker/daemon.json", "changed")
    assert file["keys"] == ["features.cdi", "cdi-spec-dirs"]
    assert "live-restore" in document["findings"][-1]["message"]
    assert cdigen("configure", "docker", "--json", "--root", root).json["files"] == []


def test_mode_and_owner_of_a_file_stay(cdigen: Run, root: Path) -> None:
    path = root / "etc/docker/daemon.json"
    path.chmod(0o600)
    cdigen("configure", "docker", "--root", root)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_directories_that_are_given_are_added(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root, "--spec-dir", "/srv/a", "--spec-dir", "/srv/b")
    document = json.loads((root / "etc/docker/daemon.json").read_text())
    assert document["cdi-spec-dirs"] == ["/etc/cdi", "/var/run/cdi", "/srv/a", "/srv/b"]


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_undo_of_a_file_that_others_changed_is_refused_and_shows_the_difference(
    cdigen: Run, root: Path, arguments: tuple[str, ...]
) -> None:
    cdigen("configure", "docker", "--root", root)
    path = root / "etc/docker/daemon.json"
    path.write_text(path.read_text().replace('"none"', '"br0"'))
    before = files(root)
    done = cdigen("configure", "docker", "--undo", "--root", root, *arguments)
    said = "/etc/docker/daemon.json was changed by others since, and --undo would lose that"
    assert (done.code, said in done.err) == (5, True)
    assert '-    "bridge": "br0",\n' in done.out
    assert '+    "bridge": "none"\n' in done.out
    assert files(root) == before
    told = cdigen("configure", "docker", "--undo", "--json", "--root", root, *arguments)
    assert (told.code, told.json["error"]["kind"]) == (5, "changed-since")
    # What was changed back by hand is as it was; the hint says where the original is.
    backup = re.search(r"the original is (\S+/configure/docker/[0-9a-f]{64})", done.err)
    assert backup is not None
    path.write_bytes(Path(backup[1]).read_bytes())
    assert "nothing to undo" in cdigen("configure", "docker", "--undo", "--root", root).err
    assert path.read_text() == DAEMON_JSON


def test_undo_shows_what_it_would_do_and_does_nothing(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root)
    before = files(root)
    dry = cdigen("configure", "docker", "--undo", "--dry-run", "--root", root)
    assert '-    "cdi-spec-dirs": [\n' in dry.out
    assert files(root) == before
    assert (
        cdigen("configure", "docker", "--undo", "--json", "--root", root).json["files"][0]["result"]
        == "restored"
    )


def test_what_a_second_run_set_in_a_file_that_others_changed_is_not_undone(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root)
    path = root / "etc/docker/daemon.json"
    path.write_text(path.read_text().replace('"none"', '"br0"'))
    assert cdigen("configure", "docker", "--spec-dir", "/srv/cdi", "--root", root).code == 0
    assert cdigen("configure", "docker", "--undo", "--root", root).failed(5, "was changed by others since")
    assert json.loads(path.read_text())["bridge"] == "br0"


def test_a_drop_in_that_others_added_to_stays(cdigen: Run, root: Path) -> None:
    cdigen("configure", "crio", "--root", root)
    (path,) = (root / "etc/crio/crio.conf.d").iterdir()
    path.write_text(path.read_text() + "pids_limit = 7\n")
    done = cdigen("configure", "crio", "--undo", "--root", root)
    assert (done.code, "-pids_limit = 7" in done.out) == (5, True)
    assert "pids_limit = 7" in path.read_text()


def test_a_file_that_others_removed_is_nothing_to_undo(cdigen: Run, root: Path) -> None:
    cdigen("configure", "crio", "--root", root)
    (path,) = (root / "etc/crio/crio.conf.d").iterdir()
    path.unlink()
    assert "nothing to undo" in cdigen("configure", "crio", "--undo", "--root", root).err


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("docker: etc/docker/daemon.json", b'{"a": 1\n,}', ("daemon.json", "line 2")),
        ("docker: etc/docker/daemon.json", b'{"a": 1,\n"a": 2}', ("daemon.json", "'a' is there twice")),
        ("containerd: etc/containerd/config.toml", b"version = 2\n[plugins\n", ("config.toml", "line 2")),
        ("podman: etc/containers/containers.conf", b"[engine]\nx =\n", ("containers.conf", "line 2")),
        ("crio: etc/crio/crio.conf.d/a.conf", b"x = 1\nx = 2\n", ("a.conf", "line 2")),
    ],
)
def test_a_broken_file_is_refused_with_its_line(
    cdigen: Run, root: Path, file: str, content: bytes, words: tuple[str, ...]
) -> None:
    runtime, path = file.split(": ")
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_bytes(content)
    before = files(root)
    for arguments in ((), ("--dry-run",)):
        assert cdigen("configure", runtime, "--root", root, *arguments).failed(2, *words)
    assert files(root) == before


def test_undo_refuses_a_file_that_was_broken_since_and_can_be_run_again(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root)
    path = root / "etc/docker/daemon.json"
    whole = path.read_text()
    path.write_text(whole[:-3])
    assert cdigen("configure", "docker", "--undo", "--root", root).failed(
        5, "daemon.json", "changed by others"
    )
    path.write_text(whole)
    assert cdigen("configure", "docker", "--undo", "--root", root).code == 0
    assert path.read_text() == DAEMON_JSON


def test_a_folder_in_a_files_place_is_refused(cdigen: Run, root: Path) -> None:
    (root / "etc/docker/daemon.json").unlink()
    (root / "etc/docker/daemon.json").mkdir()
    assert cdigen("configure", "docker", "--root", root).failed(5, "daemon.json")


def test_a_file_that_others_may_write_to_is_refused(cdigen: Run, root: Path) -> None:
    (root / "etc/docker/daemon.json").chmod(0o666)
    done = cdigen("configure", "docker", "--root", root)
    assert done.failed(5, "daemon.json", "writable by everyone")
    assert (root / "etc/docker/daemon.json").read_text() == DAEMON_JSON


def test_a_link_out_of_the_root_stays_in_it(
    cdigen: Run, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "daemon.json"
    outside.write_text(DAEMON_JSON)
    (root / "etc/docker/daemon.json").unlink()
    (root / "etc/docker/daemon.json").symlink_to(outside)
    assert cdigen("configure", "docker", "--root", root).code == 5
    assert outside.read_text() == DAEMON_JSON


@pytest.mark.parametrize(
    "arguments",
    [
        ("docker", "--undo", "--nri"),
        ("containerd", "--undo", "--nri-required"),
        ("docker", "--undo", "--spec-dir", "/srv"),
        ("docker", "--restart"),  # under --root
        ("docker", "--restart", "--dry-run"),
        ("docker", "--nri"),
        ("podman", "--nri"),
        ("docker", "--nri-required"),
        ("podman", "--nri-required"),
        ("docker", "--spec-dir", "relative"),
        ("docker", "--spec-dir", "/srv/../etc"),
        ("docker", "--spec-dir", "/new\nline"),
        ("lxc",),
        (),
    ],
)
def test_what_cannot_be_meant_is_refused(cdigen: Run, root: Path, arguments: tuple[str, ...]) -> None:
    before = files(root)
    assert cdigen("configure", *arguments, "--root", root).failed(2)
    assert files(root) == before


def test_help_shows_examples(cdigen: Run) -> None:
    done = cdigen("configure", "--help")
    assert done.code == 0
    assert "cdigen configure docker --undo" in done.out


def test_podman_of_this_machine_reads_the_drop_in_without_a_word(cdigen: Run, tmp_path: Path) -> None:
    """podman 4.3 does not know the key; it may not mind it either."""
    if not os.path.exists("/usr/bin/podman"):
        cannot_run("there is no podman here")
    cdigen("configure", "podman", "--root", tmp_path)
    (drop_in,) = (tmp_path / "etc/containers/containers.conf.d").iterdir()
    # CONTAINERS_CONF names the one file that is read instead of all others.
    done = subprocess.run(
        ["podman", "info", "--format", "{{.Version.Version}}"],
        env={**os.environ, "CONTAINERS_CONF": str(drop_in)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "cdi_spec_dirs" not in done.stderr


@pytest.mark.parametrize(
    ("runtime", "program"),
    [("podman", "podman"), ("docker", "dockerd"), ("containerd", "containerd"), ("crio", "crio")],
)
def test_a_runtime_that_is_not_installed_is_configured_for_the_day_and_that_is_said(
    cdigen: Run, root: Path, runtime: str, program: str
) -> None:
    (root / "usr/bin" / program).unlink()
    done = cdigen("configure", runtime, "--root", root)
    assert done.code == 0
    assert f"{runtime} is not installed: there is no {program} in /usr/bin" in done.err
    assert "to make it count" not in done.err
    told = cdigen("configure", runtime, "--root", root, "--json").json
    assert (next(row["rule"] for row in told["findings"]), told["restart"]) == ("runtime-missing", "")
    (root / "usr/bin" / program).touch(0o755)
    assert "not installed" not in cdigen("configure", runtime, "--root", root).err


def test_what_is_not_installed_is_not_restarted(cdigen: Run, tmp_path: Path) -> None:
    if any(Path(folder, "crio").exists() for folder in FOLDERS):
        cannot_run("CRI-O is installed here")
    config = tmp_path / "config.yaml"
    config.write_text(f"state_dir: {tmp_path}/state\n")
    done = cdigen("configure", "crio", "--restart", "--config", config)
    assert done.failed(2, "crio is not installed", "so there is nothing to restart")
    assert not Path("/etc/crio/crio.conf.d/99-cdigen.conf").exists()
