"""Real mounts at and below the container's root: mounts of the user, of the runtime, and of the hook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.hook.container_root import LDCACHE, LINKS, PROFILE, VIEW, Case, snapshot

pytestmark = pytest.mark.usefixtures("own_mounts")

REPOSITORY = Path(__file__).resolve().parents[2]
OVER = "is on another mount than the container's root, possibly a mount of the host"
REQUIRE = ("--require", "update-ldcache")
FAKE_PARAMS = """
mkdir -p $root/proc/driver/nvidia
printf 'EnableMSI: 1\\nModifyDeviceFiles: %s\\n' > $root/proc/driver/nvidia/params
"""


@pytest.mark.parametrize(
    ("source", "place"),
    [("$host", "etc"), ("$host/ld.so.cache", "etc/ld.so.cache"), ("$root/etc", "etc")],
)
def test_a_cache_on_a_users_mount_is_not_read_or_written(case: Case, source: str, place: str) -> None:
    before = snapshot(case.host), case.cache.read_bytes()
    done = case.start_mounted(f"mount --bind {source} $root/{place}", *LDCACHE, *REQUIRE)
    assert done.returncode == 1
    assert done.stderr == (
        f"cdigen-hook: update-ldcache: /{place}: {OVER}; "
        "the loader's cache does not list the driver's libraries\n"
    )
    assert (snapshot(case.host), case.cache.read_bytes()) == before


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("$host/ld.so.conf.d", "etc/ld.so.conf.d"),
        ("$host/ld.so.conf.d/host.conf", "etc/ld.so.conf.d/00-cdigen.conf"),
    ],
)
def test_a_conf_file_on_a_users_mount_is_not_changed(case: Case, source: str, place: str) -> None:
    case.conf.write_text("")
    before = snapshot(case.host)
    done = case.start_mounted(f"mount --bind {source} $root/{place}", *LDCACHE, *REQUIRE)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert f"/{place}: {OVER};" in done.stderr
    assert snapshot(case.host) == before
    assert ("libcuda.so.1", f"{VIEW}/libcuda.so.1") in case.entries()


@pytest.mark.parametrize(
    ("source", "place"), [("$host", "usr"), ("$host/lib", "usr/lib"), ("tmpfs", "usr/lib")]
)
def test_no_link_is_created_on_a_users_mount(case: Case, source: str, place: str) -> None:
    mount = "mount -t tmpfs tmpfs" if source == "tmpfs" else f"mount --bind {source}"
    before = snapshot(case.host)
    done = case.start_mounted(f"{mount} $root/{place}", *LINKS)
    assert done.stderr == f"cdigen-hook: create-symlinks: /{place}: {OVER}; this link is not created\n"
    assert snapshot(case.host) == before


def test_no_link_is_created_in_a_folder_of_the_root_that_is_below_a_users_mount(case: Case) -> None:
    """The user mounts a folder of the host on /usr, and a folder of the container's root on /usr/lib."""
    before = snapshot(case.host)
    script = "mkdir $root/own; mount --bind $host $root/usr; mount --bind $root/own $root/usr/lib"
    assert OVER in case.start_mounted(script, *LINKS).stderr
    assert snapshot(case.host) == before


@pytest.mark.usefixtures("real_nodes")
@pytest.mark.parametrize("place", ["etc/nvidia", "etc/nvidia/nvidia-application-profiles-rc.d"])
def test_no_profile_is_written_on_a_users_mount(case: Case, place: str) -> None:
    before = snapshot(case.host)
    script = (
        f"mkdir -p $root/dev $root/{place}; mknod $root/dev/nvidia0 c 1 0; mount --bind $host $root/{place}"
    )
    assert f"/{place}: {OVER};" in case.start_mounted(script, *PROFILE).stderr
    assert snapshot(case.host) == before


def test_the_hook_writes_to_a_root_that_is_a_mount_point(case: Case) -> None:
    """Every runtime mounts the container's root."""
    done = case.start_mounted("mount --bind $root $root", *LDCACHE, *REQUIRE)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("libcuda.so.1", f"{VIEW}/libcuda.so.1") in case.entries()


def test_a_container_root_that_is_a_bind_mount_of_the_hosts_root_is_refused(case: Case) -> None:
    done = case.start_mounted("mount --bind / $root", *LDCACHE)
    assert "the container's root is the host's root; no step is run" in done.stderr


@pytest.mark.parametrize(("required", "code"), [((), 0), (REQUIRE, 1)])
def test_a_read_only_root_is_reported_in_one_line(case: Case, required: tuple[str, ...], code: int) -> None:
    script = "mount --bind $root $root; mount -o remount,bind,ro $root"
    done = case.start_mounted(script, *LDCACHE, *required)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert "/etc/ld.so.cache: Read-only file system; " in done.stderr


