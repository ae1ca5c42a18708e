"""The start-up hook does not change host files that are in the container because of a volume or an option.

test_layouts_volumes.py tests every layout. This module tests only the hook, with a profile that requires
every step, so that the runtime prints the hook's messages.
"""

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE
from support.containers.gpu_hosts import DEVICE, HostOf
from support.containers.hostile_images import STRICT, Target, arm, hook_lines

pytestmark = pytest.mark.e2e

# Volume -> the path at which the hook stops, or "" if the hook does not stop.
VOLUMES = {
    "-v /etc:/etc:ro": "/etc",
    "-v /etc:/etc:rshared": "/etc",
    "-v /etc:/etc:rslave": "/etc",
    "-v /etc:/etc:O": "/etc",
    "-v etc:/etc": "/etc",
    "-v /srv/etc:/etc": "/etc",
    "-v /srv/etc:/etc:U": "/etc",
    "--tmpfs /etc": "/etc",
    "--read-only --tmpfs /etc": "/etc",
    "--read-only -v /etc:/etc:ro": "/etc",
    "--privileged -v /etc:/etc:ro": "/etc",
    "--pid host -v /etc:/etc:ro": "/etc",
    "-v /etc/ld.so.cache:/etc/ld.so.cache": "/etc/ld.so.cache",
    "-v /etc/ld.so.cache:/etc/ld.so.cache:ro": "/etc/ld.so.cache",
    "-v /etc/ld.so.conf.d:/etc/ld.so.conf.d": "",
    "-v /srv/etc/ld.so.conf:/etc/ld.so.conf.d/00-cdigen.conf": "",
    "-v /usr/lib:/usr/lib:ro": "/usr/lib",
    "-v /srv/empty:/usr/lib/x86_64-linux-gnu": "/usr/lib/x86_64-linux-gnu",
    "-v /usr/local/nvidia:/usr/local/nvidia": "",
    "-v /srv/compat:/usr/local/cuda/compat": "",
    "--mount type=tmpfs,destination=/usr/local": "",
    "-v /:/host": "",
    "-v /proc:/proc": "",
    "-v /proc:/proc:rshared": "",
    "-v /dev:/dev": "",
    "-v /sys:/sys": "",
}
MODES = (
    "--read-only",
    "--user 1000",
    "--user 1000 --read-only --cap-drop all",
    "--uidmap 0:100000:65536",
    "--privileged",
    "--privileged -v /:/host --pid host",
    "--pid host",
    "--ipc host --network host --uts host",
    "--security-opt no-new-privileges",
    "--memory 64m",
    "--pids-limit 16",
    "--ulimit fsize=4096:4096",
)
OTHER_MOUNT = "is on another mount than the container's root, possibly a mount of the host"


@pytest.fixture(scope="module")
def target(driven: HostOf, tmp_path_factory: pytest.TempPathFactory) -> Target:
    made = arm(driven("view+hook").host, tmp_path_factory.mktemp("canaries"))
    made.host.run(
        f"""rm -rf /srv/etc /srv/compat; mkdir -p /srv/compat /srv/empty /srv/mnt /usr/local/nvidia
        id=$(podman create {DEBIAN_IMAGE} true)
        podman cp $id:/etc /srv/etc; podman rm $id >/dev/null
        podman volume create --ignore etc >/dev/null"""
    )
    # Writable volumes are mounted first, because a runtime cannot make mount points in a read-only volume.
    for folder in ("/etc", "/usr/lib", "/usr/lib64", "/usr/share"):
        made.start(options=f"-v {folder}:{folder}")
    return made


@pytest.mark.parametrize("volume", VOLUMES)
def test_the_hook_does_not_change_files_of_a_volume(target: Target, volume: str) -> None:
    list_files = "find /srv -printf '%p %y %m %i %s %T@ %l\\n'"
    target.start(options=volume)  # the runtime makes missing mount points
    before = target.host.run(list_files)
    with target.untouched():
        messages = target.hook_messages("", options=volume)
    place = VOLUMES[volume]
    assert (f" {place}: {OTHER_MOUNT};" in messages) if place else not messages
    assert target.host.run(list_files) == before


@pytest.mark.parametrize("mode", MODES)
def test_the_hook_updates_the_loader_cache_in_every_mode(target: Target, mode: str) -> None:
    with target.untouched():
        assert target.hook_messages("", options=mode) == ""
        listed = target.start(options=mode, command="ldconfig -p").stdout
    assert "libcuda.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libcuda.so.1" in listed


# Arguments of podman that make the host's root the root of the container.
ROOTS = {
    "volume": f"-v /:/ {DEBIAN_IMAGE}",
    "root": "--rootfs /",
    "another mount of it": "--rootfs /srv/mnt",
    "link to it": "--rootfs /srv/link",
}


@pytest.mark.parametrize("root", ROOTS)
def test_the_hook_runs_no_step_if_the_containers_root_is_the_hosts_root(target: Target, root: str) -> None:
    target.host.run("mount --bind / /srv/mnt; ln -sfn / /srv/link; mkdir -p /usr/local/nvidia")
    run = f"podman run --rm --device {{}} {ROOTS[root]} true"
    target.host.attempt(run.format(DEVICE))  # the runtime makes missing mount points
    with target.untouched():
        lenient = target.host.attempt(run.format(DEVICE))
        strict = target.host.attempt(run.format(STRICT))
    target.host.run("umount /srv/mnt")
    assert strict.returncode != 0
    lines = hook_lines(strict.stderr)
    assert lines == [] or "the container's root is the host's root; no step is run" in lines[0]
    assert lines or lenient.returncode != 0  # podman or runc may refuse the root first
