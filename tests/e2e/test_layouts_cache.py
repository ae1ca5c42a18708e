"""After the hook's run, the loader cache has the driver's libraries and the image's entries in their order.

The tests read the cache with `ldconfig -p`, the loader and Python of each image.
"""

import pytest
from support.containers.chroot_host import (
    BULLSEYE_IMAGE,
    DEBIAN_IMAGE,
    GLIBC_IMAGES,
    MANY_IMAGE,
    NO_CACHE_IMAGE,
    REDHAT_IMAGE,
)
from support.containers.gpu_hosts import HOOKED, HOOKLESS, HostOf, cache_entries

pytestmark = pytest.mark.e2e

WITH_CACHE = tuple(image for image in GLIBC_IMAGES if image != NO_CACHE_IMAGE)
WITH_PYTHON = tuple(image for image in GLIBC_IMAGES if image != REDHAT_IMAGE)

FIND_LIBRARY = "python3 -c \"import ctypes.util; print(ctypes.util.find_library('cuda'))\""


def names(entries: list[str]) -> list[str]:
    return [entry.split()[0] for entry in entries]


@pytest.mark.parametrize("delivery", HOOKED)
@pytest.mark.parametrize("image", GLIBC_IMAGES)
def test_ldconfig_lists_each_driver_library_before_other_libraries_with_its_soname(
    driven: HostOf, delivery: str, image: str
) -> None:
    host = driven(delivery)
    rows = [entry.split() for entry in cache_entries(host.run(image, "ldconfig -p"))]
    first = {row[0]: row[-1] for row in reversed(rows) if row[0] in host.driver}
    numbers = host.run(image, f"stat -L -c %d:%i {' '.join(first.values())}").split()
    files = host.host.run(f"stat -c %d:%i {' '.join(host.driver.values())}").split()
    wanted = dict(zip(host.driver, files, strict=True))
    assert dict(zip(first, numbers, strict=True)) == wanted


@pytest.mark.parametrize("delivery", HOOKED)
@pytest.mark.parametrize("image", WITH_CACHE)
def test_all_cache_entries_of_the_image_remain_in_their_order(
    driven: HostOf, delivery: str, image: str
) -> None:
    host = driven(delivery)
    before = cache_entries(host.plain(image, "ldconfig -p"))
    after = cache_entries(host.run(image, "ldconfig -p"))
    assert len(before) > 20
    assert [entry for entry in after if entry in set(before)] == before


@pytest.mark.parametrize("delivery", HOOKED)
@pytest.mark.parametrize("image", WITH_PYTHON)
def test_python_finds_libcuda(driven: HostOf, delivery: str, image: str) -> None:
    assert driven(delivery).run(image, FIND_LIBRARY) == "libcuda.so.1\n"


@pytest.mark.parametrize("delivery", HOOKED)
@pytest.mark.parametrize("image", GLIBC_IMAGES)
def test_the_driver_loads_after_ldconfig_in_the_container(driven: HostOf, delivery: str, image: str) -> None:
    """Programs that install packages run ldconfig. The new cache must still lead to the host's files."""
    host = driven(delivery)
    after = host.loaded(image, ["libcuda.so.1", "libnvidia-ml.so.1"], before="ldconfig")
    assert after == {name: host.driver[name] for name in after}
    listed = cache_entries(host.run(image, 'sh -c "ldconfig && ldconfig -p"'))
    assert "libcuda.so.1" in names(listed)


@pytest.mark.parametrize("image", [MANY_IMAGE, DEBIAN_IMAGE, BULLSEYE_IMAGE])
@pytest.mark.parametrize("delivery", HOOKED)
def test_libraries_of_the_image_load_from_the_same_files_with_and_without_a_gpu(
    driven: HostOf, delivery: str, image: str
) -> None:
    """Libraries with a build for newer processors (glibc-hwcaps) are in the extension of the cache."""
    host = driven(delivery)
    wanted = sorted({*names(cache_entries(host.plain(image, "ldconfig -p")))} - {*host.driver})[:500]
    before = host.plain(image, f"sh -c 'dlopen-all {' '.join(wanted)} || true'")
    after = host.run(image, f"sh -c 'dlopen-all {' '.join(wanted)} || true'")
    assert after == before


@pytest.mark.parametrize("delivery", HOOKLESS)
def test_without_a_hook_the_loader_cache_is_unchanged(driven: HostOf, delivery: str) -> None:
    host = driven(delivery)
    assert host.run(MANY_IMAGE, "ldconfig -p") == host.plain(MANY_IMAGE, "ldconfig -p")


@pytest.mark.parametrize("delivery", HOOKLESS)
def test_without_a_hook_ldconfig_in_the_container_finds_the_driver(driven: HostOf, delivery: str) -> None:
    listed = driven(delivery).run(DEBIAN_IMAGE, 'sh -c "ldconfig && ldconfig -p"')
    assert "libcuda.so.1 " in listed


@pytest.mark.parametrize("delivery", HOOKED)
def test_the_hook_prints_nothing_on_success(driven: HostOf, delivery: str) -> None:
    for image in GLIBC_IMAGES:
        answer = driven(delivery).attempt(image, "true")
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", ""), image
