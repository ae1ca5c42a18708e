"""The steps of the tutorials succeed on real hosts, and print the documented outputs.

The images are those of the tests. A stand-in reloads the kernel module instead of a reboot.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE
from support.containers.doctor_host import diagnosed
from support.containers.upgrade_host import Upgraded, daemon, upgrade_host
from support.documents import Runner, blocks, follow, section_of, steps
from support.paths import REPOSITORY
from support.processes import captured

pytestmark = pytest.mark.e2e

# The device nodes have no driver. The default of the time limit is for hosts with a slow reload.
CONFIG = "health: {ignore: [node-unusable]}\ndaemon: {settle_timeout_s: 2}\n"
# The versions in the tutorial; those of the provisioned packages replace them.
OLD, NEW = "535.216.03", "535.261.03"
UPGRADE = "docs/tutorials/driver-upgrade.md"
COMPOSE = "docs/tutorials/docker-compose.md"
NETWORKLESS = "services: {first: {network_mode: none}}\n"


@pytest.fixture
def upgraded(upgrade_tree: Path, images: Path) -> Iterator[Upgraded]:
    """Run a host with Podman 4.3.1, two GPUs and the daemon."""
    with upgrade_host(upgrade_tree, images=images, config=CONFIG) as host, daemon(host):
        host.becomes("ready")
        yield host


def on(upgraded: Upgraded) -> Runner:
    """Return a function that runs a command of a tutorial on UPGRADED."""
    newer = upgraded.versions[1]

    def run(command: str) -> "subprocess.CompletedProcess[str]":
        command = command.removeprefix("sudo ")
        done = subprocess.CompletedProcess(command, 0, "", "")
        match shlex.split(command):
            case ["cdigen", *arguments]:
                cdigen = (sys.executable, "-m", "cdigen", *arguments, "--root", str(upgraded.root))
                done = captured(cdigen, cwd=REPOSITORY)
                done.stdout = done.stdout.replace(str(upgraded.root), "")
            case ["apt-get", "update"]:
                pass
            case ["apt-get", "upgrade"]:
                upgraded.install(newer)
                print(f"apt's end to the state mismatch: {upgraded.becomes('mismatch'):.2f} s")
            case ["reboot"]:
                upgraded.load_module(newer)
                print(f"the new module to the new spec: {upgraded.wait_for(newer):.2f} s")
            case _:
                done = upgraded.host.attempt(command.replace(" debian ", f" {DEBIAN_IMAGE} "))
                # The host has no plugins of the container network, and podman prints a warning about them.
                done.stderr = done.stderr if done.returncode else ""
        return done

    return run


def test_a_first_container_has_only_the_requested_gpu(upgraded: Upgraded) -> None:
    found = steps("docs/tutorials/first-container.md", "With a GPU")
    # nvidia-smi needs the driver.
    follow([step for step in found if "nvidia-smi" not in step.command], on(upgraded))


def test_a_driver_upgrade_needs_no_manual_step(upgraded: Upgraded) -> None:
    older, newer = upgraded.versions
    found = steps(UPGRADE)
    follow(
        [replace(step, output=step.output.replace(OLD, older).replace(NEW, newer)) for step in found],
        on(upgraded),
    )


def test_a_compose_service_has_its_gpu(cache: Path, driver_tree: Path, images: Path) -> None:
    (compose,) = blocks(section_of(COMPOSE), "yaml")
    with diagnosed(
        cache,
        tree=cache / "tools-forky",
        driver_tree=driver_tree,
        images=images,
        version="550.163.01",
    ) as host:
        host.put("/srv/first/compose.yaml", compose.replace("image: debian", f"image: {DEBIAN_IMAGE}"))
        host.put("/srv/first/compose.override.yaml", NETWORKLESS)

        def run(command: str) -> "subprocess.CompletedProcess[str]":
            command = command.removeprefix("sudo ").replace("compose run", "compose run -T")
            return host.attempt(f"cd /srv/first; {command} 2>&1")

        follow(steps(COMPOSE), run)
