"""A user's volumes over /etc and /usr: no file of the host changes, whatever lies where a hook or mount goes.

`-v /etc:/etc` makes the host's own /etc part of the container, so a hook that merely wrote to the
container's /etc/ld.so.cache would write the host's. Runtimes themselves put empty files and folders into a
volume, to have something to mount on; those are looked at one by one.
"""

import json

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host
from support.containers.gpu_hosts import WAYS, Driven, HostOf

pytestmark = pytest.mark.e2e

# COPY is a copy of the image's /etc, outside of what is compared.
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
    """Map each path of the host's /etc, /usr and views to all that changes when it is written.

    A folder's times and size tell no more than that something was made in it, so they are left out. So are a
    file's number of links and time of change: the trees of all hosts are hard links to the same files.
    """
    listed = host.run(
        "find /etc /usr /var/lib/cdigen -xdev \\( -type d -printf '%p d %m %U %G\\n' \\) "
        "-o -printf '%p %y %m %U %G %i %s %T@ %l\\n'"
    )
    return {line.split(" ", 1)[0]: tuple(line.split(" ")[1:]) for line in listed.splitlines()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("volume", VOLUMES)
def test_a_volume_leaves_every_file_of_the_host_as_it_was(driven: HostOf, way: str, volume: str) -> None:
    host = driven(way)
    options = VOLUMES[volume].replace("COPY", copy_of_etc(host.host))
    assert_started_and_nothing_changed(host, options)


@pytest.mark.parametrize("way", WAYS)
def test_the_hosts_usr_read_only_serves_once_a_writable_one_made_what_to_mount_on(
    driven: HostOf, way: str
) -> None:
    """No runtime can mount where it can make nothing to mount on; the host's /usr/lib64 is almost empty."""
    host = driven(way)
    before = files_of(host.host)
    answer = host.attempt(DEBIAN_IMAGE, "true", options="-v /usr:/usr:ro")
    if answer.returncode:  # else a test before this one has made what to mount on
        assert "create mount destination for /usr/l" in answer.stderr
        assert "read-only file system" in answer.stderr
    assert files_of(host.host) == before
    assert_started_and_nothing_changed(host, "-v /usr:/usr")
    assert_started_and_nothing_changed(host, "-v /usr:/usr:ro")


def assert_started_and_nothing_changed(host: Driven, options: str) -> None:
    host.host.attempt(f"podman run --rm {options} {DEBIAN_IMAGE} true")  # makes what it makes in any case
    before = files_of(host.host)
    answer = host.attempt(DEBIAN_IMAGE, "echo started", options=options)
    assert (answer.returncode, answer.stdout) == (0, "started\n"), answer.stderr
    after = files_of(host.host)
    assert {path: after.get(path) for path in before} == before
    assert made_to_mount_on(host.host, set(after) - set(before))


def made_to_mount_on(host: Host, paths: set[str]) -> bool:
    """Tell whether each of these new paths of the host is what a mount of the spec needs below a volume."""
    spec = json.loads(host.run("cat /run/cdi/nvidia.com-gpu.json"))
    targets = [mount["containerPath"] for mount in spec["containerEdits"]["mounts"]]
    resolved = host.run(f"readlink --canonicalize-missing {' '.join(targets)}").splitlines()
    empty = host.run(f"find {' '.join(paths)} -maxdepth 0 \\( -type d -o -empty \\)") if paths else ""
    return set(empty.splitlines()) == paths and all(
        any(target == path or target.startswith(f"{path}/") for target in resolved) for path in paths
    )


def copy_of_etc(host: Host) -> str:
    """Return a folder of the host with the image's /etc, outside of what is compared."""
    host.run(
        f"""[ -d /srv/etc ] && exit
        id=$(podman create {DEBIAN_IMAGE} true); podman cp $id:/etc /srv/etc; podman rm $id >/dev/null"""
    )
    return "/srv/etc"
