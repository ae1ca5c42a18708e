"""The whole of it on a host of its own: a clean Debian root, installed into, booted by its own systemd."""

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
# A node that only the plugin looks at, of no device that there is.
NODE = "/dev/cdigen-test"


def of_the_system(root: Path) -> dict[str, tuple[int, int, int, int, str]]:
    return {path: told for path, told in snapshot(root).items() if not path.startswith(GPU_HOST)}


def asked_nvml(root: Path) -> str:
    """Start NVML's process as the installed one does, for a library that is nowhere; return what it says."""
    child = "/usr/local/lib/cdigen/cdigen/vendors/nvidia/nvml/child"
    command = ["chroot", str(root), "/usr/bin/python3", "-I", child, "/nowhere/libnvidia-ml.so.1", "identity"]
    return captured(command).stdout


def test_installed_started_and_uninstalled_nothing_is_left(host: Path) -> None:
    def cdigen(*arguments: str) -> str:
        command = ["chroot", str(host), "/usr/local/bin/cdigen", *arguments]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        return result.stdout

    before = of_the_system(host)
    done(make("install", host, "PREFIX=/usr/local", HOST_PYTHON))
    try:
        assert cdigen("--version").startswith("cdigen ")
        cdigen("generate", "--root", f"/{GPU_HOST}", "--write")
        assert "nvidia.com/gpu=1" in cdigen("list", "--root", f"/{GPU_HOST}")
        assert "pynvml" not in asked_nvml(host)
        assert (host / SPEC).stat().st_mode & 0o777 == 0o644
        for path in (host / "usr/local").rglob("*"):
            status = path.lstat()
            assert path.is_symlink() or (status.st_uid, status.st_gid, status.st_mode & 0o022) == (0, 0, 0), (
                path
            )
    finally:
        done(make("uninstall", host, "PREFIX=/usr/local"))
    assert of_the_system(host) == before
    assert (host / SPEC).exists()


@pytest.fixture(scope="module")
def inside(host: Path) -> Iterator[Callable[..., str]]:
    """Boot the host's own systemd with cdigen installed; returns what runs a command there."""
    shutil.rmtree(host / GPU_HOST / "run/cdi", ignore_errors=True)
    shutil.rmtree(host / GPU_HOST / "var/lib/cdigen", ignore_errors=True)
    with started(host, cdigen=f"/usr/bin/cdigen run --root /{GPU_HOST} --layout view -v") as run:
        yield run


def test_the_service_does_its_work_without_any_capability(inside: Callable[..., str]) -> None:
    inside("systemctl", "start", "cdigen")
    assert 'Status: "ready' in inside("systemctl", "status", "cdigen", "--no-pager")
    assert_confined(inside, "cdigen")


def test_views_are_hard_links_within_the_service(host: Path, inside: Callable[..., str]) -> None:
    inside("systemctl", "start", "cdigen")
    assert eventually((host / SPEC).exists)
    views = host / GPU_HOST / "var/lib/cdigen/views"
    library = next(views.glob("*/lib64/libcuda.so.5*"))
    source = next((host / GPU_HOST / "usr/lib/x86_64-linux-gnu/nvidia/current").glob("libcuda.so.5*"))
    assert library.samefile(source)