def test_a_full_file_system_is_reported_and_no_file_of_the_hook_remains(case: Case) -> None:
    script = """
    mount -t tmpfs -o size=64k,mode=755 tmpfs $root
    mkdir $root/etc; cat /dev/zero > $root/etc/full 2>/dev/null || true
    """
    done = case.start_mounted(script, *LDCACHE, after="ls -A $root/etc")
    assert (done.returncode, done.stdout) == (0, "full\n")
    assert "/etc/ld.so.cache: No space left on device; " in done.stderr


def test_missing_permission_to_write_in_the_root_is_reported(case: Case) -> None:
    """In a user namespace, capabilities do not permit the write if root does not own the image's files."""
    for path in (case.root / "etc", case.cache):
        os.chown(path, 1000, 1000)
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *case.command(*LDCACHE)]
    done = subprocess.run(command, input=case.state(), check=False, capture_output=True)
    assert done.returncode == 0
    assert b"/etc/ld.so.cache: Permission denied; " in done.stderr


@pytest.mark.parametrize("mode", ["0", "1"])
def test_params_outside_of_a_proc_file_system_are_not_changed(case: Case, mode: str) -> None:
    step = "--disable-device-node-modification"
    done = case.start_mounted(
        FAKE_PARAMS % mode, step, after="grep -c $root/proc /proc/self/mountinfo || true"
    )
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert ("/proc/driver/nvidia/params: is not on a proc file system;" in done.stderr) == (mode == "1")


def test_params_on_a_shared_mount_are_not_changed(case: Case) -> None:
    script = "mount --bind $root $root; mount --make-shared $root\n" + FAKE_PARAMS % 1
    done = case.start_mounted(script, "--disable-device-node-modification")
    assert "is not on a proc file system" in done.stderr


def in_own_proc(case: Case, code: str, *, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run CODE after the shell commands BEFORE. ``proc`` in CODE is a descriptor of $root/proc (a mount)."""
    (case.root / "proc").mkdir()
    start = (
        f"import os, sys; sys.path.insert(0, {str(REPOSITORY)!r})\nfrom cdigen.hook import device_params\n"
    )
    start += f"proc = os.open({str(case.root / 'proc')!r}, os.O_PATH)\n"
    script = f"mount -t proc proc {case.root}/proc\n{before}\n" + 'exec "$@"'
    return subprocess.run(
        ["unshare", "-m", "sh", "-ec", script, "sh", sys.executable, "-I", "-S", "-c", start + code],
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_file_is_mounted_over_a_file_of_proc_and_no_other_mount_remains(case: Case) -> None:
    code = f"""
device_params.mount_over(device_params.open_params(proc, "tty", "drivers"), b"ours")
device_params.mount_over(device_params.open_params(proc, "tty", "ldiscs"), b"too")
root = {str(case.root)!r}
print(open(root + "/proc/tty/drivers").read(), open(root + "/proc/tty/ldiscs").read())
print(*[line for line in open("/proc/self/mountinfo") if root in line], sep="")
try:
    open(root + "/proc/tty/drivers", "w")
except OSError as error:
    print(error.strerror)
print(os.listdir(root + "/proc/tty"))
"""
    done = in_own_proc(case, code)
    assert done.stderr == ""
    assert done.stdout.startswith("ours too\n")
    mounts = re.findall(r" (\S+/proc\S*) (\S+) .*- (\w+) ", done.stdout)
    assert [(path.rpartition("rootfs")[2], kind) for path, _, kind in mounts] == [
        ("/proc", "proc"),
        ("/proc/tty/drivers", "tmpfs"),
        ("/proc/tty/ldiscs", "tmpfs"),
    ]
    assert all({"ro", "nosuid", "nodev", "noexec"} <= set(options.split(",")) for _, options, _ in mounts[1:])
    assert "Read-only file system" in done.stdout
    assert "'ldisc'" in done.stdout


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("", "None"),
        ("mount --make-shared {root}/proc", "is on a shared mount: the host would also get the hook's mount"),
        (
            "mount --bind /etc/hostname {root}/proc/tty/drivers",
            "another file is already mounted over this file",
        ),
        (
            "mount -t tmpfs tmpfs {root}/proc/tty; touch {root}/proc/tty/drivers",
            "is not on a proc file system",
        ),
    ],
    ids=["own", "shared", "covered", "tmpfs"],
)
def test_only_an_unshared_and_uncovered_file_of_proc_is_accepted(case: Case, before: str, why: str) -> None:
    code = """
try:
    print(device_params.check_mounts(device_params.open_params(proc, "tty", "drivers")))
except device_params.ContainerPathError as refused:
    print(refused.why)
"""
    done = in_own_proc(case, code, before=before.format(root=case.root))
    assert (done.stdout, done.stderr) == (f"{why}\n", "")


def test_a_failed_mount_leaves_no_mount(case: Case) -> None:
    code = f"""
try:
    device_params.mount_over(device_params.open_params(proc, "tty", "drivers"), bytes(1 << 20))
except OSError as error:
    print(error.strerror)
print(sum({str(case.root)!r} in line for line in open("/proc/self/mountinfo")))
"""
    done = in_own_proc(case, code)
    assert (done.stdout, done.stderr) == ("No space left on device\n1\n", "")
