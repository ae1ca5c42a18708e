"""The output, the changes and the errors of ``cdigen configure``."""

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
from support.command.specs import put

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
    """Return the content and the mode of each file below ``/etc``."""
    found = (path for path in (root / "etc").rglob("*"))
    return {str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mode) for path in found}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_undo_restores_all_files_after_configure(cdigen: Run, root: Path, runtime: str) -> None:
    before = files(root)
    assert cdigen("configure", runtime, "--root", root).code == 0
    assert files(root) != before
    assert cdigen("configure", runtime, "--undo", "--root", root).code == 0
    assert files(root) == before


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_second_configure_changes_nothing(cdigen: Run, root: Path, runtime: str) -> None:
    changed = cdigen("configure", runtime, "--root", root).out
    inodes = {path: path.stat().st_ino for path in root.rglob("*")}
    done = cdigen("configure", runtime, "--root", root)
    assert (done.code, done.out) == (0, "")
    file = changed.split()[1].rstrip(":")
    assert f"nothing to do: no change is needed in {file}\n" in done.err
    assert {path: path.stat().st_ino for path in root.rglob("*")} == inodes


@pytest.mark.parametrize("runtime", ["containerd", "crio"])
def test_nri_required_prints_a_warning_and_can_be_undone(cdigen: Run, root: Path, runtime: str) -> None:
    before = files(root)
    done = cdigen("configure", runtime, "--nri-required", "--root", root)
    assert (done.code, done.err.count("[nri-required]")) == (0, 1)
    assert "not even for system pods" in done.err
    again = cdigen("configure", runtime, "--nri-required", "--json", "--root", root)
    assert (again.json["files"], again.json["findings"]) == ([], [])
    cdigen("configure", runtime, "--undo", "--root", root)
    assert files(root) == before


def test_a_second_undo_has_nothing_to_undo(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root)
    cdigen("configure", "docker", "--undo", "--root", root)
    done = cdigen("configure", "docker", "--undo", "--root", root)
    assert (done.code, done.out) == (0, "")
    assert "nothing to undo: cdigen has changed no file of docker" in done.err


def test_undo_without_a_change_creates_no_state(cdigen: Run, root: Path) -> None:
    assert cdigen("configure", "docker", "--undo", "--root", root).code == 0
    assert not (root / "var").exists()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_dry_run_prints_a_diff_that_patch_accepts_and_changes_nothing(
    cdigen: Run, root: Path, runtime: str
) -> None:
    before = files(root)
    dry = cdigen("configure", runtime, "--dry-run", "--root", root)
    assert dry.code == 0
    assert files(root) == before
    assert not (root / "var").exists()
    # patch(1) does not create the missing folders of an absolute path.
    diff = dry.out.replace("--- /etc", "--- etc").replace("+++ /etc", "+++ etc")
    subprocess.run([tool("patch"), "-p0"], cwd=root, input=diff, text=True, check=True, capture_output=True)
    patched = {path: content for path, (content, _) in files(root).items() if content}
    subprocess.run(
        [tool("patch"), "-p0", "-R"], cwd=root, input=diff, text=True, check=True, capture_output=True
    )
    cdigen("configure", runtime, "--root", root)
    assert {path: content for path, (content, _) in files(root).items() if content} == patched


def test_a_dry_run_prints_no_escape_sequence_from_a_file_name(cdigen: Run, root: Path) -> None:
    file = root / "etc/containers/containers.conf.d/99-\x1b[2J\u00e9.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[engine]\ncdi_spec_dirs = ["/x"]\n')
    dry = cdigen("configure", "podman", "--dry-run", "--root", root)
    assert "\x1b" not in dry.out
    assert '--- "/etc/containers/containers.conf.d/99-\\033[2J\\303\\251.conf"\n' in dry.out
    diff = dry.out.replace('"/etc', '"etc')
    subprocess.run([tool("patch"), "-p0"], cwd=root, input=diff, text=True, check=True, capture_output=True)
    assert "/run/cdi" in file.read_text()


def test_a_dry_run_on_a_terminal_prints_no_escape_sequence_from_the_content_of_a_file(root: Path) -> None:
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


def test_json_has_the_changes_and_the_restart_command(cdigen: Run, root: Path) -> None:
    (root / "run/systemd/system").mkdir(parents=True)
    (root / "usr/lib/systemd/system").mkdir(parents=True)
    (root / "usr/lib/systemd/system/docker.service").touch()
    done = cdigen("configure", "docker", "--json", "--root", root)
    document = done.json
    (file,) = document["files"]
    assert (document["runtime"], document["changed"], document["restarted"]) == ("docker", True, False)
    assert document["restart"] == "systemctl restart docker"
    assert (file["path"], file["result"]) == ("/etc/docker/daemon.json", "changed")
    assert file["keys"] == ["features.cdi", "cdi-spec-dirs"]
    assert "live-restore" in document["findings"][-1]["message"]
    assert cdigen("configure", "docker", "--json", "--root", root).json["files"] == []


