"""The removal of cdigen also removes its state, but not the files of other programs.

The tests run as root in a mount namespace with separate /etc, /run and /var/lib.
"""

import shlex
import subprocess
import sys

import pytest
from support.daemon.host import unshared
from support.paths import REPOSITORY
from support.processes import captured

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("own_mounts")]

BEGIN = """
set -e
for folder in /etc /run /var/lib; do mount -t tmpfs -o mode=0755 none $folder; done
mkdir -p /etc/cdigen /run/cdigen /run/cdi /var/lib/cdigen/volumes /var/lib/cdigen/views /var/lib/precious
echo x >/var/lib/precious/file
"""
REMOVE = (
    "from cdigen.cli.host import state_removal; state_removal.run(own_hook='/usr/libexec/cdigen/cdigen-hook')"
)
OTHERS = "state_dir: /var/lib/other"


def removed(prepare: str) -> subprocess.CompletedProcess[str]:
    """Run PREPARE and the removal; the output lists the files that stay."""
    program = shlex.join([sys.executable, "-c", REMOVE])
    script = f"{BEGIN}{prepare}\n{program}\nfind /etc/kubernetes /run /var/lib ! -type d 2>/dev/null || true"
    return captured([*unshared("--mount"), "sh", "-c", script], cwd=REPOSITORY)


def left(prepare: str, note: str = "") -> set[str]:
    result = removed(prepare)
    assert result.returncode == 0, result.stderr
    assert note in result.stderr
    return set(result.stdout.split()) - {"/var/lib/precious/file"}


@pytest.mark.parametrize(
    ("prepare", "note"),
    [
        (
            "mkdir /run/cdigen/m; mount --bind /var/lib/precious /run/cdigen/m",
            "/run/cdigen stays: /run/cdigen/m",
        ),
        (
            "mkdir /var/lib/cdigen/volumes/m; mount --bind /var/lib/precious /var/lib/cdigen/volumes/m",
            "/var/lib/cdigen/volumes stays",
        ),
        (
            "cd /var/lib; m=cdigen/views/nvidia-0123456789abcdef/m; mkdir -p $m; mount --bind precious $m",
            "nvidia-0123456789abcdef stays",
        ),
    ],
)
def test_files_on_a_mount_below_cdigens_folders_stay(prepare: str, note: str) -> None:
    result = removed(prepare)
    assert result.returncode == 0, result.stderr
    assert note in result.stderr
    assert "/var/lib/precious/file" in result.stdout


@pytest.mark.parametrize(
    ("prepare", "state"),
    [
        ("chown 65534 /var/lib/cdigen", "/var/lib/cdigen"),
        ("mv /var/lib/cdigen /var/lib/other; ln -s other /var/lib/cdigen", "/var/lib/other"),
        (f"echo '{OTHERS}' >/etc/cdigen/config.yaml; mv /var/lib/cdigen /var/lib/other", "/var/lib/other"),
    ],
)
def test_a_directory_that_other_programs_use_stays(prepare: str, state: str) -> None:
    files = [f"{state}/{name}" for name in ("volumes/db", "lock", "state.json")]
    fill = "; ".join(f"echo '{{}}' >{file}" for file in files)
    found = left(f"{prepare}; {fill}", "stays: ")
    assert found >= set(files)


def test_a_configured_directory_with_cdigens_state_is_removed() -> None:
    document = '{"schema": 1, "home": "/var/lib/other", "specs": {}}'
    prepare = f"echo '{OTHERS}' >/etc/cdigen/config.yaml; mv /var/lib/cdigen /var/lib/other"
    assert left(f"{prepare}; echo '{document}' >/var/lib/other/state.json") == set()


def test_volumes_and_temporary_files_of_killed_writers_are_removed() -> None:
    files = (
        "/var/lib/cdigen/state.json",
        "/var/lib/cdigen/.cdigen-state.json.123.deadbeef.tmp",
        "/run/cdi/.cdigen-nvidia.com-gpu.json.9.deadbeef.tmp",
    )
    link = "ln -s ../views/nvidia-0123456789abcdef /var/lib/cdigen/volumes/nvidia"
    assert left(f"touch {' '.join(files)}; {link}") == set()


def test_the_node_labels_are_removed_and_files_of_other_programs_stay() -> None:
    folder = "/etc/kubernetes/node-feature-discovery/features.d"
    prepare = (
        f"mkdir -p {folder}; printf 'kubelet:\\n  labels: {folder}/cdigen\\n' >/etc/cdigen/config.yaml; "
    )
    mark = "# Written by cdigen kubelet, which replaces it at every change: it"
    assert left(f"{prepare} echo '{mark}' >{folder}/cdigen") == set()
    assert left(f"{prepare} echo 'a=b' >{folder}/cdigen") == {f"{folder}/cdigen"}


def test_the_originals_of_configured_runtimes_stay_until_they_are_restored() -> None:
    folder = "/var/lib/cdigen/configure/docker"
    kept = left(f"mkdir -p {folder}; touch {folder}/lock {folder}/record.json", "'cdigen configure' replaced")
    assert kept == {f"{folder}/lock", f"{folder}/record.json"}
    assert left(f"mkdir -p {folder}; touch {folder}/lock") == set()


def test_files_of_other_programs_in_the_state_directory_are_reported() -> None:
    note = "/var/lib/cdigen/notes.txt stays: cdigen did not write it"
    assert left("touch /var/lib/cdigen/notes.txt", note) == {"/var/lib/cdigen/notes.txt"}
