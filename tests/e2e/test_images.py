"""With every layout and in every image, dlopen of each driver library by SONAME loads the host driver's file.

`cdigen generate --write --layout --hook` writes the specs for a Debian 13 host with its real driver. podman,
runc and crun are Debian's. The dynamic loader of each image loads the libraries.
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

# Libraries that the driver's libraries need and the image lacks.
_NO_OPENSSL = {
    "libnvidia-pkcs11-openssl3.so.550.163.01": "fail libcrypto.so.3: cannot open shared object file: "
    "No such file or directory"
}
LACKING = {REDHAT_IMAGE: _NO_OPENSSL, BULLSEYE_IMAGE: _NO_OPENSSL}

# Without a hook, the loader cache of an image is not changed. The cache of OLD_DRIVER_ELSEWHERE_IMAGE lists
# its old driver. The loader reads the cache before the default folders (ld.so(8)), so it loads that driver.
_OWN_OLD = {
    "libcuda.so.1": "not the host's /opt/old-driver/lib/libcuda.so.535.261.03",
    "libnvidia-ml.so.1": "not the host's /opt/old-driver/lib/libnvidia-ml.so.535.261.03",
}
EXCEPTIONS = {(delivery, OLD_DRIVER_ELSEWHERE_IMAGE): _OWN_OLD for delivery in HOOKLESS}

TOOLKIT_FOLDERS = "/usr/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu"

# Options of podman that change the privileges of mounts and hooks.
USER_NAMESPACE = "--uidmap 0:100000:65536"
MODES = {
    "read-only": "--read-only",
    "user": "--user 1000",
    "user namespace": USER_NAMESPACE,
    "no new privileges": "--security-opt no-new-privileges --cap-drop all",
    "privileged": "--privileged",
}

CRUN = [
    *((delivery, mode) for delivery in WAYS for mode in ("", "--read-only", "--user 1000")),
    *((delivery, USER_NAMESPACE) for delivery in HOOKLESS),  # HOOKED: see the test of crun before 1.27
]


def expected(driven: Driven, delivery: str, image: str) -> dict[str, str]:
    """Return the result of dlopen of each SONAME: the host's file, except for LACKING and EXCEPTIONS."""
    return {**driven.driver, **LACKING.get(image, {}), **EXCEPTIONS.get((delivery, image), {})}


@pytest.mark.parametrize("delivery", WAYS)
@pytest.mark.parametrize("image", GLIBC_IMAGES)
def test_every_library_of_the_driver_loads_by_its_soname(driven: HostOf, delivery: str, image: str) -> None:
    host = driven(delivery)
    assert len(host.driver) > 20
    assert host.loaded(image) == expected(host, delivery, image)


@pytest.mark.parametrize("delivery", ["files", "files+hook"])
@pytest.mark.parametrize("image", [DEBIAN_IMAGE, REDHAT_IMAGE])
def test_the_first_folder_that_has_libcuda_has_every_library_of_the_driver(
    driven: HostOf, delivery: str, image: str
) -> None:
    # In a nested container, nvidia-ctk uses the first of these folders that contains libcuda. Before release
    # 1.20, nvidia-ctk also searched all other libraries only in that folder.
    search = (
        f"for folder in / {TOOLKIT_FOLDERS}; do ls $folder/libcuda.so.550.163.01 && ls $folder && break; done"
    )
    host = driven(delivery)
    found = host.run(image, f"sh -c {shlex.quote(search)} 2>/dev/null").split()
    assert {os.path.basename(path) for path in host.driver.values()} <= set(found)


@pytest.mark.parametrize("delivery", WAYS)
@pytest.mark.parametrize("mode", MODES)
def test_every_library_loads_in_every_mode(driven: HostOf, delivery: str, mode: str) -> None:
    host = driven(delivery)
    assert host.loaded(DEBIAN_IMAGE, options=MODES[mode]) == host.driver


@pytest.mark.parametrize("delivery", WAYS)
def test_every_library_loads_in_a_rootless_container(driven: HostOf, delivery: str) -> None:
    host = driven(delivery)
    assert without_root(host.host).loaded(REDHAT_IMAGE) == expected(host, delivery, REDHAT_IMAGE)


@pytest.mark.parametrize(("delivery", "mode"), CRUN)
def test_every_library_loads_in_a_container_of_crun(driven: HostOf, delivery: str, mode: str) -> None:
    host = driven(delivery)
    # crun before 1.26, such as this one, makes the root read-only before the hook runs (crun's NEWS). The
    # loader then finds the libraries in the hwcaps folders.
    assert with_crun(host.host).loaded(DEBIAN_IMAGE, options=mode) == host.driver


@pytest.mark.parametrize("hook", ["/usr/bin/python3", "/bin/true"])
def test_crun_before_1_27_starts_no_container_with_a_hook_and_a_user_namespace(
    driven: HostOf, hook: str
) -> None:
    """crun cannot enter the bundle's folder, so it reports exit code 1 (crun pull request 2035)."""
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


@pytest.mark.parametrize("delivery", WAYS)
def test_an_image_with_the_loader_of_musl_starts(driven: HostOf, delivery: str) -> None:
    answer = driven(delivery).attempt(MUSL_IMAGE, "dlopen-all libtiny.so")
    assert answer.stdout == "ok /usr/lib/libtiny.so\n"
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("delivery", HOOKED)
@pytest.mark.parametrize("image", [DEBIAN_IMAGE, MUSL_IMAGE])
def test_a_restarted_container_has_the_same_loader_cache(driven: HostOf, delivery: str, image: str) -> None:
    host = driven(delivery).host
    create = f"podman create --device {DEVICE} {image} sh -c 'md5sum </etc/ld.so.cache'"
    sums = host.run(f"id=$({create}); for _ in 1 2 3; do podman start --attach $id; done; podman rm $id")
    first, second, third, _ = sums.splitlines()
    assert first == second == third


@pytest.mark.parametrize("delivery", HOOKLESS)
@pytest.mark.parametrize("image", [DEBIAN_IMAGE, REDHAT_IMAGE, BULLSEYE_IMAGE])
def test_without_a_hook_triton_gets_the_folder_of_libcuda(driven: HostOf, delivery: str, image: str) -> None:
    """Without TRITON_LIBCUDA_PATH, Triton would read `ldconfig -p`, which does not list libcuda."""
    found = driven(delivery).run(image, "sh -c 'dlopen-all $TRITON_LIBCUDA_PATH/libcuda.so.1'")
    assert found.startswith("ok /usr/lib/x86_64-linux-gnu/")


def test_nvidia_smi_starts_and_cannot_communicate_with_the_driver(driven: HostOf) -> None:
    for delivery in WAYS:
        answer = driven(delivery).attempt(DEBIAN_IMAGE, "nvidia-smi")
        assert "couldn't communicate with the NVIDIA driver" in answer.stdout, (delivery, answer)
