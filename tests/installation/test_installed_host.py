"""cdigen is installed into a clean Debian root, and its services run under the systemd of that root."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.containers.booted_host import eventually
from support.installation.installed_host import (
    GPU_HOST,
    HOST_PYTHON,
    assert_confined,
    main_pid,
    started,
)
from support.installation.installing import done, make, publish_script, snapshot
from support.nri.runtime import Runtime, SocketTransport, container, pod
from support.paths import REPOSITORY
from support.processes import captured

pytestmark = pytest.mark.e2e

SPEC = f"{GPU_HOST}/run/cdi/nvidia.com-gpu.json"
# A device node without a driver. Only the plugin reads it.
NODE = "/dev/cdigen-test"


def system_files(root: Path) -> dict[str, tuple[int, int, int, int, str]]:
    return {path: report for path, report in snapshot(root).items() if not path.startswith(GPU_HOST)}


def nvml_output(root: Path) -> str:
    """Start the NVML child process of the installed cdigen with a missing library; return its output."""
    child = "/usr/local/lib/cdigen/cdigen/vendors/nvidia/nvml/child"
    command = ["chroot", str(root), "/usr/bin/python3", "-I", child, "/nowhere/libnvidia-ml.so.1", "identity"]
    return captured(command).stdout


def test_no_file_is_left_after_installation_use_and_uninstallation(host: Path) -> None:
    def cdigen(*arguments: str) -> str:
        command = ["chroot", str(host), "/usr/local/bin/cdigen", *arguments]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        return result.stdout

    before = system_files(host)
    done(make("install", host, "PREFIX=/usr/local", HOST_PYTHON))
    try:
        assert cdigen("--version").startswith("cdigen ")
        cdigen("generate", "--root", f"/{GPU_HOST}", "--write")
        assert "nvidia.com/gpu=1" in cdigen("list", "--root", f"/{GPU_HOST}")
        assert "pynvml" not in nvml_output(host)
        assert (host / SPEC).stat().st_mode & 0o777 == 0o644
        for path in (host / "usr/local").rglob("*"):
            status = path.lstat()
            assert path.is_symlink() or (status.st_uid, status.st_gid, status.st_mode & 0o022) == (0, 0, 0), (
                path
            )
    finally:
        done(make("uninstall", host, "PREFIX=/usr/local"))
    assert system_files(host) == before
    assert (host / SPEC).exists()


@pytest.fixture(scope="module")
def inside(host: Path) -> Iterator[Callable[..., str]]:
    """Boot the host's own systemd with cdigen installed; return a function that runs a command there."""
    shutil.rmtree(host / GPU_HOST / "run/cdi", ignore_errors=True)
    shutil.rmtree(host / GPU_HOST / "var/lib/cdigen", ignore_errors=True)
    with started(host, cdigen=f"/usr/bin/cdigen run --root /{GPU_HOST} --layout view -v") as run:
        yield run


def test_the_service_is_ready_without_any_capability(inside: Callable[..., str]) -> None:
    inside("systemctl", "start", "cdigen")
    assert 'Status: "ready' in inside("systemctl", "status", "cdigen", "--no-pager")
    assert_confined(inside, "cdigen")


def test_the_service_makes_views_with_hard_links_to_libraries(host: Path, inside: Callable[..., str]) -> None:
    inside("systemctl", "start", "cdigen")
    assert eventually((host / SPEC).exists)
    views = host / GPU_HOST / "var/lib/cdigen/views"
    library = next(views.glob("*/lib64/libcuda.so.5*"))
    source = next((host / GPU_HOST / "usr/lib/x86_64-linux-gnu/nvidia/current").glob("libcuda.so.5*"))
    assert library.samefile(source)


def test_specs_are_written_again_after_the_spec_directory_was_removed(
    host: Path, inside: Callable[..., str]
) -> None:
    inside("systemctl", "start", "cdigen")
    assert eventually((host / SPEC).exists)
    shutil.rmtree((host / SPEC).parent)
    assert eventually((host / SPEC).exists)
    shutil.rmtree((host / SPEC).parent)
    (host / SPEC).parent.mkdir()
    assert eventually((host / SPEC).exists)


def test_kernel_events_reach_the_service_in_its_private_network(inside: Callable[..., str]) -> None:
    device = next(Path("/sys/bus/pci/devices").iterdir(), None)
    if device is None:
        cannot_run("this machine has no PCI device whose uevent could be written")
    inside("systemctl", "start", "cdigen")
    (device / "uevent").write_text("change")
    report = f"pci change {device.name}"
    assert eventually(lambda: report in inside("journalctl", "--unit=cdigen", "--no-pager", "--output=cat"))