def test_without_a_service_the_runtime_must_be_restarted_manually(cdigen: Run, root: Path) -> None:
    assert "to apply the change: restart docker\n" in cdigen("configure", "docker", "--root", root).err
    assert cdigen("configure", "docker", "--undo", "--json", "--root", root).json["restart"] == ""


def test_the_mode_of_a_changed_file_is_kept(cdigen: Run, root: Path) -> None:
    path = root / "etc/docker/daemon.json"
    path.chmod(0o600)
    cdigen("configure", "docker", "--root", root)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_directories_of_the_option_spec_dir_are_added(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root, "--spec-dir", "/srv/a", "--spec-dir", "/srv/b")
    document = json.loads((root / "etc/docker/daemon.json").read_text())
    assert document["cdi-spec-dirs"] == ["/etc/cdi", "/var/run/cdi", "/srv/a", "/srv/b"]


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_undo_refuses_a_file_that_another_program_changed_and_prints_the_difference(
    cdigen: Run, root: Path, arguments: tuple[str, ...]
) -> None:
    cdigen("configure", "docker", "--root", root)
    path = root / "etc/docker/daemon.json"
    path.write_text(path.read_text().replace('"none"', '"br0"'))
    before = files(root)
    done = cdigen("configure", "docker", "--undo", "--root", root, *arguments)
    message = "/etc/docker/daemon.json was changed by another program, and --undo would remove these changes"
    assert (done.code, message in done.err) == (5, True)
    assert '-    "bridge": "br0",\n' in done.out
    assert '+    "bridge": "none"\n' in done.out
    assert files(root) == before
    report = cdigen("configure", "docker", "--undo", "--json", "--root", root, *arguments)
    assert (report.code, report.json["error"]["kind"]) == (5, "changed-since")
    # The administrator restores the original manually. The hint has the path of the original.
    backup = re.search(r"the original is (\S+/configure/docker/[0-9a-f]{64})", done.err)
    assert backup is not None
    path.write_bytes(Path(backup[1]).read_bytes())
    assert "nothing to undo" in cdigen("configure", "docker", "--undo", "--root", root).err
    assert path.read_text() == DAEMON_JSON


def test_a_dry_run_of_undo_prints_the_changes_and_changes_nothing(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root)
    before = files(root)
    dry = cdigen("configure", "docker", "--undo", "--dry-run", "--root", root)
    assert '-    "cdi-spec-dirs": [\n' in dry.out
    assert files(root) == before
    assert (
        cdigen("configure", "docker", "--undo", "--json", "--root", root).json["files"][0]["result"]
        == "restored"
    )


def test_undo_refuses_a_file_that_was_changed_between_two_runs(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root)
    path = root / "etc/docker/daemon.json"
    path.write_text(path.read_text().replace('"none"', '"br0"'))
    assert cdigen("configure", "docker", "--spec-dir", "/srv/cdi", "--root", root).code == 0
    assert cdigen("configure", "docker", "--undo", "--root", root).failed(5, "was changed by another program")
    assert json.loads(path.read_text())["bridge"] == "br0"


def test_undo_keeps_a_drop_in_that_another_program_changed(cdigen: Run, root: Path) -> None:
    cdigen("configure", "crio", "--root", root)
    (path,) = (root / "etc/crio/crio.conf.d").iterdir()
    path.write_text(path.read_text() + "pids_limit = 7\n")
    done = cdigen("configure", "crio", "--undo", "--root", root)
    assert (done.code, "-pids_limit = 7" in done.out) == (5, True)
    assert "pids_limit = 7" in path.read_text()


def test_undo_ignores_a_file_that_another_program_removed(cdigen: Run, root: Path) -> None:
    cdigen("configure", "crio", "--root", root)
    (path,) = (root / "etc/crio/crio.conf.d").iterdir()
    path.unlink()
    assert "nothing to undo" in cdigen("configure", "crio", "--undo", "--root", root).err


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("docker: etc/docker/daemon.json", b'{"a": 1\n,}', ("daemon.json", "line 2")),
        ("docker: etc/docker/daemon.json", b'{"a": 1,\n"a": 2}', ("daemon.json", "'a' occurs twice")),
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


