"""Real runtimes are broken in ten ways: `cdigen doctor` names the cause first, and its remedy fixes it.

Each time a real container fails before, and starts after the remedy was run as it is printed.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.containers.chroot_host import REDHAT_IMAGE, Host
from support.containers.doctor_host import (
    DEVICE,
    MOUNT_KERNEL,
    RUNTIMES,
    SPEC,
    UNMOUNT_KERNEL,
    diagnosed,
    verdicts,
)
from support.containers.gpu_hosts import AS_USER, without_root

pytestmark = pytest.mark.e2e

EVERY = tuple(RUNTIMES)
FORKY, BOOKWORM = "550.163.01", "535.216.03"
LIBRARY = "libnvidia-ptxjitcompiler.so.VERSION"
# Mounts of single files: a view keeps what it holds, whatever becomes of the driver's own files.
FILES_PROFILE = "profiles: [{name: gpu, class: gpu, layout: files, hook: none}]"
PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """What is done to a host, and the check that names it."""

    script: str
    check: str
    runtimes: tuple[str, ...] = EVERY
    words: str = ""

    def on(self, version: str) -> "Breakage":
        """Return it for a driver of VERSION."""
        script, words = (text.replace("VERSION", version) for text in (self.script, self.words))
        return replace(self, script=script, words=words)


BREAKAGES = {
    "stale duplicate": Breakage(
        script=f"sed 's/VERSION/470.82.01/g' {SPEC} >/var/run/cdi/nvidia.yaml",
        check="spec-conflict",
        words="/var/run/cdi/nvidia.yaml",
    ),
    "too new a version": Breakage(
        script=f'sed -i \'s/"cdiVersion": "0.5.0"/"cdiVersion": "1.1.0"/\' {SPEC}; grep -q 1.1.0 {SPEC}',
        check="spec-version",
        words="1.1.0",
    ),
    "CDI switched off": Breakage(
        script='sed -i \'s/"features": {/"features": {"cdi": false, /\' /etc/docker/daemon.json && '
        "systemctl restart docker",
        check="docker-cdi",
        runtimes=("docker",),
        words="/etc/docker/daemon.json",
    ),
    "unreadable file": Breakage(
        script=f"mv {SPEC} /srv/moved.json && ln -s /nowhere.json {SPEC}", check="spec-unreadable", words=SPEC
    ),
    "wrong directory, of the specs": Breakage(
        script=f"mkdir -p /srv/cdi && mv {SPEC} /srv/cdi/", check="spec-missing", words="/var/run/cdi"
    ),
    "wrong directory, of podman": Breakage(
        script="mkdir -p /etc/containers/containers.conf.d && "
        "printf '[engine]\\ncdi_spec_dirs = [\"/srv/cdi\"]\\n' "
        ">/etc/containers/containers.conf.d/50-mine.conf",
        check="podman-directories",
        runtimes=("podman",),
        words="50-mine.conf",
    ),
    "wrong directory, of docker": Breakage(
        script='sed -i \'s/{/{"cdi-spec-dirs": ["\\/srv\\/cdi"],/;\' /etc/docker/daemon.json && '
        'sed -i \'2,$s/"cdi-spec-dirs": \\["\\/srv\\/cdi"\\],//\' /etc/docker/daemon.json && '
        "systemctl restart docker",
        check="docker-directories",
        runtimes=("docker",),
        words="/srv/cdi",
    ),
    "symlinked directory": Breakage(
        script="mv /run/cdi /srv/cdi && ln -s /srv/cdi /run/cdi",
        check="spec-directory-link",
        words="/srv/cdi",
    ),
    "missing node": Breakage(script="rm /dev/nvidia0", check="node-missing", words="/dev/nvidia0"),
    "missing library": Breakage(
        script=f"mkdir -p /etc/cdigen && echo '{FILES_PROFILE}' >/etc/cdigen/config.yaml && "
        f"cdigen generate --write && find /usr/lib /var/lib/cdigen -name {LIBRARY} -exec mv {{}} /srv/ ';'",
        check="spec-files",
        words=LIBRARY,
    ),
    "conflicting kind": Breakage(
        script='printf \'%s\' \'{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", '
        '"containerEdits": {"env": ["OTHER=1"]}}]}\' >/var/run/cdi/other-vendor.json',
        check="spec-conflict",
        words="/var/run/cdi/other-vendor.json",
    ),
    "bad JSON": Breakage(script=f"truncate --size=-20 {SPEC}", check="spec-syntax", words=SPEC),
}

SAVE = f"""
mkdir -p /etc/docker /srv/saved
cp -a /etc/docker /etc/containers /srv/saved/
find /usr/lib -name '{LIBRARY}' >/srv/library
"""
RESTORE = f"""
rm -rf /run/cdi /etc/cdi /srv/cdi /srv/moved.json /etc/cdigen
for name in docker containers; do
    if ! diff -r /etc/$name /srv/saved/$name >/dev/null; then
        rm -rf /etc/$name; cp -a /srv/saved/$name /etc/; test $name != docker || systemctl restart docker
    fi
done
test -e /dev/nvidia0 || mknod -m 666 /dev/nvidia0 c 195 0
if [ -e /srv/{LIBRARY} ]; then
    mv /srv/{LIBRARY} "$(cat /srv/library)"
