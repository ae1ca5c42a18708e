"""The real apt upgrades, removes and installs the driver of a Debian 12, and the daemon updates the spec.

The daemon receives no signal; it watches the host. A reader on the host reads the spec repeatedly, like a
runtime.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.gpu_hosts import succeed
from support.containers.starting_containers import Starts
from support.containers.upgrade_host import (
    PACKAGES,
    REPLAYED,
    SPEC,
    Reading,
    Upgraded,
    daemon,
    reading,
    upgrade_host,
    wait_until,
)

pytestmark = pytest.mark.e2e

UPGRADES = int(os.environ.get("CDIGEN_SOAK_UPGRADES", "4"))
# The default of 30 s is for hosts that load the new module within this time after the libraries.
SHORT_TIMEOUT = "daemon: {settle_timeout_s: 2}\n"
VIEW = ("--layout", "view", "--hook", "cdigen")
FILES = ("--layout", "files", "--hook", "none")

# dpkg is killed when one package is partly unpacked. Other packages then have the old or the new version.
KILL_DPKG = """
dpkg --install {folder}/*.deb >/tmp/dpkg.log 2>&1 & dpkg=$!
until grep -q "^Unpacking libnvidia-nvvm4" /tmp/dpkg.log; do kill -0 $dpkg; sleep 0.01; done
kill -KILL $dpkg
! wait $dpkg
"""


@pytest.fixture
def upgraded(upgrade_tree: Path, images: Path) -> Iterator[Upgraded]:
    with upgrade_host(upgrade_tree, images=images, config=SHORT_TIMEOUT) as host:
        yield host


def one_shot(upgraded: Upgraded, options: tuple[str, ...]) -> object:
    """Return the spec that a single `cdigen generate` writes for the host in its present state."""
    elsewhere = upgraded.root.parent / "one-shot"
    command = (sys.executable, "-m", "cdigen", "generate", "--root", upgraded.root, "--write")
    succeed(*command, "--spec-dir", elsewhere, *options)
    return json.loads((elsewhere / Path(SPEC).name).read_text())


def upgraded_by_apt(upgraded: Upgraded, options: tuple[str, ...]) -> Reading:
    """Upgrade the driver, wait for a mismatch, load the module; return the results of the reader."""
    older, newer = upgraded.versions
    with daemon(upgraded, *options):
        upgraded.becomes("ready")
        assert upgraded.served() == {older}
        with reading(upgraded) as reader:
            upgraded.install(newer)
            upgraded.becomes("mismatch")
            upgraded.load_module(newer)
            upgraded.becomes("ready")
            found = reader.end()
        assert upgraded.served() == {newer}
        assert upgraded.spec() == one_shot(upgraded, options)
    return found


def test_with_the_layout_view_the_spec_is_complete_at_every_moment_of_an_upgrade(
    upgraded: Upgraded,
) -> None:
    found = upgraded_by_apt(upgraded, VIEW)
    assert found.states == ["ready", "settling", "mismatch", "ready"]
    assert {row["found"] for row in found.of("spec")} == {"whole"}
    assert found.writes == 1


def test_with_the_layout_files_a_spec_with_a_missing_file_is_withdrawn_within_a_second(
    upgraded: Upgraded,
) -> None:
    found = upgraded_by_apt(upgraded, FILES)
    assert found.states == ["ready", "settling", "mismatch", "ready"]
    print(f"a missing file was named for {found.broken_s:.2f} s; writes: {found.writes}")
    assert not found.torn
    assert found.broken_s <= 1
    assert found.writes <= 3


def test_the_spec_is_withdrawn_if_the_driver_is_removed_and_written_after_a_reinstallation(
    upgraded: Upgraded,
) -> None:
    older = upgraded.versions[0]
    with daemon(upgraded):
        upgraded.becomes("ready")
        with reading(upgraded) as reader:
            upgraded.remove()
            upgraded.becomes("degraded")
            assert upgraded.spec() is None
            upgraded.unload_module()
            upgraded.install(older)
            assert upgraded.spec() is None
            upgraded.load_module(older)
            upgraded.becomes("ready")
            found = reader.end()
        assert upgraded.served() == {older}
        assert upgraded.spec() == one_shot(upgraded, ())
    assert not found.torn
    assert not found.broken
    assert found.writes == 1


def test_the_spec_is_unchanged_by_a_killed_upgrade_until_the_upgrade_is_repeated(
    upgraded: Upgraded,
) -> None:
    remove_others(upgraded)
    older, newer = upgraded.versions
    with daemon(upgraded, *VIEW):
        upgraded.becomes("ready")
        with reading(upgraded) as reader:
            killed = upgraded.host.attempt(KILL_DPKG.format(folder=f"/{REPLAYED}/{newer}"))
            assert killed.returncode == 0, killed.stdout + killed.stderr
            upgraded.becomes("mismatch")
            assert upgraded.served() == {older}
            upgraded.host.run(f"dpkg --install /{REPLAYED}/{newer}/*.deb")
            upgraded.load_module(newer)
            upgraded.becomes("ready")
            found = reader.end()
        assert upgraded.served() == {newer}
        assert upgraded.spec() == one_shot(upgraded, VIEW)
    assert {row["found"] for row in found.of("spec")} == {"whole"}
    assert found.writes == 1


def test_containers_that_start_during_upgrades_have_one_driver_or_are_refused(
    upgrade_tree: Path, images: Path
) -> None:
    """The real dpkg upgrades and downgrades the driver, UPGRADES times in total."""
    with upgrade_host(upgrade_tree, images=images) as upgraded:
        remove_others(upgraded)
        with daemon(upgraded):
            upgraded.becomes("ready")
            starts = Starts(upgraded.host, upgraded.versions)
            with reading(upgraded) as reader, starts:
                for number in range(UPGRADES):
                    version = upgraded.versions[(number + 1) % 2]
                    upgraded.host.run(f"dpkg --install /{REPLAYED}/{version}/*.deb")
                    if number % 4 == 3:
                        upgraded.unload_module()
                        wait_until(lambda: upgraded.spec() is None, "the spec is withdrawn")
                    upgraded.load_module(version)
                    upgraded.wait_for(version)
                found = reader.end()
    print(f"{UPGRADES} upgrades, {found.writes} writes, starts: {starts.counts()}")
    assert not starts.wrong()
    assert {row["found"] for row in found.of("spec")} <= {"whole", "none"}
    assert found.writes <= UPGRADES
    # The test would prove nothing if podman had started no container, or only one.
    assert {"driver"} <= set(starts.counts())
    assert starts.counts()["driver"] >= UPGRADES


def remove_others(upgraded: Upgraded) -> None:
    """Remove the packages of the driver that are not in REPLAYED."""
    driver, replayed = (upgraded.root / place / upgraded.versions[0] for place in (PACKAGES, REPLAYED))
    names = {file.name.partition("_")[0] for file in driver.glob("*.deb")}
    names -= {file.stem for file in replayed.glob("*.deb")}
    upgraded.apt(f"remove --assume-yes {' '.join(sorted(names))}")
