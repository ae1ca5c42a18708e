"""The effect of profiles, namings and paths in the configuration on the specs of one host."""

import os
import socket
from pathlib import Path

import pytest
from support.command.fixtures import GPUS, Run
from support.command.specs import add_family, configure, names, targets, written
from support.hosts import driver_files

PROFILES = """
profiles:
  - {name: all, class: gpu}
  - {name: compute, class: gpu-compute, capabilities: [compute, utility], names: [index]}
"""


def test_each_profile_is_a_kind_with_a_separate_file(cdigen: Run, host: Path) -> None:
    configure(host, PROFILES)
    assert written(cdigen, host) == ["nvidia.com-gpu-compute.json", "nvidia.com-gpu.json"]


def test_of_several_kinds_nvidia_com_gpu_is_printed_and_a_note_lists_the_other_kinds(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    configure(host, PROFILES)
    done = cdigen("generate", "--root", host)
    assert (done.code, done.json["kind"]) == (0, "nvidia.com/gpu")
    [line] = done.err.splitlines()
    assert all(word in line for word in ("nvidia.com/gpu-compute", "--kind", "--output-dir"))
    assert cdigen("generate", "--root", host, "--quiet").err == ""
    saved = cdigen("generate", "--root", host, "--output", tmp_path / "spec.json")
    assert (saved.code, (tmp_path / "spec.json").read_text()) == (0, done.out)
    assert saved.err.splitlines()[0] == line
    named = cdigen("generate", "--root", host, "--kind", "nvidia.com/gpu")
    assert (named.code, named.out, named.err) == (0, done.out, "")
    rows = cdigen("generate", "--root", host, "--json")
    assert [document["kind"] for document in rows.json] == ["nvidia.com/gpu", "nvidia.com/gpu-compute"]
    assert rows.err == ""


def test_several_selected_kinds_cannot_be_printed_as_one_document(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    configure(host, PROFILES)
    both = ("--kind", "nvidia.com/gpu", "--kind", "nvidia.com/gpu-compute")
    for where in ((), ("--output", tmp_path / "x")):
        done = cdigen("generate", "--root", host, *both, *where)
        assert done.failed(2, "2 kinds", "--kind", "--output-dir")
        assert (done.out, list(tmp_path.glob("x"))) == ("", [])


def test_a_profile_has_only_the_files_of_its_capabilities(cdigen: Run, host: Path) -> None:
    configure(host, PROFILES)
    spec = cdigen("generate", "--root", host, "--profile", "compute").json
    assert spec["kind"] == "nvidia.com/gpu-compute"
    assert "/usr/lib64/libcuda.so.1" in targets(spec)
    assert not any("GLX" in path or "vulkan" in path or "nvcuvid" in path for path in targets(spec))
    paths = [node["path"] for node in spec["devices"][0]["containerEdits"]["deviceNodes"]]
    assert paths == ["/dev/nvidia0"]
    assert [node["path"] for node in spec["containerEdits"]["deviceNodes"]] == [
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidiactl",
    ]
    assert names(spec) == ["0", "1", "none", "all"]


def test_a_profile_that_is_not_configured_is_a_usage_error(cdigen: Run, host: Path) -> None:
    assert cdigen("generate", "--root", host, "--profile", "video").failed(2, "'video'", "default")


def test_the_class_of_a_device_family_in_a_profile_is_a_usage_error(cdigen: Run, host: Path) -> None:
    add_family(host)
    configure(host, "profiles: [{name: net, class: mofed}]\n")
    assert cdigen("generate", "--root", host, "--write").failed(2, "nvidia.com/mofed", "another class")


@pytest.mark.parametrize(
    ("naming", "expected"),
    [
        ("index", ["0", "1", "none", "all"]),
        ("type-index", ["gpu0", "gpu1", "none", "all"]),
        ("pci", [*(gpu.bdf for gpu in GPUS), "none", "all"]),
        ("minor", ["minor0", "minor1", "none", "all"]),
    ],
)
def test_devices_have_the_names_of_the_option_naming(
    cdigen: Run, host: Path, naming: str, expected: list[str]
) -> None:
    assert names(cdigen("generate", "--root", host, "--naming", naming).json) == expected


@pytest.mark.parametrize(
    ("switch", "part"),
    [
        ("firmware", "/lib/firmware/"),
        ("x11", "/xorg/"),
        ("graphics", "libGLX_nvidia"),
        ("sockets", "/socket"),
    ],
)
def test_a_key_of_a_profile_with_the_value_false_excludes_the_files_of_this_key(
    cdigen: Run, host: Path, switch: str, part: str
) -> None:
    (host / "run/nvidia-persistenced").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(host / "run/nvidia-persistenced")  # the name of a socket has 107 bytes at most
        listener.bind("socket")
        os.chdir(here)
        assert any(part in path for path in targets(cdigen("generate", "--root", host).json))
        configure(host, f"profiles: [{{name: less, class: gpu, {switch}: false}}]\n")
        assert not any(part in path for path in targets(cdigen("generate", "--root", host).json))


def test_32_bit_libraries_are_included_with_compat32(cdigen: Run, host: Path) -> None:
    library = host / "usr/lib/i386-linux-gnu/libcuda.so.550.163.01"
    driver_files.write_library(library, "libcuda.so.1", machine=driver_files.I386, bits=32)
    assert not any("i386" in path for path in targets(cdigen("generate", "--root", host).json))
    configure(host, "profiles: [{name: both, class: gpu, compat32: true}]\n")
    found = targets(cdigen("generate", "--root", host).json)
    assert {"/usr/lib/i386-linux-gnu/libcuda.so.1", "/usr/lib/libcuda.so.1"} <= set(found)


MPS = "mps_pipe_dir: /tmp/nvidia-mps\nprofiles: [{name: mps, class: gpu, mps: true}]\n"


def test_the_mps_folder_is_included_if_it_is_configured_and_trusted(cdigen: Run, host: Path) -> None:
    folder = host / "tmp/nvidia-mps"
    folder.mkdir(parents=True)
    assert "/tmp/nvidia-mps" not in targets(cdigen("generate", "--root", host).json)
    configure(host, MPS)
    assert "/tmp/nvidia-mps" in targets(cdigen("generate", "--root", host).json)
    os.chown(folder, 1000, 1000)
    done = cdigen("generate", "--root", host)
    assert "/tmp/nvidia-mps" not in targets(done.json)
    assert "belongs to the user 1000" in done.err
    configure(host, MPS + "mps_uid: 1000\n")
    assert "/tmp/nvidia-mps" in targets(cdigen("generate", "--root", host).json)


def test_a_link_in_place_of_the_mps_folder_is_refused(cdigen: Run, host: Path) -> None:
    (host / "tmp").mkdir(exist_ok=True)
    (host / "tmp/nvidia-mps").symlink_to("/etc")
    configure(host, MPS)
    done = cdigen("generate", "--root", host)
    assert "/tmp/nvidia-mps" not in targets(done.json)
    assert "has a symbolic link in its path" in done.err


def test_the_drivers_files_can_be_below_another_folder_in_the_container(cdigen: Run, host: Path) -> None:
    spec = cdigen("generate", "--root", host, "--container-driver-root", "/driver").json
    assert all(path.startswith("/driver/") for path in targets(spec))
    assert all(node["path"].startswith("/dev/") for node in spec["containerEdits"]["deviceNodes"])


def test_the_mode_management_selects_the_management_kind(cdigen: Run, host: Path) -> None:
    spec = cdigen("generate", "--root", host, "--mode", "management").json
    assert spec["kind"] == "nvidia.com/management"
    paths = {node["path"] for node in spec["devices"][0]["containerEdits"]["deviceNodes"]}
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"} <= paths
    assert "/usr/bin/nvidia-smi" in targets(spec)


def test_printing_and_writing_create_no_node(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia1").unlink()
    done = cdigen("generate", "--root", host, "--write", "--kind", "nvidia.com/gpu")
    assert done.code == 0
    assert "gets no CDI device" in done.err
    assert not (host / "dev/nvidia1").exists()


def test_the_configuration_below_root_cannot_select_an_nvml_library(cdigen: Run, host: Path) -> None:
    (host / "proc/driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True)
    configure(host, "nvml: /nowhere/libnvidia-ml.so.1\n")
    assert "nvml" not in cdigen("generate", "--root", host, "--verbose").err


def test_the_nodes_of_the_host_are_used_if_the_driver_root_has_none(cdigen: Run, host: Path) -> None:
    inner = host / "run/nvidia/driver/dev"
    inner.mkdir(parents=True)
    os.mknod(inner / "nvidiactl", 0o020666, os.makedev(195, 255))
    for name in ("usr", "etc", "lib"):
        if (host / name).exists():
            os.rename(host / name, inner.parent / name)
    spec = cdigen("generate", "--root", host, "--driver-root", "/run/nvidia/driver").json
    assert {"path": "/dev/nvidia0", "fileMode": 0o666, "permissions": "rw"} in spec["devices"][0][
        "containerEdits"
    ]["deviceNodes"]


@pytest.mark.parametrize("mode", ["gpu", "management"])
def test_inventory_and_host_result_in_the_same_spec_in_each_mode(cdigen: Run, host: Path, mode: str) -> None:
    inventory = cdigen("inspect", "--root", host, "--mode", mode, "--json").out
    there = cdigen("generate", "--inventory", "-", stdin=inventory.encode())
    assert there.out == cdigen("generate", "--root", host, "--mode", mode).out
    assert there.out


def test_nvml_of_another_root_is_loaded_only_if_an_option_names_it(cdigen: Run, host: Path) -> None:
    (host / "proc/driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True)
    (host / "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550.163.01").chmod(0o777)
    assert "nvml" not in cdigen("generate", "--root", host, "--verbose").err
    named = host / "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1"
    assert "[nvml-untrusted]" in cdigen("generate", "--root", host, "--nvml", named).err


def test_an_invalid_value_of_nvml_is_a_usage_error(cdigen: Run, host: Path) -> None:
    assert cdigen("generate", "--root", host, "--nvml", "on").failed(2, "'on'", "auto, off")