fi
cdigen generate --write
"""


@pytest.fixture(scope="module")
def forky(cache: Path, driver_tree: Path, images: Path) -> Iterator[Host]:
    """Run a GPU host with the newest podman, Docker and containerd."""
    tree = cache / "runtimes-forky"
    with diagnosed(cache, tree=tree, driver_tree=driver_tree, images=images, version=FORKY) as host:
        host.run(SAVE.replace("VERSION", FORKY))
        yield host


@pytest.fixture(scope="module")
def bookworm(cache: Path, upgrade_tree: Path, images: Path) -> Iterator[Host]:
    """Run a GPU host with podman 4.3.1, which reads specs of 0.5.0 at most."""
    with diagnosed(cache, tree=upgrade_tree, driver_tree=None, images=images, version=BOOKWORM) as host:
        host.run(SAVE.replace("VERSION", BOOKWORM))
        yield host


@pytest.fixture
def well(forky: Host) -> Iterator[Host]:
    """Return the host with all runtimes, with all as it was before the last test."""
    yield forky
    forky.run(RESTORE.replace("VERSION", FORKY))


@pytest.fixture
def old(bookworm: Host) -> Iterator[Host]:
    """Return the host with podman 4.3.1 likewise."""
    yield bookworm
    bookworm.run(RESTORE.replace("VERSION", BOOKWORM))


def starts(host: Host, runtime: str, *, patience_s: float = 0.0) -> bool:
    """Start a container; the daemons see files a moment after they have changed."""
    end = time.monotonic() + patience_s
    while not RUNTIMES[runtime].start(host):
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def fails(host: Host, runtime: str) -> bool:
    """Wait until no container starts any more, since a daemon may not have seen yet what was done."""
    end = time.monotonic() + PATIENCE_S
    while RUNTIMES[runtime].start(host):
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def fixes(host: Host, breakage: Breakage, runtime: str, *allowed: str) -> None:
    """Break the host, see that the doctor knows why, and run what it says."""
    host.run(breakage.script)
    assert fails(host, runtime)
    question = ("--for", runtime, "--device", DEVICE)
    first = verdicts(host, *question)[0]
    assert (first["check"], first["ok"], first["severity"]) == (breakage.check, False, "error"), first
    assert breakage.words in first["detail"]
    print(f"{first['detail']}\nremedy: {first['remedy']}")
    host.run(first["remedy"])
    assert starts(host, runtime, patience_s=PATIENCE_S)
    left = {row["check"] for row in verdicts(host, *question) if not row["ok"]}
    assert left <= set(allowed)


# That the driver lacks a library is fixed by its packages alone.
LEFT = {"missing library": ("driver-files",)}


@pytest.mark.parametrize("runtime", EVERY)
def test_a_host_that_is_well_starts_containers_and_has_nothing_wrong(well: Host, runtime: str) -> None:
    assert starts(well, runtime)
    assert [row for row in verdicts(well, "--for", runtime) if not row["ok"]] == []


@pytest.mark.parametrize(
    ("name", "runtime"),
    [(name, runtime) for name, breakage in BREAKAGES.items() for runtime in breakage.runtimes],
)
def test_the_cause_comes_first_and_its_remedy_lets_the_container_start(
    well: Host, name: str, runtime: str
) -> None:
    fixes(well, BREAKAGES[name].on(FORKY), runtime, *LEFT.get(name, ()))


def test_a_daemon_that_is_older_than_its_configuration_is_restarted(well: Host) -> None:
    well.run("sleep 1.5; touch /etc/docker/daemon.json")
    first = verdicts(well, "--for", "docker")[0]
    assert (first["check"], first["severity"]) == ("docker-restart", "warning")
    well.run(first["remedy"])
    assert verdicts(well, "--for", "docker")[0]["ok"]


def test_debian_12_is_well_before_it_is_broken(old: Host) -> None:
    assert starts(old, "podman")
    assert [row for row in verdicts(old) if not row["ok"]] == []


@pytest.mark.parametrize("name", [name for name, breakage in BREAKAGES.items() if breakage.runtimes == EVERY])
def test_podman_of_debian_12_is_mended_as_well(old: Host, name: str) -> None:
    fixes(old, BREAKAGES[name].on(BOOKWORM), "podman", *LEFT.get(name, ()))


def test_a_spec_that_only_newer_podmans_read_is_written_for_this_one(old: Host) -> None:
    script = f'sed -i \'s/"cdiVersion": "0.5.0"/"cdiVersion": "0.6.0"/\' {SPEC}'
    fixes(
        old, Breakage(script=script, check="spec-version", words="podman 4.3.1 reads 0.5.0 at most"), "podman"
    )


def test_a_file_that_a_user_may_not_read_is_opened_for_rootless_containers(old: Host) -> None:
    # The kernel lets no user mount /proc or /sys where something covers a part; podman keeps the namespace
    # of a user's first container.
    old.run(UNMOUNT_KERNEL)
    container = f"{without_root(old).podman} {REDHAT_IMAGE} true"
    assert old.attempt(container).returncode == 0
    old.run(MOUNT_KERNEL)
    question = ("--for", "podman", "--user", "rl", "--device", DEVICE)
    assert [row for row in verdicts(old, *question) if not row["ok"]] == []
    old.run(f"chmod 0600 {SPEC}")
    assert "unresolvable CDI devices" in old.attempt(container).stderr
    first = verdicts(old, *question)[0]
    assert (first["check"], first["severity"]) == ("spec-unreadable", "error")
    # Whoever has no root's rights asks for himself, and hears the same.
    asked = old.attempt(f"{AS_USER} cdigen doctor --json --for podman --device {DEVICE}")
    assert json.loads(asked.stdout)[0] == first, asked.stderr
    old.run(first["remedy"])
    assert old.attempt(container).returncode == 0
