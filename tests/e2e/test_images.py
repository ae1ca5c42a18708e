"""Every layout in every image: dlopen of each driver library by SONAME takes the host driver's file.

The specs are what `cdigen generate --write --layout --hook` writes for a Debian 13 host with its real driver;
podman and runc (crun where it says so) are Debian's, and the images' own dynamic loaders are the judges.
"""

import json
import os
import shlex

import pytest
from support.containers.chroot_host import (
    BULLSEYE_IMAGE,
    DEBIAN_IMAGE,
    GLIBC_IMAGES,
    MUSL_IMAGE,
    OLD_DRIVER_ELSEWHERE_IMAGE,
    REDHAT_IMAGE,
)
from support.containers.gpu_hosts import (
    DEVICE,
    HOOKED,
    HOOKLESS,
    WAYS,
    Driven,
    HostOf,
    with_crun,
    without_root,
)

pytestmark = pytest.mark.e2e

# What an image lacks: libraries that the driver's ask for and the image does not have.
_NO_OPENSSL = {
    "libnvidia-pkcs11-openssl3.so.550.163.01": "fail libcrypto.so.3: cannot open shared object file: "
    "No such file or directory"
}
LACKING = {REDHAT_IMAGE: _NO_OPENSSL, BULLSEYE_IMAGE: _NO_OPENSSL}

# Where nothing runs at the start, an image's cache is as it was. It names the image's own old driver, and the
# loader asks it before any default folder (ld.so(8)): these two come from the image.
_OWN_OLD = {
    "libcuda.so.1": "not the host's /opt/old-driver/lib/libcuda.so.535.261.03",
    "libnvidia-ml.so.1": "not the host's /opt/old-driver/lib/libnvidia-ml.so.535.261.03",
}
EXCEPTIONS = {(way, OLD_DRIVER_ELSEWHERE_IMAGE): _OWN_OLD for way in HOOKLESS}

TOOLKIT_FOLDERS = "/usr/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu"

# Ways to run a container that change what a mount or a hook can do.
USER_NAMESPACE = "--uidmap 0:100000:65536"
MODES = {
    "read-only": "--read-only",
    "user": "--user 1000",
    "user namespace": USER_NAMESPACE,
    "no new privileges": "--security-opt no-new-privileges --cap-drop all",
    "privileged": "--privileged",
}

CRUN = [
    *((way, mode) for way in WAYS for mode in ("", "--read-only", "--user 1000")),
    *((way, USER_NAMESPACE) for way in HOOKLESS),  # with a hook: see the test after
]


def expected(driven: Driven, way: str, image: str) -> dict[str, str]:
    """Return what dlopen of each SONAME gives: the host's file, but for the exceptions above."""
    return {**driven.driver, **LACKING.get(image, {}), **EXCEPTIONS.get((way, image), {})}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("image", GLIBC_IMAGES)
def test_every_library_of_the_driver_loads_by_its_soname(driven: HostOf, way: str, image: str) -> None:
    host = driven(way)
    assert len(host.driver) > 20
    assert host.loaded(image) == expected(host, way, image)


@pytest.mark.parametrize("way", ["files", "files+hook"])
@pytest.mark.parametrize("image", [DEBIAN_IMAGE, REDHAT_IMAGE])
def test_tools_in_the_container_find_every_library_by_the_drivers_version(
    driven: HostOf, way: str, image: str
) -> None:
    # As nvidia-ctk looks, when it gives the GPU on: the first of these folders that has libcuda, and before
    # 1.20 all others in that one.
    look = (
        f"for folder in / {TOOLKIT_FOLDERS}; do ls $folder/libcuda.so.550.163.01 && ls $folder && break; done"
    )
    host = driven(way)
    found = host.run(image, f"sh -c {shlex.quote(look)} 2>/dev/null").split()
    assert {os.path.basename(path) for path in host.driver.values()} <= set(found)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
def test_every_library_loads_however_the_container_is_run(driven: HostOf, way: str, mode: str) -> None:
    host = driven(way)
    assert host.loaded(DEBIAN_IMAGE, options=MODES[mode]) == host.driver


@pytest.mark.parametrize("way", WAYS)
def test_every_library_loads_in_a_container_without_root(driven: HostOf, way: str) -> None:
    host = driven(way)
    assert without_root(host.host).loaded(REDHAT_IMAGE) == expected(host, way, REDHAT_IMAGE)


@pytest.mark.parametrize(("way", "mode"), CRUN)
def test_every_library_loads_where_crun_starts_the_container(driven: HostOf, way: str, mode: str) -> None:
    host = driven(way)
    # crun before 1.26, as here, makes the root read-only before the hook runs (crun's NEWS): the libraries
    # are then found in the folders for capable processors.
    assert with_crun(host.host).loaded(DEBIAN_IMAGE, options=mode) == host.driver


@pytest.mark.parametrize("hook", ["/usr/bin/python3", "/bin/true"])
def test_crun_before_1_27_starts_no_container_with_a_hook_and_a_user_namespace(
    driven: HostOf, hook: str
) -> None:
    """It cannot enter the bundle's folder: the hook ends with 1 before it begins (crun pull request 2035)."""
    host = driven("view+hook").host
    spec = json.loads(host.run("cat /run/cdi/nvidia.com-gpu.json"))
    spec["kind"] = "example.com/hook"
    spec["containerEdits"]["hooks"][0] |= {"path": hook}
    host.put("/etc/cdi/hook.json", json.dumps(spec))
    crun = with_crun(host)
    answer = host.attempt(
        f"{crun.podman.replace(DEVICE, 'example.com/hook=0')} {USER_NAMESPACE} {DEBIAN_IMAGE} true"
    )
    assert answer.returncode != 0
    assert f"error executing hook `{hook}` (exit code: 1)" in answer.stderr


@pytest.mark.parametrize("way", WAYS)
def test_an_image_with_another_loader_starts_unharmed(driven: HostOf, way: str) -> None:
    answer = driven(way).attempt(MUSL_IMAGE, "dlopen-all libtiny.so")
    assert answer.stdout == "ok /usr/lib/libtiny.so\n"
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("way", HOOKED)
@pytest.mark.parametrize("image", [DEBIAN_IMAGE, MUSL_IMAGE])
def test_a_container_that_is_started_again_has_the_same_cache(driven: HostOf, way: str, image: str) -> None:
    host = driven(way).host
    create = f"podman create --device {DEVICE} {image} sh -c 'md5sum </etc/ld.so.cache'"
    sums = host.run(f"id=$({create}); for _ in 1 2 3; do podman start --attach $id; done; podman rm $id")
    first, second, third, _ = sums.splitlines()
    assert first == second == third


@pytest.mark.parametrize("way", HOOKLESS)
@pytest.mark.parametrize("image", [DEBIAN_IMAGE, REDHAT_IMAGE, BULLSEYE_IMAGE])
def test_without_a_hook_triton_is_told_the_folder_of_libcuda(driven: HostOf, way: str, image: str) -> None:
    """It asks `ldconfig -p` otherwise, which does not know it."""
    found = driven(way).run(image, "sh -c 'dlopen-all $TRITON_LIBCUDA_PATH/libcuda.so.1'")
    assert found.startswith("ok /usr/lib/x86_64-linux-gnu/")


def test_nvidia_smi_asks_the_driver_in_every_layout(driven: HostOf) -> None:
    for way in WAYS:
        answer = driven(way).attempt(DEBIAN_IMAGE, "nvidia-smi")
        assert "couldn't communicate with the NVIDIA driver" in answer.stdout, (way, answer)
