"""For each breakage of a host, `cdigen doctor` reports the cause first, and its remedy fixes the host.

A real container fails before the printed remedy is run, and starts afterwards.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, REDHAT_IMAGE, Host
from support.containers.doctor_host import (
    DEVICE,
    MOUNT_KERNEL,
    RUNTIMES,
    SPEC,
    UNMOUNT_KERNEL,
    diagnosed,
    verdicts,
)
from support.containers.gpu_hosts import AS_USER, GPUS, without_root

pytestmark = pytest.mark.e2e

EVERY = tuple(RUNTIMES)
FORKY, BOOKWORM = "550.163.01", "535.216.03"
LIBRARY = "libnvidia-ptxjitcompiler.so.VERSION"
# The profile mounts single files, because a view keeps its files if the driver's files change.
FILES_PROFILE = "profiles: [{name: gpu, class: gpu, layout: files, hook: none}]"
START_LIMIT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """A change that breaks a host, and the check that reports the change."""

    script: str
    check: str
    runtimes: tuple[str, ...] = EVERY
    detail: str = ""

    def on(self, version: str) -> "Breakage":
        """Return the breakage for a driver of VERSION."""
        script, detail = (text.replace("VERSION", version) for text in (self.script, self.detail))
        return replace(self, script=script, detail=detail)


BREAKAGES = {
    "stale duplicate": Breakage(
        script=f"sed 's/VERSION/470.82.01/g' {SPEC} >/var/run/cdi/nvidia.yaml",
        check="spec-conflict",
        detail="/var/run/cdi/nvidia.yaml",
    ),
    "too new a version": Breakage(
        script=f'sed -i \'s/"cdiVersion": "0.5.0"/"cdiVersion": "1.1.0"/\' {SPEC}; grep -q 1.1.0 {SPEC}',
        check="spec-version",
        detail="1.1.0",
    ),
    "CDI switched off": Breakage(
        script='sed -i \'s/"features": {/"features": {"cdi": false, /\' /etc/docker/daemon.json && '
        "systemctl restart docker",
        check="docker-cdi",
        runtimes=("docker",),
        detail="/etc/docker/daemon.json",
    ),
    "unreadable file": Breakage(
        script=f"mv {SPEC} /srv/moved.json && ln -s /nowhere.json {SPEC}",
        check="spec-unreadable",
        detail=SPEC,
    ),
    "wrong directory, of the specs": Breakage(
        script=f"mkdir -p /srv/cdi && mv {SPEC} /srv/cdi/", check="spec-missing", detail="/var/run/cdi"
    ),
    "wrong directory, of podman": Breakage(
        script="mkdir -p /etc/containers/containers.conf.d && "
        "printf '[engine]\\ncdi_spec_dirs = [\"/srv/cdi\"]\\n' "
        ">/etc/containers/containers.conf.d/50-mine.conf",
        check="podman-directories",
        runtimes=("podman",),
        detail="50-mine.conf",
    ),
    "wrong directory, of docker": Breakage(
        script='sed -i \'s/{/{"cdi-spec-dirs": ["\\/srv\\/cdi"],/;\' /etc/docker/daemon.json && '
        'sed -i \'2,$s/"cdi-spec-dirs": \\["\\/srv\\/cdi"\\],//\' /etc/docker/daemon.json && '
        "systemctl restart docker",
        check="docker-directories",
        runtimes=("docker",),
        detail="/srv/cdi",
    ),
    "symlinked directory": Breakage(
        script="mv /run/cdi /srv/cdi && ln -s /srv/cdi /run/cdi",
        check="spec-directory-link",
        detail="/srv/cdi",
    ),
    "missing node": Breakage(script="rm /dev/nvidia0", check="node-missing", detail="/dev/nvidia0"),
    "missing library": Breakage(
        script=f"mkdir -p /etc/cdigen && echo '{FILES_PROFILE}' >/etc/cdigen/config.yaml && "
        f"cdigen generate --write && find /usr/lib /var/lib/cdigen -name {LIBRARY} -exec mv {{}} /srv/ ';'",
        check="spec-files",
        detail=LIBRARY,
    ),
    "conflicting kind": Breakage(
        script='printf \'%s\' \'{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", '
        '"containerEdits": {"env": ["OTHER=1"]}}]}\' >/var/run/cdi/other-vendor.json',
        check="spec-conflict",
        detail="/var/run/cdi/other-vendor.json",
    ),
    "bad JSON": Breakage(script=f"truncate --size=-20 {SPEC}", check="spec-syntax", detail=SPEC),
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
    """Run a GPU host with podman 4.3.1, which reads at most cdiVersion 0.5.0."""
    with diagnosed(cache, tree=upgrade_tree, driver_tree=None, images=images, version=BOOKWORM) as host:
        host.run(SAVE.replace("VERSION", BOOKWORM))
        yield host


@pytest.fixture
def forky_host(forky: Host) -> Iterator[Host]:
    """Return the host with all runtimes, restored after each test."""
    yield forky
    forky.run(RESTORE.replace("VERSION", FORKY))


@pytest.fixture
def bookworm_host(bookworm: Host) -> Iterator[Host]:
    """Return the host with podman 4.3.1, restored after each test."""
    yield bookworm
    bookworm.run(RESTORE.replace("VERSION", BOOKWORM))


def starts(host: Host, runtime: str, *, timeout_s: float = 0.0) -> bool:
    """Return whether a container starts within TIMEOUT_S; daemons detect changes of files with a delay."""
    deadline_s = time.monotonic() + timeout_s
    while not RUNTIMES[runtime].start(host):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.2)
    return True


def fails(host: Host, runtime: str) -> bool:
    """Return whether a start fails within START_LIMIT_S seconds; daemons detect the change with a delay."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while RUNTIMES[runtime].start(host):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.2)
    return True


