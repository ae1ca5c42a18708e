"""The classic arguments of the real daemon, and the volume in them while the driver changes."""

import pytest
from support.daemon.figures import got
from support.daemon.host import NEW, OLD, Host, daemon

pytestmark = pytest.mark.usefixtures("real_nodes")
VOLUME = "/var/lib/cdigen/volumes/nvidia_driver"
NODES = ("nvidiactl", "nvidia-uvm", "nvidia0")


def test_the_arguments_stay_while_the_volume_follows_the_driver(host: Host) -> None:
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
        host.say_version(NEW)
        running.sees(lambda: running.state == "ready" and host.driver_of_view() == NEW)
        running.sees((volume / f"lib64/libcuda.so.{NEW}").is_file)
        assert got(running, "/docker/cli?dev=0&vol=nvidia_driver") == before
        running.sees(lambda: not host.rubbish())  # it may be writing its status just now
        host.unload()
        running.sees(lambda: running.state == "absent" and not volume.is_symlink())


def test_a_volume_that_was_removed_is_made_anew(host: Host) -> None:
    volume = host.root / VOLUME[1:]
    with daemon(host, "--layout", "view", "--hook", "none") as running:
        running.sees(lambda: running.state == "ready")
        volume.unlink()
        # As Docker does where a container starts meanwhile.
        volume.mkdir()
        assert got(running, "/docker/cli")[0] == 503
        (host.root / "dev/nvidia1").touch()
        running.sees(volume.is_symlink)
