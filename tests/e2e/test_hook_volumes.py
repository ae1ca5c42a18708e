"""Volumes and ways to run a container that make a part of the host a part of it: what the hook leaves.

test_layouts_volumes.py has what every layout leaves; here it is the hook alone, and each volume meets a
profile that requires every step, so that its reason is seen.
"""

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE
from support.containers.gpu_hosts import DEVICE, HostOf
from support.containers.hostile_images import STRICT, Target, arm, hook_lines

pytestmark = pytest.mark.e2e

# A volume, and the place where the hook stops; "" where it need not.
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
OTHER_MOUNT = "another mount than the container's root lies there, which may be the host's"


@pytest.fixture(scope="module")
def target(driven: HostOf, tmp_path_factory: pytest.TempPathFactory) -> Target:
    made = arm(driven("view+hook").host, tmp_path_factory.mktemp("canaries"))
    made.host.run(
        f"""rm -rf /srv/etc /srv/compat; mkdir -p /srv/compat /srv/empty /srv/mnt /usr/local/nvidia
        id=$(podman create {DEBIAN_IMAGE} true)
        podman cp $id:/etc /srv/etc; podman rm $id >/dev/null
        podman volume create --ignore etc >/dev/null"""
    )
    # No runtime can mount where it can make nothing to mount on: read-only serves after writable.
    for folder in ("/etc", "/usr/lib", "/usr/lib64", "/usr/share"):
        made.start(options=f"-v {folder}:{folder}")
    return made


@pytest.mark.parametrize("volume", VOLUMES)
def test_the_hook_leaves_what_a_volume_brings_in(target: Target, volume: str) -> None:
    look = "find /srv -printf '%p %y %m %i %s %T@ %l\\n'"
    target.start(options=volume)  # runtimes make what they mount on, in any case
    before = target.host.run(look)
    with target.untouched():
        said = target.said("", options=volume)
    place = VOLUMES[volume]
    assert (f" {place}: {OTHER_MOUNT};" in said) if place else not said
    assert target.host.run(look) == before


@pytest.mark.parametrize("mode", MODES)
def test_the_hook_does_its_work_however_a_container_is_run(target: Target, mode: str) -> None:
    with target.untouched():
        assert target.said("", options=mode) == ""
        listed = target.start(options=mode, command="ldconfig -p").stdout
    assert "libcuda.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libcuda.so.1" in listed


# The host's root, under several names.
ROOTS = {
    "volume": f"-v /:/ {DEBIAN_IMAGE}",
    "root": "--rootfs /",
    "another mount of it": "--rootfs /srv/mnt",
    "link to it": "--rootfs /srv/link",
}


@pytest.mark.parametrize("root", ROOTS)
def test_the_hosts_own_root_is_no_containers(target: Target, root: str) -> None:
    target.host.run("mount --bind / /srv/mnt; ln -sfn / /srv/link; mkdir -p /usr/local/nvidia")
    run = f"podman run --rm --device {{}} {ROOTS[root]} true"
    target.host.attempt(run.format(DEVICE))  # runtimes make what they mount on
    with target.untouched():
        lenient = target.host.attempt(run.format(DEVICE))
        strict = target.host.attempt(run.format(STRICT))
    target.host.run("umount /srv/mnt")
    assert strict.returncode != 0
    lines = hook_lines(strict.stderr)
    assert lines == [] or "the container's root is the host's; no step is done" in lines[0]
    assert lines or lenient.returncode != 0  # podman or runc would not have it either
