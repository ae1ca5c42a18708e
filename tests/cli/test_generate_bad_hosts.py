"""On a damaged host, `generate` prints one line, returns the right exit code and keeps the old spec."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.hosts import driver_files

SPEC = "run/cdi/nvidia.com-gpu.json"
CURRENT = "usr/lib/x86_64-linux-gnu/nvidia/current"
LIBCUDA = f"{CURRENT}/libcuda.so.550.163.01"

Break = Callable[[Path], object]


def replace(path: str, content: bytes) -> Break:
    def apply(host: Path) -> None:
        (host / path).unlink()
        (host / path).write_bytes(content)

    return apply


def remove(*patterns: str) -> Break:
    def apply(host: Path) -> None:
        for pattern in patterns:
            for path in host.glob(pattern):
                path.unlink()

    return apply


def link(name: str, target: str) -> Break:
    def apply(host: Path) -> None:
        (host / "usr/lib64").mkdir(exist_ok=True)
        (host / "usr/lib64" / name).symlink_to(target)

    return apply


def without_driver(host: Path) -> None:
    shutil.rmtree(host / "proc/driver")


def without_gpus(host: Path) -> None:
    shutil.rmtree(host / "proc/driver/nvidia/gpus")
    shutil.rmtree(host / "sys/bus/pci/devices")


def with_lost_gpus(host: Path) -> None:
    shutil.rmtree(host / "proc/driver/nvidia/gpus")


def half_upgraded(host: Path) -> None:
    os.rename(host / LIBCUDA, host / f"{CURRENT}/libcuda.so.580.65.06")


# Each case has the damage, the exit code, and parts of the error line.
REFUSED: dict[str, tuple[Break, int, tuple[str, ...]]] = {
    "no driver": (without_driver, 3, ("not loaded", "modprobe nvidia")),
    "no GPU": (without_gpus, 3, ("no GPU", "lspci")),
    "every GPU lost": (with_lost_gpus, 3, ("none of the 2 GPUs", "dmesg")),
    "no nodes at all": (remove("dev/nvidia*"), 3, ("/dev/nvidiactl does not exist", "cdigen create-nodes")),
    "no node of any GPU": (remove("dev/nvidia[0-9]"), 3, ("none of the 2 GPUs", "/dev/nvidia0")),
    "version is rubbish": (
        replace("proc/driver/nvidia/version", b"\0\1\2"),
        3,
        ("contains no driver version",),
    ),
    "libraries of another version": (
        replace(
            "proc/driver/nvidia/version", b"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Mon\n"
        ),
        3,
        ("580.65.06", "550.163.01", "reboot"),
    ),
    "half upgraded": (half_upgraded, 3, ("550.163.01", "580.65.06", "reboot")),
    "libcuda is a text file": (
        replace(LIBCUDA, b"hello\n"),
        3,
        (LIBCUDA, "not a shared library", "reinstall"),
    ),
    "libcuda is cut off": (
        lambda host: os.truncate(host / LIBCUDA, 100),
        3,
        (LIBCUDA, "not a shared library"),
    ),
}

# Each case has the damage and parts of its message. All devices and files without damage are in the spec.
SERVED: dict[str, tuple[Break, tuple[str, ...]]] = {
    "half of the nodes": (remove("dev/nvidia1"), ("GPU 1", "/dev/nvidia1 does not exist")),
    "a node that is a file": (replace("dev/nvidia1", b""), ("GPU 1", "a regular file")),
    "a binary information file": (
        replace("proc/driver/nvidia/gpus/0000:1b:00.0/information", bytes(range(256)) * 8),
        ("0000:1b:00.0", "does not describe a GPU"),
    ),
    "a truncated information file": (
        replace("proc/driver/nvidia/gpus/0000:1d:00.0/information", b"Model: \t\t NVIDIA H1"),
        ("0000:1d:00.0", "does not describe a GPU"),
    ),
    "a corrupt ld.so.cache": (
        lambda host: (host / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1" + b"\xff" * 99),
        ("/etc/ld.so.cache", "ldconfig"),
    ),
    "a dangling link": (link("libnvcuvid.so.550.163.01", "/nowhere"), ("libnvcuvid", "No such file")),
    "a looping link": (
        link("libnvcuvid.so.550.163.01", "libnvcuvid.so.550.163.01"),
        ("libnvcuvid", "Too many levels"),
    ),
    "a manifest that is no JSON": (
        lambda host: (host / "usr/share/glvnd/egl_vendor.d/10_nvidia.json").write_text("{"),
        ("10_nvidia.json", "not JSON"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_host_without_a_usable_driver_is_refused_and_its_old_spec_stays(
    cdigen: Run, host: Path, case: str
) -> None:
    break_, code, words = REFUSED[case]
    cdigen("generate", "--root", host, "--write")
    before = (host / SPEC).read_bytes()
    break_(host)
    done = cdigen("generate", "--root", host, "--write")
    assert done.failed(code, *words), done.err
    assert (host / SPEC).read_bytes() == before


@pytest.mark.parametrize("case", REFUSED)
def test_the_json_output_for_a_refused_host_is_one_error_document(cdigen: Run, host: Path, case: str) -> None:
    break_, code, _ = REFUSED[case]
    break_(host)
    for command in ("generate", "inspect"):
        done = cdigen(command, "--root", host, "--json")
        assert done.code == code
        assert set(done.json["error"]) == {"kind", "message", "hint"}


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("no driver", "driver-not-loaded"),
        ("no GPU", "no-gpu"),
        ("no nodes at all", "no-nodes"),
        ("libraries of another version", "version-mismatch"),
        ("half upgraded", "version-mismatch"),
        ("libcuda is a text file", "driver-broken"),
    ],
)
def test_the_kind_of_the_error_describes_the_problem(cdigen: Run, host: Path, case: str, kind: str) -> None:
    REFUSED[case][0](host)
    assert cdigen("generate", "--root", host, "--json").json["error"]["kind"] == kind


@pytest.mark.parametrize("case", SERVED)
def test_a_fault_excludes_only_the_damaged_device_or_file(cdigen: Run, host: Path, case: str) -> None:
    break_, words = SERVED[case]
    break_(host)
    done = cdigen("generate", "--root", host)
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    assert any(all(word in line for word in words) for line in done.err.splitlines()), done.err
    assert "all" in [device["name"] for device in done.json["devices"]]


def test_of_two_installed_drivers_the_running_driver_is_used(cdigen: Run, host: Path) -> None:
    driver_files.write_library(host / f"{CURRENT}/libcuda.so.535.261.03", "libcuda.so.1")
    done = cdigen("generate", "--root", host, "--verbose")
    assert done.code == 0
    assert "535.261.03 are installed in addition to the running driver 550.163.01" in done.err
    assert "535.261.03" not in done.out


@pytest.mark.parametrize("name", ["sp ace", "tab\there", "new\nline", "b\udcff\udcfe"])
def test_a_root_may_have_any_name(cdigen: Run, host: Path, tmp_path: Path, name: str) -> None:
    odd = tmp_path / name
    os.rename(host, odd)
    done = cdigen("generate", "--root", odd)
    assert (done.code, done.err) == (0, "")


def test_a_folder_with_spaces_is_used(cdigen: Run, host: Path) -> None:
    os.rename(host / CURRENT, host / "usr/lib/x86_64-linux-gnu/nvidia/my driver")
    (host / CURRENT).symlink_to("my driver")
    spec = cdigen("generate", "--root", host).json
    sources = {mount["hostPath"] for mount in spec["containerEdits"]["mounts"]}
    assert "/usr/lib/x86_64-linux-gnu/nvidia/my driver/libcuda.so.550.163.01" in sources


@pytest.mark.parametrize("name", ["new\nline", "b\udcff\udcfe"])
def test_a_folder_name_that_a_spec_cannot_contain_is_refused_in_one_line(
    cdigen: Run, host: Path, name: str
) -> None:
    os.rename(host / CURRENT, host / f"usr/lib/x86_64-linux-gnu/nvidia/{name}")
    (host / CURRENT).symlink_to(name)
    assert cdigen("generate", "--root", host).failed(3, "has a path with unprintable characters")


def test_a_machine_without_a_gpu_is_an_error(cdigen: Run, tmp_path: Path) -> None:
    assert cdigen("generate", "--root", tmp_path).failed(3, "not loaded")
