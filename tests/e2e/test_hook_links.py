"""Links out of the root in every place where the hook works: refused or resolved within, never followed out.

OUTSIDE has what is looked for at the end of each link, so a hook that followed one would find work there: a
file read shows in its time of last access, one written in all the rest.
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
# Where the hook has something to write or to judge, so that a profile that requires it stops the container.
# The others are the image's own choice, or mounted over by the runtime, within the root.
SAID = (
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
    """Return a script that makes PLACE a link to what has its name outside."""
    parent = place.rpartition("/")[0]
    return f"rm -rf .{place}; mkdir -p ./{parent}; ln -s {FORMS[form]}{place} .{place}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [place for place in PLACES if place != "/etc"])
def test_a_link_out_of_the_root_leads_to_nothing_of_the_host(target: Target, place: str, form: str) -> None:
    with target.untouched():
        said = target.said(link(place, form))
    if place.endswith("libcuda.so.999.1") and "/proc/" in FORMS[form]:
        assert f"{place}: it leads into /proc;" in said
    else:
        assert f" {place}: it is " in said if place in SAID else not said


@pytest.mark.parametrize("form", FORMS)
def test_where_etc_is_a_link_podman_itself_starts_nothing(target: Target, form: str) -> None:
    with target.untouched():
        answer = target.start(link("/etc", form))
    assert answer.returncode != 0
    assert "open /etc in the container: no such file or directory" in answer.stderr


@pytest.mark.parametrize("form", FORMS)
def test_a_link_that_leads_somewhere_in_the_root_too_is_refused(target: Target, form: str) -> None:
    """The image has a folder of that name: podman and runc are content, and the hook gets to see the link."""
    script = f"mkdir -p .{OUTSIDE} && cp -a etc .{OUTSIDE}/ && {link('/etc', form)}"
    with target.untouched():
        lenient, strict = target.start(script), target.start(script, device=STRICT)
    assert lenient.stdout == "started\n" or "no such file or directory" in lenient.stderr
    assert strict.returncode != 0
    assert lenient.stdout == "" or "update-ldcache: /etc: it is a link" in hook_lines(strict.stderr)[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_compatibility_folder_behind_links_is_the_images_own(target: Target, form: str) -> None:
    """CUDA's images have /usr/local/cuda as a link, so these are followed, within the root."""
    script = f"""mkdir -p .{OUTSIDE}/usr/local/cuda/compat
    echo no library >.{OUTSIDE}/usr/local/cuda/compat/libcuda.so.999.1
    {link("/usr/local/cuda", form)}"""
    with target.untouched():
        said = target.said(script)
    if "/proc/" in FORMS[form]:
        assert said == ""  # below /proc nothing is looked at
    else:
        assert "/usr/local/cuda/compat/libcuda.so.999.1: not an ELF file: it starts with 6e6f206c;" in said
