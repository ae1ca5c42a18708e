"""The purge script of the Debian package removes cdigen's files, here in private /etc, /run and /var/lib."""

import subprocess

import pytest
from support.daemon.host import unshared
from support.paths import REPOSITORY
from support.processes import captured

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("own_mounts")]

SCRIPT = """
set -e
for folder in /etc /run /var/lib; do mount -t tmpfs -o mode=0755 none $folder; done
state=/var/lib/cdigen
mkdir -p /etc/cdigen /run/cdigen /run/cdi $state/views/nvidia-0123456789abcdef $state/volumes
touch $state/state.json $state/.cdigen-state.json.1.deadbeef.tmp $state/views/boot-id
mkdir /var/lib/precious
touch /var/lib/precious/file
{prepare}
sh packaging/debian/cdigen.postrm purge
find /etc /run /var/lib -mindepth 1 ! -path '/run/mount*'
"""
OTHER_FILES = {"/var/lib/precious", "/var/lib/precious/file"}


def purged(prepare: str) -> subprocess.CompletedProcess[str]:
    command = [*unshared("--mount"), "sh", "-c", SCRIPT.format(prepare=prepare)]
    return captured(command, cwd=REPOSITORY)


def test_a_purge_removes_all_files_of_the_package() -> None:
    result = purged("mkdir -p /var/lib/cdigen/configure/docker; touch /var/lib/cdigen/configure/docker/lock")
    assert (result.returncode, result.stderr) == (0, "")
    assert set(result.stdout.split()) == OTHER_FILES


def test_the_saved_files_of_configured_runtimes_stay_and_a_message_is_printed() -> None:
    folder = "/var/lib/cdigen/configure"
    result = purged(f"mkdir -p {folder}/docker; touch {folder}/docker/record.json")
    assert result.returncode == 0
    assert f"cdigen: {folder} stays: it has the files that 'cdigen configure' replaced" in result.stderr
    kept = {"/var/lib/cdigen", folder, f"{folder}/docker", f"{folder}/docker/record.json"}
    assert set(result.stdout.split()) == OTHER_FILES | kept


@pytest.mark.parametrize("folder", ["/run/cdigen/m", "/var/lib/cdigen/volumes", "/etc/cdigen/m"])
def test_files_below_a_mount_stay(folder: str) -> None:
    result = purged(f"mkdir -p {folder}; mount --bind /var/lib/precious {folder}")
    assert result.returncode == 0
    assert "stays: a file system is mounted there" in result.stderr
    assert "/var/lib/precious/file" in result.stdout
