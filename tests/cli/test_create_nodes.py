"""`cdigen create-nodes`, specs that are withheld for a missing node, and hosts without a node to create."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from errno import EPERM
from typing import TYPE_CHECKING

import pytest
from support.command.specs import configure
from support.hosts.nvidia import make_any_instead

from cdigen.cli.host import create_nodes

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

SPEC = "run/cdi/nvidia.com-gpu.json"
UNIT = "usr/lib/systemd/system/cdigen-nodes.service"


def remove_nodes(host: Path, *names: str) -> None:
    for name in names:
        (host / "dev" / name).unlink()


def test_on_a_host_without_nodes_all_nodes_are_created(cdigen: Run, host: Path) -> None:
    nodes = [path for path in (host / "dev").iterdir() if path.name.startswith("nvidia")]
    for node in nodes:
        node.unlink()
    assert cdigen("generate", "--root", host).failed(
        3, "/dev/nvidiactl does not exist", "cdigen create-nodes"
    )
    done = cdigen("create-nodes", "--root", host)
    assert done.code == 0
    assert "the device node /dev/nvidia-uvm (510:0) was created" in done.err
    assert all(node.is_char_device() for node in nodes)
    assert cdigen("generate", "--root", host, "--write").code == 0


def test_a_second_run_reports_nothing(cdigen: Run, host: Path) -> None:
    assert cdigen("create-nodes", "--root", host).code == 0
    done = cdigen("create-nodes", "--root", host, "--json")
    assert (done.code, done.json) == (0, [])


def test_json_has_the_created_nodes(cdigen: Run, host: Path) -> None:
    remove_nodes(host, "nvidia1")
    rows = cdigen("create-nodes", "--root", host, "--json").json
    assert {"/dev/nvidia1", "/dev/char/195:1"} <= {row["path"] for row in rows if row["changed"]}


def test_a_host_whose_driver_is_not_loaded_is_no_failure(cdigen: Run, host: Path) -> None:
    shutil.rmtree(host / "proc/driver/nvidia")
    shutil.rmtree(host / "sys/module/nvidia")
    remove_nodes(host, "nvidia0")
    done = cdigen("create-nodes", "--root", host)
    assert done.code == 0
    assert "the kernel module nvidia is not loaded" in done.err
    assert not (host / "dev/nvidia0").exists()


def test_a_node_that_cannot_be_created_has_exit_code_5(cdigen: Run, host: Path) -> None:
    (host / "dev/char/195:0").mkdir(parents=True)
    assert cdigen("create-nodes", "--root", host).failed(5, "/dev/char/195:0", "cannot be created")


def test_create_nodes_is_refused_in_a_container(cdigen_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    done = cdigen_process("create-nodes", KUBERNETES_SERVICE_HOST="10.96.0.1")
    assert done.failed(3, "this is a container", "on the host")


def test_wsl_has_no_nodes_to_create(cdigen: Run, host: Path) -> None:
    remove_nodes(host, "nvidia0")
    os.mknod(host / "dev/dxg", 0o020666, os.makedev(10, 125))
    (host / "usr/lib/wsl/lib").mkdir(parents=True)
    (host / "usr/lib/wsl/lib/libdxcore.so").touch()
    assert cdigen("create-nodes", "--root", host, "--json").json == []
    assert not (host / "dev/nvidia0").exists()


@pytest.mark.parametrize(
    "command", [("generate",), ("generate", "--write"), ("generate", "--output-dir", "out")]
)
def test_a_spec_without_nvidia_uvm_is_withheld_with_the_reason(
    cdigen: Run, host: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    remove_nodes(host, "nvidia-uvm")
    words = [str(tmp_path / word) if word == "out" else word for word in command]
    done = cdigen(*words, "--root", host)
    assert done.failed(3, "no spec of nvidia.com/gpu is written", "/dev/nvidia-uvm does not exist")
    assert done.out == ""
    assert not (host / SPEC).exists()
    assert not list(tmp_path.glob("out/*"))


def test_the_remedy_that_is_printed_removes_the_finding(cdigen: Run, host: Path) -> None:
    remove_nodes(host, "nvidia-uvm", "nvidia-uvm-tools")
    printed = cdigen("generate", "--root", host, "--write").err.splitlines()[-1]
    program, *words = shlex.split(printed.rpartition("; ")[2])
    assert program == "cdigen"
    assert cdigen(*words).code == 0
    assert (host / "dev/nvidia-uvm").is_char_device()
    done = cdigen("generate", "--root", host, "--write")
    assert (done.code, "control-node-missing" in done.err) == (0, False)


def test_the_remedy_starts_cdigen_nodes_service_if_systemd_runs_and_has_this_unit(
    cdigen: Run, host: Path
) -> None:
    remove_nodes(host, "nvidia-uvm")
    (host / UNIT).parent.mkdir(parents=True)
    (host / UNIT).touch()
    remedy = "systemctl start cdigen-nodes.service"
    assert remedy not in cdigen("generate", "--root", host).err
    (host / "run/systemd/system").mkdir(parents=True)
    assert cdigen("generate", "--root", host).failed(3, remedy)
    assert remedy in cdigen("doctor", "--root", host).out


@pytest.mark.parametrize("folder", ["etc", "run"])
def test_a_masked_unit_is_no_remedy(cdigen: Run, host: Path, folder: str) -> None:
    remove_nodes(host, "nvidia-uvm")
    (host / "run/systemd/system").mkdir(parents=True)
    (host / UNIT).parent.mkdir(parents=True)
    (host / UNIT).touch()
    mask = host / folder / "systemd/system/cdigen-nodes.service"
    mask.parent.mkdir(parents=True, exist_ok=True)
    mask.symlink_to("/dev/null")
    assert cdigen("generate", "--root", host).failed(3, f"cdigen create-nodes --root {host}")
    assert "systemctl start" not in cdigen("doctor", "--root", host).out


def refuse(host: Path) -> None:
    parameters = host / "proc/driver/nvidia/params"
    parameters.write_text(parameters.read_text().replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0"))


def exclude(host: Path, where: str) -> None:
    """Exclude nvidia-uvm in the file WHERE of the host, and remove the loaded module from /proc/devices."""
    file = host / where
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        {
            "proc/cmdline": "quiet module_blacklist=nvidia_uvm\n",
            "etc/modprobe.d/a.conf": "# no CUDA\nblacklist nvidia-uvm\n",
            "usr/lib/modprobe.d/b.conf": "install nvidia_uvm /bin/false\n",
        }[where]
    )
    devices = host / "proc/devices"
    devices.write_text(devices.read_text().replace("510 nvidia-uvm\n", ""))


def test_the_hint_names_the_parameter_by_which_the_driver_forbids_nodes(cdigen: Run, host: Path) -> None:
    remove_nodes(host, "nvidia-uvm")
    refuse(host)
    assert cdigen("generate", "--root", host).failed(3, "NVreg_ModifyDeviceFiles=1")
    message = cdigen("doctor", "--root", host, "--json").json
    (row,) = [each for each in message if each["check"] == "node-missing" and not each["ok"]]
    assert "NVreg_ModifyDeviceFiles=1" in row["detail"]
    assert row["commands"] == []


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("proc/cmdline", "module_blacklist= on the kernel command line"),
        ("etc/modprobe.d/a.conf", "/etc/modprobe.d/a.conf:2"),
        ("usr/lib/modprobe.d/b.conf", "/usr/lib/modprobe.d/b.conf:1"),
    ],
)
def test_the_hint_names_the_file_that_excludes_nvidia_uvm(
    cdigen: Run, host: Path, where: str, named: str
) -> None:
    remove_nodes(host, "nvidia-uvm")
    exclude(host, where)
    assert cdigen("generate", "--root", host).failed(3, f"remove nvidia-uvm from {named}")


def test_a_module_that_is_loaded_is_not_reported_as_excluded(cdigen: Run, host: Path) -> None:
    remove_nodes(host, "nvidia-uvm")
    (host / "proc/cmdline").write_text("module_blacklist=nvidia_uvm\n")
    assert cdigen("generate", "--root", host).failed(3, "cdigen create-nodes")


def test_a_missing_node_that_the_driver_forbids_is_a_failure(cdigen: Run, host: Path) -> None:
    refuse(host)
    assert cdigen("create-nodes", "--root", host).code == 0
    remove_nodes(host, "nvidia-uvm")
    done = cdigen("create-nodes", "--root", host)
    assert done.failed(5, "/dev/nvidia-uvm does not exist", "ModifyDeviceFiles is 0")
    assert len(done.err.splitlines()) == 2  # with the note about modules


def test_the_service_does_not_fail_for_nodes_that_the_administrator_forbids(
    cdigen: Run, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(host)
    remove_nodes(host, "nvidia-uvm")
    monkeypatch.setattr(os, "getppid", lambda: 1)
    done = cdigen("create-nodes", "--root", host, INVOCATION_ID="0123456789abcdef0123456789abcdef")
    assert (done.code, "/dev/nvidia-uvm does not exist" in done.err) == (0, True)


@pytest.mark.parametrize(
    "path",
    [
        *(".", "..", "proc", "proc/devices", "proc/driver/nvidia/params"),
        *("dev", "etc/cdigen", "proc/driver/nvidia/gpus/0000:1b:00.0/information"),
    ],
)
def test_no_node_is_created_in_a_tree_of_another_user(cdigen: Run, host: Path, path: str) -> None:
    remove_nodes(host, "nvidia-uvm")
    devices = host / "proc/devices"
    devices.write_text(devices.read_text().replace("510 nvidia-uvm", "248 nvidia-uvm"))
    (host / "etc/cdigen").mkdir(exist_ok=True)
    os.chown(host / path, 1000, 1000)
    try:
        done = cdigen("create-nodes", "--root", host)
    finally:
        os.chown(host / path, 0, 0)
    assert done.failed(3, "no device node is created", "belongs to uid 1000")
    assert not (host / "dev/nvidia-uvm").exists()


def test_no_node_is_created_below_a_folder_or_link_of_another_user(cdigen: Run, host: Path) -> None:
    remove_nodes(host, "nvidia-uvm")
    (host / "home/u/dev").mkdir(parents=True)
    os.chown(host / "home/u", 1000, 1000)
    configure(host, "dev_root: /home/u\n")
    assert cdigen("create-nodes", "--root", host).failed(3, "/home/u belongs to uid 1000")
    configure(host, "")
    (host / "dev").rename(host / "devices")
    (host / "dev").symlink_to("devices")
    os.chown(host / "dev", 1000, 1000, follow_symlinks=False)
    assert cdigen("create-nodes", "--root", host).failed(3, "/dev belongs to uid 1000")
    assert not list((host / "home/u/dev").iterdir())


@pytest.mark.parametrize("kind", ["character device", "regular file", "folder", "dangling link"])
def test_the_remedy_of_a_wrong_node_removes_the_finding(cdigen: Run, host: Path, kind: str) -> None:
    make_any_instead(host / "dev/nvidia-uvm", kind)
    printed = cdigen("generate", "--root", host, "--write").err.splitlines()[-1]
    *removal, command = printed.rpartition("; ")[2].split(" && ")
    for each in removal:
        subprocess.run(shlex.split(each), check=True)
    assert cdigen(*shlex.split(command)[1:]).code == 0
    assert cdigen("generate", "--root", host, "--write").code == 0


def test_a_file_instead_of_a_node_has_exit_code_5_and_a_remedy(cdigen: Run, host: Path) -> None:
    make_any_instead(host / "dev/nvidia0", "regular file")
    done = cdigen("create-nodes", "--root", host)
    assert done.failed(5, "/dev/nvidia0 is a regular file", f"rm {host}/dev/nvidia0")


def test_an_ordinary_user_gets_the_command_for_root_in_one_line(
    cdigen: Run, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_nodes(host, "nvidia-uvm", "nvidia0")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "mknod", refuse_node)
    done = cdigen("create-nodes", "--root", host, "--quiet")
    assert done.failed(5, "needs root; sudo /", "cdigen")
    printed = cdigen("generate", "--root", host).err.splitlines()[-1]
    assert printed.endswith(f"cdigen create-nodes --root {host}")
    assert "sudo /" in printed


def refuse_node(path: str, *_: object, **__: object) -> None:
    raise PermissionError(EPERM, os.strerror(EPERM), path)


def test_a_driver_that_does_not_finish_its_initialization_is_a_failure(
    cdigen: Run, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_nodes, "DRIVER_DEADLINE_S", 0.2)
    (host / "sys/module/nvidia/initstate").write_text("coming\n")
    done = cdigen("create-nodes", "--root", host)
    assert done.failed(3, "the driver nvidia is still initializing")
    assert "is not loaded" not in done.err


@pytest.mark.parametrize("form", ["cdi", "classic"])
def test_docker_args_offers_no_device_of_a_withheld_spec(cdigen: Run, host: Path, form: str) -> None:
    remove_nodes(host, "nvidia-uvm")
    done = cdigen("docker-args", "--root", host, "--form", form, "0")
    assert done.failed(3, "/dev/nvidia-uvm does not exist")
    assert done.out == ""


def test_the_spec_of_an_inventory_without_nvidia_uvm_is_withheld(cdigen: Run, host: Path) -> None:
    remove_nodes(host, "nvidia-uvm")
    inventory = cdigen("inspect", "--root", host, "--json").out
    there = cdigen("generate", "--inventory", "-", stdin=inventory.encode())
    assert there.failed(3, "/dev/nvidia-uvm does not exist")


def test_a_profile_without_compute_needs_no_nvidia_uvm(cdigen: Run, host: Path) -> None:
    remove_nodes(host, "nvidia-uvm")
    configure(
        host,
        "profiles:\n"
        "  - {name: gpu, class: gpu}\n"
        "  - {name: display, class: display, capabilities: [graphics, utility]}\n",
    )
    done = cdigen("generate", "--root", host, "--write")
    assert done.failed(3, "no spec of nvidia.com/gpu is written")
    assert (host / "run/cdi/nvidia.com-display.json").exists()
    assert not (host / SPEC).exists()


def test_a_missing_optional_node_withholds_nothing(cdigen: Run, host: Path) -> None:
    remove_nodes(host, "nvidia-uvm-tools", "nvidia-modeset")
    assert cdigen("generate", "--root", host, "--write").code == 0
