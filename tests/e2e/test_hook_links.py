"""The start-up hook refuses links out of the container's root, or resolves them within the root.

OUTSIDE contains the target of each link, so that a hook that follows a link finds a file. A read changes the
access time of this file, and a write changes its other properties.
"""

import pytest
from support.containers.hostile_images import OUTSIDE, PLACES, STRICT, Target, hook_lines

pytestmark = pytest.mark.e2e

FORMS = {
    "absolute": OUTSIDE,
    "relative": "../" * 20 + OUTSIDE[1:],
    "through /proc/self/root": f"/proc/self/root{OUTSIDE}",
    "through /proc/1/root": f"/proc/1/root{OUTSIDE}",
}
# Paths that the hook writes or checks. A link at such a path stops the container if the step is required. At
# the other paths, an image can have links, or the runtime mounts over the links within the root.
REPORTED = (
    "/etc/ld.so.cache",
    "/etc/nvidia",
    "/etc/nvidia/nvidia-application-profiles-rc.d",
    "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf",
    "/usr",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/cuda/compat/libcuda.so.999.1",
)


def link(place: str, form: str) -> str:
    """Return a script that replaces PLACE with a link to the same path in OUTSIDE."""
    parent = place.rpartition("/")[0]
    return f"rm -rf .{place}; mkdir -p ./{parent}; ln -s {FORMS[form]}{place} .{place}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [place for place in PLACES if place != "/etc"])
def test_the_hook_does_not_follow_a_link_out_of_the_root(target: Target, place: str, form: str) -> None:
    with target.untouched():
        messages = target.hook_messages(link(place, form))
    if place.endswith("libcuda.so.999.1") and "/proc/" in FORMS[form]:
        assert f"{place}: leads into /proc;" in messages
    elif place in REPORTED:
        reason = "does not exist" if place.endswith("libcuda.so.999.1") else "is "
        assert f"{place}: {reason}" in messages
    else:
        assert not messages


@pytest.mark.parametrize("form", FORMS)
def test_podman_starts_no_container_whose_etc_is_a_link_out_of_the_root(target: Target, form: str) -> None:
    with target.untouched():
        answer = target.start(link("/etc", form))
    assert answer.returncode != 0
    assert "open /etc in the container: no such file or directory" in answer.stderr


@pytest.mark.parametrize("form", FORMS)
def test_a_link_at_etc_is_refused_if_its_target_exists_in_the_root(target: Target, form: str) -> None:
    """The target also exists in the image, so podman and runc accept the link, and the hook runs."""
    script = f"mkdir -p .{OUTSIDE} && cp -a etc .{OUTSIDE}/ && {link('/etc', form)}"
    with target.untouched():
        lenient, strict = target.start(script), target.start(script, device=STRICT)
    assert lenient.stdout == "started\n" or "no such file or directory" in lenient.stderr
    assert strict.returncode != 0
    assert lenient.stdout == "" or "update-ldcache: /etc: is a link" in hook_lines(strict.stderr)[0]


@pytest.mark.parametrize("form", FORMS)
def test_links_to_the_compatibility_folder_are_resolved_within_the_root(target: Target, form: str) -> None:
    """In CUDA images, /usr/local/cuda is a link, so the hook follows such links within the root."""
    script = f"""mkdir -p .{OUTSIDE}/usr/local/cuda/compat
    echo no library >.{OUTSIDE}/usr/local/cuda/compat/libcuda.so.999.1
    {link("/usr/local/cuda", form)}"""
    with target.untouched():
        messages = target.hook_messages(script)
    if "/proc/" in FORMS[form]:
        assert messages == ""  # the hook ignores files below /proc
    else:
        assert (
            "/usr/local/cuda/compat/libcuda.so.999.1: not an ELF file: it starts with 6e6f206c;" in messages
        )
