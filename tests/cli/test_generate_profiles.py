"""Profiles, namings, switches and places: what the configuration makes of one host."""

import os
import socket
from pathlib import Path

import pytest
from support.command.fixtures import GPUS, Run
from support.command.specs import add_family, configure, names, targets, written
from support.hosts import driver_files
from support.hosts.mig import cap_node, minor_of, write_instance, write_minors

PROFILES = """
profiles:
  - {name: all, class: gpu}
  - {name: compute, class: gpu-compute, capabilities: [compute, utility], names: [index]}
"""


def test_each_profile_is_a_kind_with_a_file_of_its_own(cdigen: Run, host: Path) -> None:
    configure(host, PROFILES)
    assert written(cdigen, host) == ["nvidia.com-gpu-compute.json", "nvidia.com-gpu.json"]


def test_of_several_kinds_the_gpus_are_printed_and_the_others_are_named(
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


def test_several_kinds_of_which_none_has_the_gpus_cannot_be_printed(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    configure(host, PROFILES)
    both = ("--kind", "nvidia.com/gpu", "--kind", "nvidia.com/gpu-compute")
    for where in ((), ("--output", tmp_path / "x")):
        done = cdigen("generate", "--root", host, *both, *where)
        assert done.failed(2, "2 kinds", "--kind", "--output-dir")
        assert (done.out, list(tmp_path.glob("x"))) == ("", [])


def test_a_profile_holds_only_what_its_capabilities_need(cdigen: Run, host: Path) -> None:
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


def test_a_class_that_a_device_family_has_is_a_usage_error(cdigen: Run, host: Path) -> None:
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
def test_devices_are_named_as_it_is_asked(cdigen: Run, host: Path, naming: str, expected: list[str]) -> None:
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
def test_a_switch_takes_its_part_out(cdigen: Run, host: Path, switch: str, part: str) -> None:
    (host / "run/nvidia-persistenced").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(host / "run/nvidia-persistenced")  # the name of a socket has 107 bytes at most
        listener.bind("socket")
        os.chdir(here)
        assert any(part in path for path in targets(cdigen("generate", "--root", host).json))
        configure(host, f"profiles: [{{name: less, class: gpu, {switch}: false}}]\n")
        assert not any(part in path for path in targets(cdigen("generate", "--root", host).json))


def test_32_bit_libraries_come_by_choice(cdigen: Run, host: Path) -> None:
    library = host / "usr/lib/i386-linux-gnu/libcuda.so.550.163.01"
    driver_files.write_library(library, "libcuda.so.1", machine=driver_files.I386, bits=32)
    assert not any("i386" in path for path in targets(cdigen("generate", "--root", host).json))
    configure(host, "profiles: [{name: both, class: gpu, compat32: true}]\n")
    found = targets(cdigen("generate", "--root", host).json)
    assert {"/usr/lib/i386-linux-gnu/libcuda.so.1", "/usr/lib/libcuda.so.1"} <= set(found)


MPS = "mps_pipe_dir: /tmp/nvidia-mps\nprofiles: [{name: mps, class: gpu, mps: true}]\n"


def test_the_mps_folder_comes_by_choice_and_from_root_only(cdigen: Run, host: Path) -> None:
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
    assert "reached through a link" in done.err


def test_the_drivers_files_may_go_below_another_folder_of_the_container(cdigen: Run, host: Path) -> None:
    spec = cdigen("generate", "--root", host, "--container-driver-root", "/driver").json
    assert all(path.startswith("/driver/") for path in targets(spec))
    assert all(node["path"].startswith("/dev/") for node in spec["containerEdits"]["deviceNodes"])


def test_management_is_a_kind_that_is_asked_for(cdigen: Run, host: Path) -> None:
    spec = cdigen("generate", "--root", host, "--mode", "management").json
    assert spec["kind"] == "nvidia.com/management"
    paths = {node["path"] for node in spec["devices"][0]["containerEdits"]["deviceNodes"]}
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"} <= paths
    assert "/usr/bin/nvidia-smi" in targets(spec)


def test_nodes_that_nobody_made_are_made_where_it_is_allowed(cdigen: Run, host: Path, tmp_path: Path) -> None:
    write_minors(host, 2)
    write_instance(host, 0, 7, nodes=False)
    (host / "dev/nvidia1").unlink()
    config = tmp_path / "config.yaml"
    config.write_text("create_nodes: true\n")
    given = ("--config", config, "--kind", "nvidia.com/gpu")
    refused = cdigen("generate", "--root", host, *given, "--output", "/dev/null")
    assert "gets no device" in refused.err
    assert not (host / "dev/nvidia1").exists(), "printing a spec changes nothing"
    assert cdigen("generate", "--root", host, *given, "--write").code == 0
    for path, numbers in (
        ("/dev/nvidia1", (195, 1)),
        (cap_node(minor_of(0, 7)).path, (511, minor_of(0, 7))),
        (cap_node(minor_of(0, 7, 0)).path, (511, minor_of(0, 7, 0))),
    ):
        status = os.lstat(f"{host}{path}")
        assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == numbers
    assert '"0:gi7-ci0"' in (host / "run/cdi/nvidia.com-gpu.json").read_text()


def test_the_configuration_of_anothers_tree_cannot_have_nodes_made(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia1").unlink()
    configure(host, "create_nodes: true\n")
    assert written(cdigen, host)
    assert not (host / "dev/nvidia1").exists()


def test_the_configuration_of_anothers_tree_cannot_have_a_library_loaded(cdigen: Run, host: Path) -> None:
    (host / "proc/driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True)
    configure(host, "nvml: /nowhere/libnvidia-ml.so.1\n")
    assert "nvml" not in cdigen("generate", "--root", host, "--verbose").err


def test_a_node_that_cannot_be_made_costs_only_its_gpu(cdigen: Run, host: Path, tmp_path: Path) -> None:
    write_minors(host, 2)
    write_instance(host, 0, 7, nodes=False)
    (host / "dev/nvidia-caps").write_text("")
    config = tmp_path / "config.yaml"
    config.write_text("create_nodes: true\n")
    done = cdigen("generate", "--root", host, "--config", config, "--write", "--kind", "nvidia.com/gpu")
    assert done.code == 0
    assert "[node-not-made]" in done.err
    assert '"name": "1"' in (host / "run/cdi/nvidia.com-gpu.json").read_text()


def test_a_driver_container_may_leave_the_gpus_nodes_to_the_host(cdigen: Run, host: Path) -> None:
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
def test_every_modes_inventory_gives_the_same_spec_elsewhere(cdigen: Run, host: Path, mode: str) -> None:
    inventory = cdigen("inspect", "--root", host, "--mode", mode, "--json").out
    there = cdigen("generate", "--inventory", "-", stdin=inventory.encode())
    assert there.out == cdigen("generate", "--root", host, "--mode", mode).out
    assert there.out


def test_nvml_is_not_loaded_for_another_root_unless_it_is_named(cdigen: Run, host: Path) -> None:
    (host / "proc/driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True)
    (host / "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550.163.01").chmod(0o777)
    assert "nvml" not in cdigen("generate", "--root", host, "--verbose").err
    named = host / "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1"
    assert "[nvml-untrusted]" in cdigen("generate", "--root", host, "--nvml", named).err


def test_nvml_that_is_no_path_is_a_usage_error(cdigen: Run, host: Path) -> None:
    assert cdigen("generate", "--root", host, "--nvml", "on").failed(2, "'on'", "auto, off")
