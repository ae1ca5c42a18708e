"""update-application-profile: the mask of the GPUs that the container has."""

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


def test_the_mask_has_a_bit_for_each_gpu_and_none_from_64_on(case: Case) -> None:
    with_gpus(case, 0, 3, 63, 64, 255)
    assert case.start(*PROFILE).stderr == ""
    assert profile(case) == (
        '{"profiles":[{"name":"_container_","settings":["EGLVisibleDGPUDevices",0x8000000000000009]}],'
        '"rules":[{"pattern":[],"profile":"_container_"}]}'
    )


def test_it_is_json_but_for_the_mask_which_the_driver_reads_as_hexadecimal(case: Case) -> None:
    with_gpus(case, 1)
    case.start(*PROFILE)
    document = json.loads(re.sub("0x([0-9a-f]+)", lambda found: str(int(found[1], 16)), profile(case)))
    assert document["profiles"][0]["settings"] == ["EGLVisibleDGPUDevices", 2]
    assert document["rules"] == [{"pattern": [], "profile": "_container_"}]


@pytest.mark.parametrize("minors", [(), (64,)])
def test_without_a_gpu_that_has_a_bit_nothing_is_made(case: Case, minors: tuple[int, ...]) -> None:
    with_gpus(case, *minors)
    assert case.start(*PROFILE).stderr == ""
    assert not (case.root / "etc/nvidia").exists()


def test_files_and_links_are_no_gpus(case: Case) -> None:
    with_gpus(case, 5)
    (case.root / "dev/nvidia0").write_bytes(b"")
    (case.root / "dev/nvidia1").symlink_to("nvidia5")
    case.start(*PROFILE)
    assert "0x20]" in profile(case)


def test_folders_and_file_are_readable_for_all_whatever_the_umask(case: Case) -> None:
    with_gpus(case, 0)
    script = ["sh", "-c", 'umask 777; exec "$@"', "sh", *case.command(*PROFILE)]
    subprocess.run(script, input=case.state(), check=True)
    file = case.root / PATH
    modes = [oct(path.stat().st_mode & 0o777) for path in (file, file.parent, file.parent.parent)]
    assert modes == ["0o644", "0o755", "0o755"]


def test_a_second_start_with_other_gpus_replaces_the_mask(case: Case) -> None:
    with_gpus(case, 0)
    case.start(*PROFILE)
    os.mknod(case.root / "dev/nvidia1", stat.S_IFCHR | 0o600, os.makedev(195, 1))
    case.start(*PROFILE)
    assert "0x3]" in profile(case)


def test_an_image_without_etc_gets_none(case: Case) -> None:
    with_gpus(case, 0)
    subprocess.run(["rm", "-r", case.root / "etc"], check=True)
    assert "/etc: the image has no such folder;" in case.start(*PROFILE).stderr
    assert not (case.root / "etc").exists()
