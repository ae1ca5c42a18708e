"""`cdigen docker-args`: the arguments for 'docker run', and errors."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.json_output import validator
from support.paths import REPOSITORY

EXAMPLES = REPOSITORY / "examples/hosts"
VOLUME = "--volume=/var/lib/cdigen/volumes/nvidia_driver:/usr/local/nvidia:ro"


def test_the_arguments_are_one_line_with_the_cdi_names_of_the_devices(cdigen: Run, host: Path) -> None:
    done = cdigen("docker-args", "--root", host)
    assert (done.code, done.out) == (0, "--device=nvidia.com/gpu=0 --device=nvidia.com/gpu=1\n")
    assert cdigen("docker-args", "--root", host, "1").out == "--device=nvidia.com/gpu=1\n"


def test_the_classic_form_uses_the_volume_of_the_written_spec(cdigen: Run, host: Path) -> None:
    missing = cdigen("docker-args", "--root", host, "--form", "classic", "0")
    assert missing.failed(3, "the driver's files for nvidia.com/gpu are in no volume")
    assert cdigen("generate", "--root", host, "--write", "--layout", "view", "--hook", "none").code == 0
    found = cdigen("docker-args", "--root", host, "--form", "classic", "0").out.rstrip("\n").split(" ")
    assert found[0] == VOLUME
    assert "--device=/dev/nvidiactl" in found
    assert "--device=/dev/nvidia0" in found
    assert "--device=/dev/nvidia1" not in found
    assert (host / "var/lib/cdigen/volumes/nvidia_driver/lib64/libcuda.so.1").exists()
    report = cdigen("docker-args", "--root", host, "--form", "classic", "0", "--json").json
    validator("docker-args").validate(report)
    assert report["arguments"] == found


def test_a_spec_without_a_view_has_no_volume(cdigen: Run, host: Path) -> None:
    for layout, expected in (("view", True), ("files", False)):
        done = cdigen("generate", "--root", host, "--write", "--layout", layout, "--hook", "none")
        assert done.code == 0
        assert (host / "var/lib/cdigen/volumes/nvidia_driver").is_symlink() == expected


@pytest.mark.parametrize("was_killed", [False, True])
def test_withdrawing_the_spec_removes_the_volume(cdigen: Run, host: Path, *, was_killed: bool) -> None:
    written = cdigen("generate", "--root", host, "--write", "--layout", "view", "--hook", "none", "--json")
    volume = host / "var/lib/cdigen/volumes/nvidia_driver"
    # A withdrawal that is killed between its two steps leaves only the volume.
    for row in written.json if was_killed else ():
        Path(row["file"]).unlink()
    assert cdigen("withdraw", "--root", host, "--dry-run").code == 0
    assert volume.is_symlink()
    assert cdigen("withdraw", "--root", host).code == 0
    assert not volume.is_symlink()


def test_an_unknown_device_is_refused_with_the_available_devices(cdigen: Run, host: Path) -> None:
    done = cdigen("docker-args", "--root", host, "7")
    assert done.failed(2, "invalid device: 7")
    assert "0 (nvidia.com/gpu=0), 1 (nvidia.com/gpu=1)" in done.err


def test_a_host_without_devices_is_an_error_with_the_reason(cdigen: Run, tmp_path: Path) -> None:
    assert cdigen("docker-args", "--root", tmp_path).failed(3, "no GPU is on the PCI bus")


@pytest.mark.parametrize(
    ("example", "requested", "expected"),
    [
        ("ubuntu-2xmi300x-cpx", "amd.com/gpu=3", "--device=amd.com/gpu=3\n"),
        ("ubuntu-flex170-sriov", "0", "--device=intel.com/gpu=0\n"),
        ("debian13-8xh100", "0000:43:00.0", "--device=nvidia.com/gpu=1\n"),
    ],
)
def test_docker_args_prints_the_cdi_name_for_an_inventory_of_each_vendor(
    cdigen: Run, example: str, requested: str, expected: str
) -> None:
    file = EXAMPLES / f"{example}.json"
    assert cdigen("docker-args", "--inventory", file, requested).out == expected
    assert cdigen("docker-args", "--inventory", file, "--form", "classic").failed(
        2, "--inventory is a document"
    )


@pytest.fixture
def two_kinds(host: Path) -> Path:
    """Return a host on which the kind gpu needs nvidia-uvm, and the kind gpu-show does not."""
    folder = host / "etc/cdigen"
    folder.mkdir(parents=True)
    show = "{name: show, class: gpu-show, capabilities: [graphics, display, utility]}"
    (folder / "config.yaml").write_text(f"profiles: [{{name: default, class: gpu}}, {show}]\n")
    return host


def test_a_name_with_a_kind_selects_the_device_of_this_kind(cdigen: Run, two_kinds: Path) -> None:
    for requested in ("nvidia.com/gpu=0", "nvidia.com/gpu-show=0"):
        done = cdigen("docker-args", "--root", two_kinds, requested)
        assert (done.code, done.out, done.err) == (0, f"--device={requested}\n", "")


def test_for_a_device_of_a_withheld_kind_another_kind_is_used_with_a_warning(
    cdigen: Run, two_kinds: Path
) -> None:
    (two_kinds / "dev/nvidia-uvm").unlink()
    why = "no spec of nvidia.com/gpu is written: /dev/nvidia-uvm does not exist"
    command = ("docker-args", "--root", two_kinds)
    assert cdigen(*command, "nvidia.com/gpu=0").failed(3, why)
    done = cdigen(*command, "0")
    assert (done.code, done.out) == (0, "--device=nvidia.com/gpu-show=0\n")
    assert why in done.err
    done = cdigen(*command, "nvidia.com/gpu-show=0")
    assert (done.code, done.out, done.err) == (0, "--device=nvidia.com/gpu-show=0\n", "")
    done = cdigen(*command, "7")
    assert done.code == 2
    assert why in done.err


def test_if_all_kinds_are_withheld_the_reason_is_the_error(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia-uvm").unlink()
    done = cdigen("docker-args", "--root", host)
    assert done.failed(3, "no spec of nvidia.com/gpu is written: /dev/nvidia-uvm does not exist")
