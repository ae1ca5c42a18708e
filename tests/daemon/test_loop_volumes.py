"""The Docker arguments in the classic form from the real daemon, and their volume during a driver upgrade."""

import pytest
from support.daemon.host import NEW, OLD, Host, daemon
from support.daemon.stats import got

pytestmark = pytest.mark.usefixtures("real_nodes")
VOLUME = "/var/lib/cdigen/volumes/nvidia_driver"
NODES = ("nvidiactl", "nvidia-uvm", "nvidia0")


def test_after_an_upgrade_the_arguments_are_the_same_and_the_volume_has_the_new_driver(host: Host) -> None:
    volume = host.root / VOLUME[1:]
    with daemon(host, "--layout", "view", "--hook", "none") as running:
        running.sees(lambda: running.state == "ready")
        before = got(running, "/docker/cli?dev=0&vol=nvidia_driver")
        assert before[0] == 200
        words = before[1].split(" ")
        assert words[0] == f"--volume={VOLUME}:/usr/local/nvidia:ro"
        assert [word for word in words if word.removeprefix("--device=/dev/") in NODES] == [
            f"--device=/dev/{name}" for name in NODES
        ]
        assert (volume / f"lib64/libcuda.so.{OLD}").is_file()
        host.install(NEW)
        host.set_version(NEW)
        running.sees(lambda: running.state == "ready" and host.driver_of_view() == NEW)
        running.sees((volume / f"lib64/libcuda.so.{NEW}").is_file)
        assert got(running, "/docker/cli?dev=0&vol=nvidia_driver") == before
        running.sees(lambda: not host.rubbish())  # the daemon may be writing its status
        host.unload()
        running.sees(lambda: running.state == "absent" and not volume.is_symlink())


def test_a_removed_volume_is_created_again(host: Host) -> None:
    volume = host.root / VOLUME[1:]
    with daemon(host, "--layout", "view", "--hook", "none") as running:
        running.sees(lambda: running.state == "ready")
        volume.unlink()
        # Docker makes this folder if a container starts without the volume.
        volume.mkdir()
        assert got(running, "/docker/cli")[0] == 503
        (host.root / "dev/nvidia1").touch()
        running.sees(volume.is_symlink)
