"""The driver of a real Debian 12 is upgraded, removed and installed by the real apt, and the daemon keeps up.

Nothing is told to the daemon: it watches. A reader inside looks at the spec all the while, as runtimes do.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from chroothost import DEBIAN_IMAGE
from upgradehost import PACKAGES, REPLAYED, SPEC, Reading, Upgraded, daemon, reading, upgrade_host, wait_until

pytestmark = pytest.mark.e2e

UPGRADES = int(os.environ.get("CDIGEN_SOAK_UPGRADES") or (20 if os.environ.get("CI") else 4))
# The default is 30 s, for hosts on which the module follows the libraries within that.
IMPATIENT = "daemon: {settle_s: 2}\n"
VIEW = ("--layout", "view", "--hook", "cdigen")
FILES = ("--layout", "files", "--hook", "none")

LOADED = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4")
# Killed when some packages are of one version, some of the other, and one is half unpacked.
KILLED = """
dpkg --install {folder}/*.deb >/tmp/said 2>&1 & dpkg=$!
until grep -q "^Unpacking libnvidia-nvvm4" /tmp/said; do kill -0 $dpkg; sleep 0.01; done
kill -KILL $dpkg
! wait $dpkg
"""
REFUSAL = "unresolvable CDI devices nvidia.com/gpu=0"


def one_shot(upgraded: Upgraded, options: tuple[str, ...]) -> object:
    """Return the spec that a single `cdigen generate` makes of the host as it is."""
    elsewhere = upgraded.root.parent / "one-shot"
    command = [sys.executable, "-m", "cdigen", "generate", "--root", str(upgraded.root), "--write"]
    command += ["--spec-dir", str(elsewhere), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((elsewhere / Path(SPEC).name).read_text())


def upgraded_by_apt(upgraded: Upgraded, options: tuple[str, ...]) -> Reading:
    """Upgrade the driver, wait until that is a mismatch, load the module; return what a reader saw."""
    older, newer = upgraded.versions
    with daemon(upgraded, *options):
        wait_until(lambda: upgraded.state == "ready", "the first spec")
        assert upgraded.served() == {older}
        with reading(upgraded) as reader:
            upgraded.install(newer)
            wait_until(lambda: upgraded.state == "mismatch", "the daemon calls it a mismatch")
            upgraded.load_module(newer)
            wait_until(lambda: upgraded.state == "ready", "the daemon calls it ready")
            seen = reader.end()
        assert upgraded.served() == {newer}
        assert upgraded.spec() == one_shot(upgraded, options)
    return seen


def test_with_a_view_an_upgrade_replaces_the_spec_and_no_reader_ever_sees_one_that_does_not_hold(
    upgrade_tree: Path, images: Path
) -> None:
    with upgrade_host(upgrade_tree, images=images, config=IMPATIENT) as upgraded:
        seen = upgraded_by_apt(upgraded, VIEW)
    assert seen.states == ["ready", "settling", "mismatch", "ready"]
    assert {row["found"] for row in seen.of("spec")} == {"whole"}
    assert seen.writes == 1


def test_with_files_a_spec_that_names_a_missing_file_is_gone_within_a_second(
    upgrade_tree: Path, images: Path
) -> None:
    with upgrade_host(upgrade_tree, images=images, config=IMPATIENT) as upgraded:
        seen = upgraded_by_apt(upgraded, FILES)
    assert seen.states == ["ready", "settling", "mismatch", "ready"]
    print(f"a missing file was named for {seen.broken_s:.2f} s; writes: {seen.writes}")
    assert not seen.torn
    assert seen.broken_s <= 1
    assert seen.writes <= 3


def test_a_driver_that_is_removed_takes_its_spec_with_it_and_one_installed_again_brings_it_back(
    upgrade_tree: Path, images: Path
) -> None:
    with upgrade_host(upgrade_tree, images=images, config=IMPATIENT) as upgraded:
        older = upgraded.versions[0]
        with daemon(upgraded):
            wait_until(lambda: upgraded.state == "ready", "the first spec")
            with reading(upgraded) as reader:
                upgraded.remove()
                wait_until(lambda: upgraded.state == "absent", "the daemon calls it absent")
                assert upgraded.spec() is None
                upgraded.unload_module()
                upgraded.install(older)
                assert upgraded.spec() is None
                upgraded.load_module(older)
                wait_until(lambda: upgraded.state == "ready", "the daemon calls it ready")
                seen = reader.end()
            assert upgraded.served() == {older}
            assert upgraded.spec() == one_shot(upgraded, ())
    assert not seen.torn
    assert not seen.broken
    assert seen.writes == 1


def test_an_upgrade_whose_dpkg_is_killed_changes_nothing_until_it_is_done_again(
    upgrade_tree: Path, images: Path
) -> None:
    with upgrade_host(upgrade_tree, images=images, config=IMPATIENT) as upgraded:
        remove_others(upgraded)
        older, newer = upgraded.versions
        with daemon(upgraded, *VIEW):
            wait_until(lambda: upgraded.state == "ready", "the first spec")
            with reading(upgraded) as reader:
                killed = upgraded.host.attempt(KILLED.format(folder=f"/{REPLAYED}/{newer}"), timeout_s=120)
                assert killed.returncode == 0, killed.stdout + killed.stderr
                wait_until(lambda: upgraded.state == "mismatch", "the daemon calls it a mismatch")
                assert upgraded.served() == {older}
                upgraded.host.run(f"dpkg --install /{REPLAYED}/{newer}/*.deb", timeout_s=120)
                upgraded.load_module(newer)
                wait_until(lambda: upgraded.state == "ready", "the daemon calls it ready")
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
            wait_until(lambda: upgraded.state == "ready", "the first spec")
            starts = Starts(upgraded)
            with reading(upgraded) as reader, starts:
                for number in range(UPGRADES):
                    version = upgraded.versions[(number + 1) % 2]
                    upgraded.host.run(f"dpkg --install /{REPLAYED}/{version}/*.deb", timeout_s=120)
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


class Starts:
    """Starts containers with a GPU, one after the other, until the context ends; says what each was worth."""

    def __init__(self, upgraded: Upgraded) -> None:
        self._upgraded = upgraded
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._found: list[tuple[str, str]] = []

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _work(self) -> None:
        # The version by its name, and by what it says itself where it does: names can be those of links.
        versions = "|".join(version.replace(".", "[.]") for version in self._upgraded.versions)
        script = (
            f"dlopen-all {' '.join(LOADED)} | while read -r state path; do "
            f'versions=$({{ echo "$path"; cat "$path"; }} | grep -aoE "{versions}" | sort -u); '
            'echo $state $versions "$path"; done'
        )
        run = f"podman run --rm --device nvidia.com/gpu=0 {DEBIAN_IMAGE} sh -c '{script}'"
        while not self._stop.is_set():
            done = self._upgraded.host.attempt(run)
            if done.returncode == 0:
                self._found.append(self._judge(done.stdout))
            elif REFUSAL in done.stderr:
                self._found.append(("refused", ""))
            else:
                self._found.append(("wrong", done.stderr))

    def _judge(self, listed: str) -> tuple[str, str]:
        rows = [line.split() for line in listed.splitlines()]
        found = {tuple(row[1:-1]) for row in rows}
        consistent = len(rows) == len(LOADED) and len(found) == 1 and all(row[0] == "ok" for row in rows)
        return ("driver", "") if consistent and len(found.pop()) == 1 else ("wrong", listed)

    def counts(self) -> dict[str, int]:
        """Return how many starts had which end: driver, refused, wrong."""
        ends = [end for end, _ in self._found]
        return {end: ends.count(end) for end in dict.fromkeys(ends)}

    def wrong(self) -> list[str]:
        """Return what was seen of each start that was neither."""
        return [text for end, text in self._found if end == "wrong"]
