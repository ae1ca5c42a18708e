"""The device plugins for the kubelet run in their unit under systemd, with a test double of the kubelet."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.containers.booted_host import eventually
from support.installation.installed_host import GPU_HOST, assert_confined, main_pid, started
from support.kubelet.double import Kubelet
from support.waiting import pause

pytestmark = pytest.mark.e2e

UNIT = "cdigen-kubelet"
RESOURCE = "nvidia.com/gpu"
PLUGIN = f"/usr/bin/cdigen kubelet --spec-dir /{GPU_HOST}/run/cdi --daemon-run-dir /{GPU_HOST}/run/cdigen"
DAEMON = f"/usr/bin/cdigen run --root /{GPU_HOST}"


@pytest.fixture(scope="module")
def inside(host: Path) -> Iterator[Callable[..., str]]:
    with started(host, cdigen=DAEMON, cdigen_kubelet=PLUGIN) as run:
        # systemd does this at boot, except in a container, so that later mounts are visible in services.
        run("mount", "--make-rshared", "/")
        run("systemctl", "start", "cdigen")
        yield run


@pytest.fixture
def folder(host: Path) -> Iterator[Path]:
    """Return a short path of the host's /var/lib/kubelet (socket paths are limited); it does not exist."""
    with tempfile.TemporaryDirectory(prefix="k") as short:
        (Path(short) / "lib").symlink_to(host / "var/lib")
        yield Path(short) / "lib/kubelet"
        shutil.rmtree(host / "var/lib/kubelet", ignore_errors=True)


@pytest.fixture
def kubelet(folder: Path) -> Iterator[Kubelet]:
    double = Kubelet(folder)
    yield double
    double.stop()


@pytest.fixture
def service(inside: Callable[..., str], folder: Path) -> Iterator[Callable[..., str]]:
    """Return a function that runs a command on the host; the unit is stopped at the end."""
    assert not folder.exists()
    yield inside
    inside("systemctl", "stop", UNIT)


def gpus(kubelet: Kubelet) -> int:
    """Return the number of GPUs that KUBELET receives. They are unhealthy, as their nodes are plain files."""
    try:
        return len(kubelet.list_of(RESOURCE))
    except LookupError:
        return 0


def has_gpus(kubelet: Kubelet, service: Callable[..., str]) -> None:
    """Wait until KUBELET has both GPUs."""
    assert eventually(lambda: gpus(kubelet) == 2), service("journalctl", f"--unit={UNIT}", "-n", "40")


def start(service: Callable[..., str]) -> None:
    service("sh", "-c", f"systemctl start {UNIT} || {{ journalctl -u {UNIT} -n 20; exit 1; }}")


def test_a_kubelet_that_started_before_the_service_has_the_gpus(
    kubelet: Kubelet, service: Callable[..., str]
) -> None:
    kubelet.start()
    start(service)
    has_gpus(kubelet, service)
    assert service("systemctl", "is-active", UNIT) == "active\n"
    message = ("systemctl", "show", "--property=StatusText", "--value", UNIT)
    assert eventually(lambda: f"{RESOURCE}: 0 of 2" in service(*message))


def test_a_kubelet_that_makes_its_folder_after_the_start_of_the_service_has_the_gpus(
    kubelet: Kubelet, service: Callable[..., str]
) -> None:
    start(service)
    assert not kubelet.plugins.exists()
    kubelet.start()
    has_gpus(kubelet, service)


def test_a_kubelet_has_the_gpus_again_after_a_restart_or_a_removal_of_its_folder(
    kubelet: Kubelet, service: Callable[..., str]
) -> None:
    kubelet.start()
    start(service)
    has_gpus(kubelet, service)
    kubelet.kill()
    kubelet.start()
    has_gpus(kubelet, service)
    kubelet.kill()
    shutil.rmtree(kubelet.plugins.parent)
    kubelet.start()
    has_gpus(kubelet, service)


def test_a_kubelet_whose_folder_is_mounted_after_the_start_has_the_gpus(
    service: Callable[..., str], folder: Path, host: Path
) -> None:
    folder.mkdir()
    start(service)
    disk = folder.parent.parent / "disk"
    disk.symlink_to(host / "srv")
    service("mount", "--bind", "/srv", "/var/lib/kubelet")
    double = Kubelet(disk)
    try:
        double.start()
        has_gpus(double, service)
    finally:
        double.stop()
        service("systemctl", "stop", UNIT)
        service("umount", "/var/lib/kubelet")


def test_the_service_has_no_capability_and_no_network_and_leaves_no_socket(
    kubelet: Kubelet, service: Callable[..., str]
) -> None:
    kubelet.start()
    start(service)
    has_gpus(kubelet, service)
    assert_confined(service, UNIT)
    service("systemctl", "reload", UNIT)
    # The command ends when the service has the signal. The unit is "reloading" until the end of the reload.
    assert eventually(lambda: service("systemctl", "is-active", UNIT) == "active\n")
    service("systemctl", "stop", UNIT)
    assert service("systemctl", "show", "--property=Result", "--value", UNIT) == "success\n"
    assert sorted(path.name for path in kubelet.plugins.iterdir()) == ["kubelet.sock"]


def test_a_killed_service_restarts_and_registers_again(kubelet: Kubelet, service: Callable[..., str]) -> None:
    kubelet.start()
    start(service)
    has_gpus(kubelet, service)
    before = main_pid(service, UNIT)
    service("systemctl", "kill", "--signal=KILL", UNIT)
    assert eventually(lambda: main_pid(service, UNIT) not in {0, before})
    assert eventually(lambda: len(kubelet.registered) == 2)
    has_gpus(kubelet, service)


def test_the_service_is_not_restarted_after_an_error_that_no_restart_fixes(
    service: Callable[..., str], host: Path
) -> None:
    # The service fails if the kubelet's folder is a file.
    file = host / "var/lib/kubelet"
    file.write_text("")
    try:
        with pytest.raises(AssertionError, match="cdigen-kubelet"):
            service("systemctl", "start", UNIT)
        pause(1)
        assert service("systemctl", "show", "--property=NRestarts", "--value", UNIT) == "0\n"
        assert "is not a folder" in service("journalctl", f"--unit={UNIT}", "--output=cat", "-n", "5")
    finally:
        file.unlink()
        service("systemctl", "reset-failed", UNIT)