def fixes(host: Host, breakage: Breakage, runtime: str, *allowed: str) -> None:
    """Break the host, verify that the doctor reports the cause, and run its remedy."""
    host.run(breakage.script)
    assert fails(host, runtime)
    options = ("--for", runtime, "--device", DEVICE)
    first = verdicts(host, *options)[0]
    assert (first["check"], first["ok"], first["severity"]) == (breakage.check, False, "error"), first
    assert breakage.detail in first["detail"]
    print(f"{first['detail']}\nremedy: {first['remedy']}")
    host.run(first["remedy"])
    assert starts(host, runtime, timeout_s=START_LIMIT_S)
    left = {row["check"] for row in verdicts(host, *options) if not row["ok"]}
    assert left <= set(allowed)


# Checks that still fail after the remedy, because only the packages of the driver restore a library.
STILL_FAILING = {"missing library": ("driver-files",)}


@pytest.mark.parametrize("runtime", EVERY)
def test_a_host_without_failures_starts_containers(forky_host: Host, runtime: str) -> None:
    assert starts(forky_host, runtime)
    assert [row for row in verdicts(forky_host, "--for", runtime) if not row["ok"]] == []


@pytest.mark.parametrize(
    ("name", "runtime"),
    [(name, runtime) for name, breakage in BREAKAGES.items() for runtime in breakage.runtimes],
)
def test_the_cause_is_reported_first_and_its_remedy_lets_the_container_start(
    forky_host: Host, name: str, runtime: str
) -> None:
    fixes(forky_host, BREAKAGES[name].on(FORKY), runtime, *STILL_FAILING.get(name, ()))


def test_the_remedy_restarts_a_daemon_that_started_before_its_configuration_changed(forky_host: Host) -> None:
    forky_host.run("sleep 1.5; touch /etc/docker/daemon.json")
    first = verdicts(forky_host, "--for", "docker")[0]
    assert (first["check"], first["severity"]) == ("docker-restart", "warning")
    forky_host.run(first["remedy"])
    assert verdicts(forky_host, "--for", "docker")[0]["ok"]


