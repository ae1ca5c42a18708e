"""`cdigen docker-args`: what is printed for 'docker run', and what is refused."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.json_output import validator
from support.paths import REPOSITORY

EXAMPLES = REPOSITORY / "examples/hosts"
VOLUME = "--volume=/var/lib/cdigen/volumes/nvidia_driver:/usr/local/nvidia:ro"


def test_the_devices_are_one_line_of_cdi_names(cdigen: Run, host: Path) -> None:
    done = cdigen("docker-args", "--root", host)
    assert (done.code, done.out) == (0, "--device=nvidia.com/gpu=0 --device=nvidia.com/gpu=1\n")
    assert cdigen("docker-args", "--root", host, "1").out == "--device=nvidia.com/gpu=1\n"


def test_the_classic_form_names_the_volume_that_writing_the_spec_made(cdigen: Run, host: Path) -> None:
    missing = cdigen("docker-args", "--root", host, "--form", "classic", "0")
    assert missing.failed(3, "the driver's files for nvidia.com/gpu are in no volume")
    assert cdigen("generate", "--root", host, "--write", "--layout", "view", "--hook", "none").code == 0
    found = cdigen("docker-args", "--root", host, "--form", "classic", "0").out.rstrip("\n").split(" ")
    assert found[0] == VOLUME
    assert "--device=/dev/nvidiactl" in found
    assert "--device=/dev/nvidia0" in found
    assert "--device=/dev/nvidia1" not in found
    assert (host / "var/lib/cdigen/volumes/nvidia_driver/lib64/libcuda.so.1").exists()
    told = cdigen("docker-args", "--root", host, "--form", "classic", "0", "--json").json
    validator("docker-args").validate(told)
    assert told["arguments"] == found


def test_a_spec_without_a_view_leaves_no_volume(cdigen: Run, host: Path) -> None:
    for layout, expected in (("view", True), ("files", False)):
        done = cdigen("generate", "--root", host, "--write", "--layout", layout, "--hook", "none")
        assert done.code == 0
        assert (host / "var/lib/cdigen/volumes/nvidia_driver").is_symlink() == expected


@pytest.mark.parametrize("was_killed", [False, True])
def test_withdrawing_the_spec_takes_the_volume_along(cdigen: Run, host: Path, *, was_killed: bool) -> None:
    written = cdigen("generate", "--root", host, "--write", "--layout", "view", "--hook", "none", "--json")
    volume = host / "var/lib/cdigen/volumes/nvidia_driver"
    # A withdrawal that is killed between its two steps leaves the volume alone.
    for row in written.json if was_killed else ():
        Path(row["file"]).unlink()
    assert cdigen("withdraw", "--root", host, "--dry-run").code == 0
    assert volume.is_symlink()
    assert cdigen("withdraw", "--root", host).code == 0
    assert not volume.is_symlink()


def test_a_device_that_there_is_not_is_refused_with_those_that_there_are(cdigen: Run, host: Path) -> None:
    done = cdigen("docker-args", "--root", host, "7")
    assert done.failed(2, "invalid device: 7")
    assert "0 (nvidia.com/gpu=0), 1 (nvidia.com/gpu=1)" in done.err


def test_a_host_without_devices_says_why(cdigen: Run, tmp_path: Path) -> None:
    assert cdigen("docker-args", "--root", tmp_path).failed(3, "no GPU is on the PCI bus")


@pytest.mark.parametrize(
    ("example", "asked", "expected"),
    [
        ("ubuntu-2xmi300x-cpx", "amd.com/gpu=3", "--device=amd.com/gpu=3\n"),
        ("ubuntu-flex170-sriov", "0", "--device=intel.com/gpu=0\n"),
        ("debian13-8xh100", "0000:43:00.0", "--device=nvidia.com/gpu=1\n"),
    ],
)
def test_any_makers_inventory_gives_names(cdigen: Run, example: str, asked: str, expected: str) -> None:
    file = EXAMPLES / f"{example}.json"
    assert cdigen("docker-args", "--inventory", file, asked).out == expected
    assert cdigen("docker-args", "--inventory", file, "--form", "classic").failed(
        2, "--inventory is a document"
    )
