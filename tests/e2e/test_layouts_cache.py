"""The loader's cache after the hook: the driver is in it, and all that the image had, in its order.

The judges are the images' own `ldconfig -p`, their loaders and their Python.
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


@pytest.mark.parametrize("way", HOOKED)
@pytest.mark.parametrize("image", GLIBC_IMAGES)
def test_ldconfig_lists_every_library_of_the_driver_before_any_other_of_its_name(
    driven: HostOf, way: str, image: str
) -> None:
    host = driven(way)
    rows = [entry.split() for entry in cache_entries(host.run(image, "ldconfig -p"))]
    first = {row[0]: row[-1] for row in reversed(rows) if row[0] in host.driver}
    numbers = host.run(image, f"stat -L -c %d:%i {' '.join(first.values())}").split()
    files = host.host.run(f"stat -c %d:%i {' '.join(host.driver.values())}").split()
    wanted = dict(zip(host.driver, files, strict=True))
    assert dict(zip(first, numbers, strict=True)) == wanted


@pytest.mark.parametrize("way", HOOKED)
@pytest.mark.parametrize("image", WITH_CACHE)
def test_all_that_the_image_had_in_its_cache_is_still_there_and_in_order(
    driven: HostOf, way: str, image: str
) -> None:
    host = driven(way)
    before = cache_entries(host.plain(image, "ldconfig -p"))
    after = cache_entries(host.run(image, "ldconfig -p"))
    assert len(before) > 20
    assert [entry for entry in after if entry in set(before)] == before


@pytest.mark.parametrize("way", HOOKED)
@pytest.mark.parametrize("image", WITH_PYTHON)
def test_python_finds_libcuda(driven: HostOf, way: str, image: str) -> None:
    assert driven(way).run(image, FIND_LIBRARY) == "libcuda.so.1\n"


@pytest.mark.parametrize("way", HOOKED)
@pytest.mark.parametrize("image", GLIBC_IMAGES)
def test_ldconfig_in_the_container_does_not_lose_the_driver(driven: HostOf, way: str, image: str) -> None:
    """Programs that install packages run it. What it makes of the cache must lead to the host's files."""
    host = driven(way)
    after = host.loaded(image, ["libcuda.so.1", "libnvidia-ml.so.1"], before="ldconfig")
    assert after == {name: host.driver[name] for name in after}
    listed = cache_entries(host.run(image, 'sh -c "ldconfig && ldconfig -p"'))
    assert "libcuda.so.1" in names(listed)


@pytest.mark.parametrize("image", [MANY_IMAGE, DEBIAN_IMAGE, BULLSEYE_IMAGE])
@pytest.mark.parametrize("way", HOOKED)
def test_libraries_of_the_image_load_from_where_they_did(driven: HostOf, way: str, image: str) -> None:
    """Those with a build for newer processors (glibc-hwcaps) too, which the cache's extension lists."""
    host = driven(way)
    wanted = sorted({*names(cache_entries(host.plain(image, "ldconfig -p")))} - {*host.driver})[:500]
    before = host.plain(image, f"sh -c 'dlopen-all {' '.join(wanted)} || true'")
    after = host.run(image, f"sh -c 'dlopen-all {' '.join(wanted)} || true'")
    assert after == before


@pytest.mark.parametrize("way", HOOKLESS)
def test_without_a_hook_the_cache_is_the_images_own(driven: HostOf, way: str) -> None:
    host = driven(way)
    assert host.run(MANY_IMAGE, "ldconfig -p") == host.plain(MANY_IMAGE, "ldconfig -p")


@pytest.mark.parametrize("way", HOOKLESS)
def test_ldconfig_lists_the_driver_after_it_ran_in_a_hookless_container(driven: HostOf, way: str) -> None:
    listed = driven(way).run(DEBIAN_IMAGE, 'sh -c "ldconfig && ldconfig -p"')
    assert "libcuda.so.1 " in listed


@pytest.mark.parametrize("way", HOOKED)
def test_the_hook_says_nothing_where_all_goes_well(driven: HostOf, way: str) -> None:
    for image in GLIBC_IMAGES:
        answer = driven(way).attempt(image, "true")
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", ""), image