def test_debian_12_passes_all_checks_before_a_breakage(bookworm_host: Host) -> None:
    assert starts(bookworm_host, "podman")
    assert [row for row in verdicts(bookworm_host) if not row["ok"]] == []


@pytest.mark.parametrize("name", [name for name, breakage in BREAKAGES.items() if breakage.runtimes == EVERY])
def test_the_remedy_lets_podman_of_debian_12_start_a_container(bookworm_host: Host, name: str) -> None:
    fixes(bookworm_host, BREAKAGES[name].on(BOOKWORM), "podman", *STILL_FAILING.get(name, ()))


def test_the_remedy_replaces_a_spec_that_only_newer_podmans_can_read(bookworm_host: Host) -> None:
    script = f'sed -i \'s/"cdiVersion": "0.5.0"/"cdiVersion": "0.6.0"/\' {SPEC}'
    fixes(
        bookworm_host,
        Breakage(script=script, check="spec-version", detail="podman 4.3.1 reads at most 0.5.0"),
        "podman",
    )


# A wrapper of Debian 12's podman, which prints an older version.
INSTALL_OLDER_PODMAN = """mv /usr/bin/podman /usr/bin/podman.real
cat >/usr/bin/podman <<'END'
#!/bin/sh
[ "$*" != --version ] || exec echo podman version 4.2.0
exec podman.real "$@"
END
chmod 755 /usr/bin/podman
"""


def test_the_remedy_for_an_older_podman_writes_a_spec_that_this_podman_can_read(bookworm_host: Host) -> None:
    uuid = GPUS[0].uuid
    bookworm_host.run(INSTALL_OLDER_PODMAN)
    try:
        first = verdicts(bookworm_host, "--for", "podman")[0]
        assert (first["check"], first["ok"]) == ("spec-version", False), first
        assert "podman 4.2.0 reads at most 0.4.0; nvidia.com/gpu=0" in first["detail"]
        bookworm_host.run(first["remedy"])
        assert [row for row in verdicts(bookworm_host, "--for", "podman") if not row["ok"]] == []
        run = f"podman run --rm --device nvidia.com/gpu={uuid} {DEBIAN_IMAGE} test -c /dev/nvidia0"
        assert bookworm_host.attempt(run).returncode == 0
        assert not starts(bookworm_host, "podman")
    finally:
        bookworm_host.run("mv /usr/bin/podman.real /usr/bin/podman")


def test_the_remedy_makes_a_spec_readable_for_rootless_containers(bookworm_host: Host) -> None:
    # A user cannot mount /proc or /sys if a mount covers a part of them. The first container starts without
    # these mounts. Later containers reuse its namespace, which podman keeps.
    bookworm_host.run(UNMOUNT_KERNEL)
    container = f"{without_root(bookworm_host).podman} {REDHAT_IMAGE} true"
    assert bookworm_host.attempt(container).returncode == 0
    bookworm_host.run(MOUNT_KERNEL)
    options = ("--for", "podman", "--user", "rl", "--device", DEVICE)
    assert [row for row in verdicts(bookworm_host, *options) if not row["ok"]] == []
    bookworm_host.run(f"chmod 0600 {SPEC}")
    assert "unresolvable CDI devices" in bookworm_host.attempt(container).stderr
    first = verdicts(bookworm_host, *options)[0]
    assert (first["check"], first["severity"]) == ("spec-unreadable", "error")
    # The same command, run by the user, has the same result.
    done = bookworm_host.attempt(f"{AS_USER} cdigen doctor --json --for podman --device {DEVICE}")
    assert json.loads(done.stdout)[0] == first, done.stderr
    bookworm_host.run(first["remedy"])
    assert bookworm_host.attempt(container).returncode == 0