def test_undo_refuses_a_damaged_file_and_works_after_its_repair(cdigen: Run, root: Path) -> None:
    cdigen("configure", "docker", "--root", root)
    path = root / "etc/docker/daemon.json"
    whole = path.read_text()
    path.write_text(whole[:-3])
    assert cdigen("configure", "docker", "--undo", "--root", root).failed(
        5, "daemon.json", "changed by another program"
    )
    path.write_text(whole)
    assert cdigen("configure", "docker", "--undo", "--root", root).code == 0
    assert path.read_text() == DAEMON_JSON


@pytest.mark.needs_user
@pytest.mark.parametrize(
    ("runtime", "path", "mode"),
    [
        ("podman", "containers/containers.conf", 0),
        ("podman", "containers/containers.conf.d", 0o311),
        ("podman", "containers/containers.conf.d/10-own.conf", 0),
        ("crio", "crio/crio.conf.d", 0o311),
        ("crio", "crio/crio.conf.d/10-own.conf", 0),
        ("containerd", "containerd/imported", 0o311),
        ("containerd", "containerd/imported/10-own.conf", 0),
    ],
)
def test_a_file_or_folder_that_the_user_cannot_read_is_not_reported_as_broken(
    cdigen: Run, root: Path, runtime: str, path: str, mode: int
) -> None:
    etc = root / "etc"
    for folder in ("containers/containers.conf.d", "crio/crio.conf.d", "containerd/imported"):
        put(etc / folder / "10-own.conf", "")
    put(etc / "containers/containers.conf", "")
    put(etc / "containerd/config.toml", 'version = 2\nimports = ["/etc/containerd/imported/*.conf"]\n')
    (etc / path).chmod(mode)
    done = cdigen("configure", runtime, "--root", root, "--dry-run")
    (etc / path).chmod(0o755)
    assert done.failed(5, f"cannot read /etc/{path}: Permission denied; run the command as root")
    assert "folder of your own" not in done.err


def test_a_folder_instead_of_a_configuration_file_is_refused(cdigen: Run, root: Path) -> None:
    (root / "etc/docker/daemon.json").unlink()
    (root / "etc/docker/daemon.json").mkdir()
    assert cdigen("configure", "docker", "--root", root).failed(5, "daemon.json")


def test_a_file_that_everyone_may_write_to_is_refused(cdigen: Run, root: Path) -> None:
    (root / "etc/docker/daemon.json").chmod(0o666)
    done = cdigen("configure", "docker", "--root", root)
    assert done.failed(5, "daemon.json", "writable by everyone")
    assert (root / "etc/docker/daemon.json").read_text() == DAEMON_JSON


def test_a_link_out_of_the_root_is_not_followed(
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
def test_contradictory_arguments_are_refused(cdigen: Run, root: Path, arguments: tuple[str, ...]) -> None:
    before = files(root)
    assert cdigen("configure", *arguments, "--root", root).failed(2)
    assert files(root) == before


def test_help_shows_examples(cdigen: Run) -> None:
    done = cdigen("configure", "--help")
    assert done.code == 0
    assert "cdigen configure docker --undo" in done.out


def test_podman_of_this_machine_reads_the_drop_in_without_a_warning(cdigen: Run, tmp_path: Path) -> None:
    """podman 4.3 does not support the key cdi_spec_dirs, and must ignore this key."""
    if not os.path.exists("/usr/bin/podman"):
        cannot_run("there is no podman here")
    cdigen("configure", "podman", "--root", tmp_path)
    (drop_in,) = (tmp_path / "etc/containers/containers.conf.d").iterdir()
    # podman reads only the file in CONTAINERS_CONF.
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
def test_a_missing_runtime_is_configured_with_a_warning(
    cdigen: Run, root: Path, runtime: str, program: str
) -> None:
    (root / "usr/bin" / program).unlink()
    done = cdigen("configure", runtime, "--root", root)
    assert done.code == 0
    written = done.out.split()[1].rstrip(":")
    assert f"{written}: {runtime} is not installed: no {program} in /usr/bin" in done.err
    assert "to apply the change" not in done.err
    report = cdigen("configure", runtime, "--root", root, "--json").json
    assert (next(row["rule"] for row in report["findings"]), report["restart"]) == ("runtime-missing", "")
    (root / "usr/bin" / program).touch(0o755)
    assert "not installed" not in cdigen("configure", runtime, "--root", root).err


def test_a_missing_runtime_is_not_restarted(cdigen: Run, tmp_path: Path) -> None:
    if any(Path(folder, "crio").exists() for folder in FOLDERS):
        cannot_run("CRI-O is installed here")
    config = tmp_path / "config.yaml"
    config.write_text(f"state_dir: {tmp_path}/state\n")
    done = cdigen("configure", "crio", "--restart", "--config", config)
    assert done.failed(2, "crio is not installed", "nothing to restart")
    assert not Path("/etc/crio/crio.conf.d/99-cdigen.conf").exists()
