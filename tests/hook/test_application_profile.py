"""The step update-application-profile writes an application profile with a mask of the container's GPUs."""

import json
import os
import re
import stat
import subprocess

import pytest
from support.hook.container_root import PROFILE, Case

pytestmark = pytest.mark.usefixtures("real_nodes")

PATH = "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"


def with_gpus(case: Case, *minors: int) -> None:
    (case.root / "dev").mkdir()
    for minor in minors:
        os.mknod(case.root / f"dev/nvidia{minor}", stat.S_IFCHR | 0o600, os.makedev(195, minor))


def profile(case: Case) -> str:
    return (case.root / PATH).read_text()


def test_the_mask_has_a_bit_for_each_gpu_with_a_minor_below_64(case: Case) -> None:
    with_gpus(case, 0, 3, 63, 64, 255)
    assert case.start(*PROFILE).stderr == ""
    assert profile(case) == (
        '{"profiles":[{"name":"_container_","settings":["EGLVisibleDGPUDevices",0x8000000000000009]}],'
        '"rules":[{"pattern":[],"profile":"_container_"}]}'
    )


def test_the_profile_is_json_with_a_hexadecimal_mask(case: Case) -> None:
    with_gpus(case, 1)
    case.start(*PROFILE)
    document = json.loads(re.sub("0x([0-9a-f]+)", lambda found: str(int(found[1], 16)), profile(case)))
    assert document["profiles"][0]["settings"] == ["EGLVisibleDGPUDevices", 2]
    assert document["rules"] == [{"pattern": [], "profile": "_container_"}]


@pytest.mark.parametrize("minors", [(), (64,)])
def test_no_profile_is_written_if_no_gpu_has_a_minor_below_64(case: Case, minors: tuple[int, ...]) -> None:
    with_gpus(case, *minors)
    assert case.start(*PROFILE).stderr == ""
    assert not (case.root / "etc/nvidia").exists()


def test_files_and_links_are_not_treated_as_gpus(case: Case) -> None:
    with_gpus(case, 5)
    (case.root / "dev/nvidia0").write_bytes(b"")
    (case.root / "dev/nvidia1").symlink_to("nvidia5")
    case.start(*PROFILE)
    assert "0x20]" in profile(case)


def test_with_any_umask_every_user_can_read_the_profile_and_its_folders(case: Case) -> None:
    with_gpus(case, 0)
    script = ["sh", "-c", 'umask 777; exec "$@"', "sh", *case.command(*PROFILE)]
    subprocess.run(script, input=case.state(), check=True)
    file = case.root / PATH
    modes = [oct(path.stat().st_mode & 0o777) for path in (file, file.parent, file.parent.parent)]
    assert modes == ["0o644", "0o755", "0o755"]


def test_a_second_start_of_the_hook_with_a_further_gpu_replaces_the_mask(case: Case) -> None:
    with_gpus(case, 0)
    case.start(*PROFILE)
    os.mknod(case.root / "dev/nvidia1", stat.S_IFCHR | 0o600, os.makedev(195, 1))
    case.start(*PROFILE)
    assert "0x3]" in profile(case)


def test_no_profile_is_written_in_an_image_without_etc(case: Case) -> None:
    with_gpus(case, 0)
    subprocess.run(["rm", "-r", case.root / "etc"], check=True)
    assert "/etc: the image has no such folder;" in case.start(*PROFILE).stderr
    assert not (case.root / "etc").exists()
