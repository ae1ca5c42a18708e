"""The driver of a real Debian 12 is upgraded, removed and installed by the real apt, and the daemon keeps up.

Nothing is told to the daemon: it watches. A reader inside looks at the spec all the while, as runtimes do.
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
# The default is 30 s, for hosts on which the module follows the libraries within that.
IMPATIENT = "daemon: {settle_timeout_s: 2}\n"
VIEW = ("--layout", "view", "--hook", "cdigen")
FILES = ("--layout", "files", "--hook", "none")

# Killed when some packages are of one version, some of the other, and one is half unpacked.
KILLED = """
dpkg --install {folder}/*.deb >/tmp/said 2>&1 & dpkg=$!
until grep -q "^Unpacking libnvidia-nvvm4" /tmp/said; do kill -0 $dpkg; sleep 0.01; done
kill -KILL $dpkg
! wait $dpkg
"""


@pytest.fixture
def upgraded(upgrade_tree: Path, images: Path) -> Iterator[Upgraded]:
    with upgrade_host(upgrade_tree, images=images, config=IMPATIENT) as host:
        yield host


def one_shot(upgraded: Upgraded, options: tuple[str, ...]) -> object:
    """Return the spec that a single `cdigen generate` makes of the host as it is."""
    elsewhere = upgraded.root.parent / "one-shot"
    command = (sys.executable, "-m", "cdigen", "generate", "--root", upgraded.root, "--write")
    succeed(*command, "--spec-dir", elsewhere, *options)
    return json.loads((elsewhere / Path(SPEC).name).read_text())


def upgraded_by_apt(upgraded: Upgraded, options: tuple[str, ...]) -> Reading:
    """Upgrade the driver, wait until that is a mismatch, load the module; return what a reader saw."""
    older, newer = upgraded.versions
    with daemon(upgraded, *options):
        upgraded.becomes("ready")
        assert upgraded.served() == {older}
        with reading(upgraded) as reader:
            upgraded.install(newer)
            upgraded.becomes("mismatch")
            upgraded.load_module(newer)
            upgraded.becomes("ready")
            seen = reader.end()
        assert upgraded.served() == {newer}
        assert upgraded.spec() == one_shot(upgraded, options)
    return seen


def test_with_a_view_an_upgrade_replaces_the_spec_and_no_reader_ever_sees_one_that_does_not_hold(
    upgraded: Upgraded,
) -> None:
    seen = upgraded_by_apt(upgraded, VIEW)
    assert seen.states == ["ready", "settling", "mismatch", "ready"]
    assert {row["found"] for row in seen.of("spec")} == {"whole"}
    assert seen.writes == 1


def test_with_files_a_spec_that_names_a_missing_file_is_gone_within_a_second(
    upgraded: Upgraded,
) -> None:
    seen = upgraded_by_apt(upgraded, FILES)
    assert seen.states == ["ready", "settling", "mismatch", "ready"]
    print(f"a missing file was named for {seen.broken_s:.2f} s; writes: {seen.writes}")
    assert not seen.torn
    assert seen.broken_s <= 1
    assert seen.writes <= 3


def test_a_driver_that_is_removed_takes_its_spec_with_it_and_one_installed_again_brings_it_back(
    upgraded: Upgraded,
) -> None:
    older = upgraded.versions[0]
    with daemon(upgraded):
        upgraded.becomes("ready")
        with reading(upgraded) as reader:
            upgraded.remove()
            upgraded.becomes("absent")
            assert upgraded.spec() is None
            upgraded.unload_module()
            upgraded.install(older)
            assert upgraded.spec() is None
            upgraded.load_module(older)
            upgraded.becomes("ready")
            seen = reader.end()
        assert upgraded.served() == {older}
        assert upgraded.spec() == one_shot(upgraded, ())
    assert not seen.torn
    assert not seen.broken
    assert seen.writes == 1


def test_an_upgrade_whose_dpkg_is_killed_changes_nothing_until_it_is_done_again(
    upgraded: Upgraded,
) -> None:
    remove_others(upgraded)
    older, newer = upgraded.versions
    with daemon(upgraded, *VIEW):
        upgraded.becomes("ready")
        with reading(upgraded) as reader:
            killed = upgraded.host.attempt(KILLED.format(folder=f"/{REPLAYED}/{newer}"))
            assert killed.returncode == 0, killed.stdout + killed.stderr
            upgraded.becomes("mismatch")
            assert upgraded.served() == {older}
            upgraded.host.run(f"dpkg --install /{REPLAYED}/{newer}/*.deb")
            upgraded.load_module(newer)
            upgraded.becomes("ready")
            seen = reader.end()
        assert upgraded.served() == {newer}
        assert upgraded.spec() == one_shot(upgraded, VIEW)
    assert {row["found"] for row in seen.of("spec")} == {"whole"}
    assert seen.writes == 1


def test_containers_that_start_during_upgrades_get_one_driver_or_the_one_refusal(
    upgrade_tree: Path, images: Path
) -> None:
    """UPGRADES forth and back with the real dpkg."""
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
                seen = reader.end()
    print(f"{UPGRADES} upgrades, {seen.writes} writes, starts: {starts.counts()}")
    assert not starts.wrong()
    assert {row["found"] for row in seen.of("spec")} <= {"whole", "none"}
    assert seen.writes <= UPGRADES
    # The test would prove nothing if podman had refused to start anything, or started it once.
    assert {"driver"} <= set(starts.counts())
    assert starts.counts()["driver"] >= UPGRADES


def remove_others(upgraded: Upgraded) -> None:
    """Leave only those packages of the driver installed that are replayed."""
    driver, replayed = (upgraded.root / place / upgraded.versions[0] for place in (PACKAGES, REPLAYED))
    names = {file.name.partition("_")[0] for file in driver.glob("*.deb")}
    names -= {file.stem for file in replayed.glob("*.deb")}
    upgraded.apt(f"remove --assume-yes {' '.join(sorted(names))}")