def test_a_spec_directory_that_others_remove_and_make_again_is_filled_again(
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
    told = f"pci change {device.name}"
    assert eventually(lambda: told in inside("journalctl", "--unit=cdigen", "--no-pager", "--output=cat"))


@pytest.mark.wall_clock
def test_reload_and_stop_are_clean_and_quick(inside: Callable[..., str]) -> None:
    inside("systemctl", "start", "cdigen")
    inside("systemctl", "reload", "cdigen")
    assert eventually(lambda: "SIGHUP" in inside("journalctl", "--unit=cdigen", "--no-pager", "--output=cat"))
    started = time.monotonic()
    inside("systemctl", "stop", "cdigen")
    assert time.monotonic() - started < 2
    assert inside("systemctl", "show", "--property=Result", "--value", "cdigen").strip() == "success"


def test_a_wrong_configuration_fails_the_reload_and_the_daemon_goes_on(
    host: Path, inside: Callable[..., str]
) -> None:
    inside("systemctl", "start", "cdigen")
    # The drop-in of this test makes another tree the host: the reload asks for the machine's own file.
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
        counts_not = "the configuration does not count"
        assert eventually(lambda: counts_not in inside("systemctl", "status", "cdigen", "--no-pager"))
        for file in files:
            file.write_text("mode: auto\n")
        inside("systemctl", "reload", "cdigen")
        assert eventually(lambda: "unknown key" not in inside("cdigen", "status", "--root", f"/{GPU_HOST}"))
    finally:
        for file in files:
            file.unlink()


@pytest.fixture
def runtime(host: Path, inside: Callable[..., str]) -> Iterator[Callable[[], Runtime]]:
    """Start the plugin as its unit does, for a socket of ours; returns what waits for it to register."""
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


def test_the_plugin_in_its_sandbox_sees_all_that_it_needs(
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


def test_an_instance_beside_the_plugins_service_serves_while_that_is_stopped(
    inside: Callable[..., str], runtime: Callable[[], Runtime]
) -> None:
    """As docs/nri.md says; status.json shows whose the place is, and the lock outlives the other's unit."""
    asks = pod(), container(env=["NVIDIA_VISIBLE_DEVICES=0"])

    def has_place(unit: str) -> bool:
        # One takes its status away before the other writes its own.
        return f'"pid": {main_pid(inside, unit)},' in inside(
            "sh", "-c", "cat /run/cdigen-nri/status.json || true"
        )

    runtime()
    assert eventually(lambda: has_place("cdigen-nri"))
    program = inside("sh", "-c", "command -v cdigen").strip()
    inside("systemd-run", "--unit=cdigen-nri-beside", program, "nri", "--standby")
    beside = runtime()
    inside("systemctl", "stop", "cdigen-nri")
    assert eventually(lambda: has_place("cdigen-nri-beside"))
    assert beside.create(*asks).linux.devices
    inside("systemctl", "start", "--no-block", "cdigen-nri")
    served = runtime()
    assert has_place("cdigen-nri-beside")
    inside("systemctl", "stop", "cdigen-nri-beside")
    assert eventually(lambda: has_place("cdigen-nri"))
    assert served.create(*asks).linux.devices


@pytest.mark.wall_clock
def test_a_plugin_that_was_killed_is_back_at_once(
    inside: Callable[..., str], runtime: Callable[[], Runtime]
) -> None:
    runtime()
    inside("systemctl", "kill", "--signal=KILL", "cdigen-nri")
    began = time.monotonic()
    runtime()
    assert time.monotonic() - began < 5


def test_the_unit_that_runs_once_takes_no_gpu_for_no_failure(inside: Callable[..., str]) -> None:
    inside("systemctl", "start", "cdigen-once")
    assert inside("systemctl", "show", "--property=Result", "--value", "cdigen-once").strip() == "success"


def test_uninstalled_the_service_ends_first_and_no_spec_names_a_hook_that_is_gone(
    host: Path, inside: Callable[..., str]
) -> None:
    """The last one: it takes cdigen from the host of this file."""
    inside("systemctl", "enable", "--now", "cdigen")
    hook = "/usr/libexec/cdigen/cdigen-hook"
    where = "import sys; sys.path.insert(0, '/usr/lib/cdigen')\n"
    inside("python3", "-BIS", "-c", where + publish_script("/etc/cdi", "nvidia.com/gpu", hook))
    (host / "etc/cdi/nvidia.yaml").write_text(f"path: {hook}\n")
    written = host / "etc/cdi/nvidia.com-gpu.json"
    assert written.exists()
    # make is not on this host: it only names the variables.
    shutil.copytree(REPOSITORY / "etc", host / "srv/sources/etc")
    names = {
        "DESTDIR": "", "BINDIR": "/usr/bin", "LIBDIR": "/usr/lib", "LIBEXECDIR": "/usr/libexec",
        "SYSCONFDIR": "/etc", "HOST_PYTHON": "/usr/bin/python3",
    }  # fmt: skip
    variables = [f"{name}={value}" for name, value in names.items()]
    said = inside("env", "--chdir=/srv/sources", *variables, "etc/install", "uninstall")
    assert (written.exists(), (host / "usr/bin/cdigen").exists()) == (False, False)
    assert said.splitlines()[-1] == "/etc/cdi/nvidia.yaml"
    assert inside("systemctl", "list-units", "--all", "--plain", "--no-legend", "cdigen*") == ""
    assert not (host / "etc/systemd/system/multi-user.target.wants/cdigen.service").is_symlink()
    assert "cdigen" not in inside("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