@pytest.mark.wall_clock
def test_reload_and_stop_are_clean_and_quick(inside: Callable[..., str]) -> None:
    inside("systemctl", "start", "cdigen")
    inside("systemctl", "reload", "cdigen")
    assert eventually(lambda: "SIGHUP" in inside("journalctl", "--unit=cdigen", "--no-pager", "--output=cat"))
    started = time.monotonic()
    inside("systemctl", "stop", "cdigen")
    assert time.monotonic() - started < 2
    assert inside("systemctl", "show", "--property=Result", "--value", "cdigen").strip() == "success"


def test_an_invalid_configuration_fails_the_reload_and_the_daemon_continues(
    host: Path, inside: Callable[..., str]
) -> None:
    inside("systemctl", "start", "cdigen")
    # The daemon of this test reads the file of the tree GPU_HOST. The reload checks the file of the host.
    files = [host / f"{top}etc/cdigen/config.yaml" for top in ("", f"{GPU_HOST}/")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mode: auto\n\ncolour: blue\n")
    try:
        with pytest.raises(AssertionError, match=r"Job for cdigen\.service failed"):
            inside("systemctl", "reload", "cdigen")
        journal = inside("journalctl", "--unit=cdigen", "--no-pager", "--output=cat")
        assert "/etc/cdigen/config.yaml:3:1: unknown key 'colour'" in journal
        assert inside("systemctl", "is-active", "cdigen") == "active\n"
        assert eventually(
            lambda: "unknown key 'colour'" in inside("cdigen", "status", "--root", f"/{GPU_HOST}")
        )
        ignored = "invalid configuration ignored"
        assert eventually(lambda: ignored in inside("systemctl", "status", "cdigen", "--no-pager"))
        for file in files:
            file.write_text("mode: auto\n")
        inside("systemctl", "reload", "cdigen")
        assert eventually(lambda: "unknown key" not in inside("cdigen", "status", "--root", f"/{GPU_HOST}"))
    finally:
        for file in files:
            file.unlink()


@pytest.fixture
def runtime(host: Path, inside: Callable[..., str]) -> Iterator[Callable[[], Runtime]]:
    """Start the plugin's unit with a socket of the test; return a function that accepts a connection."""
    devices = [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": NODE}]}}]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    (host / "etc/cdi").mkdir(exist_ok=True)
    (host / "etc/cdi/gpu.json").write_text(json.dumps(spec))
    (host / "etc/cdigen").mkdir(exist_ok=True)
    socket_path = host / "srv/nri.sock"
    policy = "nri: {socket: /srv/nri.sock, unsupported_cdi: raw, allow: [{namespaces: [default]}]}\n"
    (host / "etc/cdigen/config.yaml").write_text(policy)
    inside("mknod", "--mode=0660", NODE, "c", "195", "7")
    inside("chgrp", "video", NODE)
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as connections:
        listener.bind(str(socket_path))
        listener.listen()
        listener.settimeout(60)

        def accepted() -> Runtime:
            connection, _ = listener.accept()
            connections.enter_context(connection)
            served = Runtime(SocketTransport(connection), version="1.7.24", nri=(0, 6))
            served.start()
            served.synchronize()
            return served

        inside("systemctl", "start", "--no-block", "cdigen-nri")
        try:
            yield accepted
        finally:
            inside("systemctl", "stop", "cdigen-nri")
            inside("rm", NODE)
            for path in (socket_path, host / "etc/cdi/gpu.json", host / "etc/cdigen/config.yaml"):
                path.unlink()


def test_the_plugin_injects_devices_in_the_sandbox_of_its_unit(
    inside: Callable[..., str], runtime: Callable[[], Runtime]
) -> None:
    served = runtime()
    made = served.create(pod(), container(env=["NVIDIA_VISIBLE_DEVICES=0"]))
    (device,) = made.linux.devices
    video = int(inside("stat", "--format=%g", NODE))
    assert (device.path, device.major, device.minor, device.gid.value) == ("/dev/nvidia0", 195, 7, video)
    assert eventually(lambda: '"registered"' in inside("cat", "/run/cdigen-nri/status.json"))
    assert inside("stat", "--format=%a", "/run/cdigen-nri", "/run/cdigen-nri/status.json") == "755\n644\n"
    status = inside("cat", f"/proc/{main_pid(inside, 'cdigen-nri')}/status")
    assert "CapBnd:\t0000000000000000\n" in status
    assert "Seccomp:\t2\n" in status
    # The runtime restarts.
    served.close()
    again = runtime()
    assert again.create(pod(), container(env=["NVIDIA_VISIBLE_DEVICES=0"])).linux.devices
    inside("systemctl", "reload", "cdigen-nri")
    assert inside("systemctl", "is-active", "cdigen-nri") == "active\n"


def test_a_second_instance_serves_while_the_plugins_service_is_stopped(
    inside: Callable[..., str], runtime: Callable[[], Runtime]
) -> None:
    """As in docs/reference/nri.md, status.json describes the active instance; the lock outlives a unit."""
    request = pod(), container(env=["NVIDIA_VISIBLE_DEVICES=0"])

    def is_active(unit: str) -> bool:
        # The old instance removes its status before the new instance writes a status.
        return f'"pid": {main_pid(inside, unit)},' in inside(
            "sh", "-c", "cat /run/cdigen-nri/status.json || true"
        )

    runtime()
    assert eventually(lambda: is_active("cdigen-nri"))
    program = inside("sh", "-c", "command -v cdigen").strip()
    inside("systemd-run", "--unit=cdigen-nri-beside", program, "nri", "--standby")
    beside = runtime()
    inside("systemctl", "stop", "cdigen-nri")
    assert eventually(lambda: is_active("cdigen-nri-beside"))
    assert beside.create(*request).linux.devices
    inside("systemctl", "start", "--no-block", "cdigen-nri")
    served = runtime()
    assert is_active("cdigen-nri-beside")
    inside("systemctl", "stop", "cdigen-nri-beside")
    assert eventually(lambda: is_active("cdigen-nri"))
    assert served.create(*request).linux.devices


@pytest.mark.wall_clock
def test_a_killed_plugin_is_connected_again_within_five_seconds(
    inside: Callable[..., str], runtime: Callable[[], Runtime]
) -> None:
    runtime()
    inside("systemctl", "kill", "--signal=KILL", "cdigen-nri")
    began = time.monotonic()
    runtime()
    assert time.monotonic() - began < 5


def test_the_one_shot_unit_succeeds_without_a_gpu(inside: Callable[..., str]) -> None:
    inside("systemctl", "start", "cdigen-once")
    assert inside("systemctl", "show", "--property=Result", "--value", "cdigen-once").strip() == "success"


def test_uninstallation_stops_the_service_and_withdraws_specs_with_the_hook(
    host: Path, inside: Callable[..., str]
) -> None:
    """This test runs last because it removes cdigen from the host of this module."""
    inside("systemctl", "enable", "--now", "cdigen")
    hook = "/usr/libexec/cdigen/cdigen-hook"
    import_path = "import sys; sys.path.insert(0, '/usr/lib/cdigen')\n"
    inside("python3", "-BIS", "-c", import_path + publish_script("/etc/cdi", "nvidia.com/gpu", hook))
    (host / "etc/cdi/nvidia.yaml").write_text(f"path: {hook}\n")
    written = host / "etc/cdi/nvidia.com-gpu.json"
    assert written.exists()
    # This host has no make. `make uninstall` only sets these variables and runs etc/install.
    shutil.copytree(REPOSITORY / "etc", host / "srv/sources/etc")
    names = {
        "DESTDIR": "", "BINDIR": "/usr/bin", "LIBDIR": "/usr/lib", "LIBEXECDIR": "/usr/libexec",
        "DATADIR": "/usr/share", "MANDIR": "/usr/share/man", "ZSHDIR": "/usr/share/zsh/vendor-completions",
        "UNITDIR": "/usr/lib/systemd/system", "UDEVRULESDIR": "/usr/lib/udev/rules.d",
        "TMPFILESDIR": "/usr/lib/tmpfiles.d", "SYSCONFDIR": "/etc", "HOST_PYTHON": "/usr/bin/python3",
    }  # fmt: skip
    variables = [f"{name}={value}" for name, value in names.items()]
    message = inside("env", "--chdir=/srv/sources", *variables, "etc/install", "uninstall")
    assert (written.exists(), (host / "usr/bin/cdigen").exists()) == (False, False)
    assert message.splitlines()[-1] == "/etc/cdi/nvidia.yaml"
    assert inside("systemctl", "list-units", "--all", "--plain", "--no-legend", "cdigen*") == ""
    assert not (host / "etc/systemd/system/multi-user.target.wants/cdigen.service").is_symlink()
    assert "cdigen" not in inside("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
