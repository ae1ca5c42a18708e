"""A user's volumes over /etc and /usr of a container cause no change of the host's files.

`-v /etc:/etc` makes the host's own /etc part of the container, so a hook that writes to the container's
/etc/ld.so.cache would write the host's file. Runtimes make empty files and folders in a volume as mount
points. The tests check each of these mount points.
"""

import json

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host
from support.containers.gpu_hosts import WAYS, Driven, HostOf

pytestmark = pytest.mark.e2e

# COPY is a copy of the image's /etc, outside of the compared folders.
VOLUMES = {
    "host /etc": "-v /etc:/etc",
    "host /etc, read-only": "-v /etc:/etc:ro",
    "copy of /etc": "-v COPY:/etc",
    "host ld.so.cache": "-v /etc/ld.so.cache:/etc/ld.so.cache",
    "host ld.so.cache, read-only": "-v /etc/ld.so.cache:/etc/ld.so.cache:ro",
    "host ld.so.conf.d": "-v /etc/ld.so.conf.d:/etc/ld.so.conf.d",
    "host /usr/local": "-v /usr/local:/usr/local",
    "host library folder": "-v /usr/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu",
    "tmpfs on /etc": "--mount type=tmpfs,destination=/etc",
    "tmpfs on /usr/local": "--mount type=tmpfs,destination=/usr/local",
    "host / elsewhere": "-v /:/host",
}

Files = dict[str, tuple[str, ...]]


def files_of(host: Host) -> Files:
    """Return, for each path of the host's /etc, /usr and views, the properties that a write changes.

    Times and sizes of folders are omitted, because new mount points change them. Link counts and change times
    of files are omitted, because the trees of all hosts are hard links to the same files.
    """
    listed = host.run(
        "find /etc /usr /var/lib/cdigen -xdev \\( -type d -printf '%p d %m %U %G\\n' \\) "
        "-o -printf '%p %y %m %U %G %i %s %T@ %l\\n'"
    )
    return {line.split(" ", 1)[0]: tuple(line.split(" ")[1:]) for line in listed.splitlines()}


@pytest.mark.parametrize("delivery", WAYS)
@pytest.mark.parametrize("volume", VOLUMES)
def test_a_volume_changes_no_file_of_the_host(driven: HostOf, delivery: str, volume: str) -> None:
    host = driven(delivery)
    options = VOLUMES[volume].replace("COPY", copy_of_etc(host.host))
    assert_started_and_nothing_changed(host, options)


@pytest.mark.parametrize("delivery", WAYS)
def test_the_hosts_usr_is_a_valid_read_only_volume_after_its_mount_points_exist(
    driven: HostOf, delivery: str
) -> None:
    """The host's /usr/lib64 lacks mount points, which a runtime cannot make in a read-only volume."""
    host = driven(delivery)
    before = files_of(host.host)
    answer = host.attempt(DEBIAN_IMAGE, "true", options="-v /usr:/usr:ro")
    if answer.returncode:  # otherwise an earlier test has made the mount points
        assert "create mount destination for /usr/l" in answer.stderr
        assert "read-only file system" in answer.stderr
    assert files_of(host.host) == before
    assert_started_and_nothing_changed(host, "-v /usr:/usr")
    assert_started_and_nothing_changed(host, "-v /usr:/usr:ro")


def assert_started_and_nothing_changed(host: Driven, options: str) -> None:
    host.host.attempt(f"podman run --rm {options} {DEBIAN_IMAGE} true")  # this makes the mount points
    before = files_of(host.host)
    answer = host.attempt(DEBIAN_IMAGE, "echo started", options=options)
    assert (answer.returncode, answer.stdout) == (0, "started\n"), answer.stderr
    after = files_of(host.host)
    assert {path: after.get(path) for path in before} == before
    assert are_mount_points(host.host, set(after) - set(before))


def are_mount_points(host: Host, paths: set[str]) -> bool:
    """Return whether each of PATHS is an empty mount point of the spec, or a folder above a mount point."""
    spec = json.loads(host.run("cat /run/cdi/nvidia.com-gpu.json"))
    targets = [mount["containerPath"] for mount in spec["containerEdits"]["mounts"]]
    resolved = host.run(f"readlink --canonicalize-missing {' '.join(targets)}").splitlines()
    empty = host.run(f"find {' '.join(paths)} -maxdepth 0 \\( -type d -o -empty \\)") if paths else ""
    return set(empty.splitlines()) == paths and all(
        any(target == path or target.startswith(f"{path}/") for target in resolved) for path in paths
    )


def copy_of_etc(host: Host) -> str:
    """Return a folder of the host with the image's /etc, outside of the compared folders."""
    host.run(
        f"""[ -d /srv/etc ] && exit
        id=$(podman create {DEBIAN_IMAGE} true); podman cp $id:/etc /srv/etc; podman rm $id >/dev/null"""
    )
    return "/srv/etc"
