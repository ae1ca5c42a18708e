"""Mounts over and in the root, real ones: the user's, the runtime's, and ours."""

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
OVER = "another mount than the container's root lies there, which may be the host's"
REQUIRE = ("--require", "update-ldcache")
FAKE_PARAMS = """
mkdir -p $root/proc/driver/nvidia
printf 'EnableMSI: 1\\nModifyDeviceFiles: %s\\n' > $root/proc/driver/nvidia/params
"""


@pytest.mark.parametrize(
    ("source", "place"),
    [("$host", "etc"), ("$host/ld.so.cache", "etc/ld.so.cache"), ("$root/etc", "etc")],
)
def test_the_cache_on_a_users_mount_is_neither_read_nor_written(case: Case, source: str, place: str) -> None:
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
def test_the_conf_folder_on_a_users_mount_is_left_alone(case: Case, source: str, place: str) -> None:
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
def test_no_link_is_made_on_a_users_mount(case: Case, source: str, place: str) -> None:
    mount = "mount -t tmpfs tmpfs" if source == "tmpfs" else f"mount --bind {source}"
    before = snapshot(case.host)
    done = case.start_mounted(f"{mount} $root/{place}", *LINKS)
    assert done.stderr == f"cdigen-hook: create-symlinks: /{place}: {OVER}; this link is not made\n"
    assert snapshot(case.host) == before


def test_a_mount_on_the_way_back_into_the_root_is_refused_too(case: Case) -> None:
    """/usr is the host's, /usr/lib within it the image's own again: still not what we may write."""
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


def test_a_root_that_is_a_mount_itself_is_written(case: Case) -> None:
    """Every runtime makes the root a mount of its own."""
    done = case.start_mounted("mount --bind $root $root", *LDCACHE, *REQUIRE)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("libcuda.so.1", f"{VIEW}/libcuda.so.1") in case.entries()


def test_a_copy_of_the_hosts_root_elsewhere_is_still_the_hosts(case: Case) -> None:
    done = case.start_mounted("mount --bind / $root", *LDCACHE)
    assert "the container's root is the host's; no step is done" in done.stderr


@pytest.mark.parametrize(("required", "code"), [((), 0), (REQUIRE, 1)])
def test_a_read_only_root_is_one_line(case: Case, required: tuple[str, ...], code: int) -> None:
    script = "mount --bind $root $root; mount -o remount,bind,ro $root"
    done = case.start_mounted(script, *LDCACHE, *required)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert "/etc/ld.so.cache: Read-only file system; " in done.stderr


def test_a_full_file_system_is_one_line_and_nothing_is_left_behind(case: Case) -> None:
    script = """
    mount -t tmpfs -o size=64k,mode=755 tmpfs $root
    mkdir $root/etc; cat /dev/zero > $root/etc/full 2>/dev/null || true
    """
    done = case.start_mounted(script, *LDCACHE, after="ls -A $root/etc")
    assert (done.returncode, done.stdout) == (0, "full\n")
    assert "/etc/ld.so.cache: No space left on device; " in done.stderr


def test_a_root_that_the_hook_may_not_write_is_one_line(case: Case) -> None:
    """As in a user namespace whose root does not own the image: no capability helps."""
    for path in (case.root / "etc", case.cache):
        os.chown(path, 1000, 1000)
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *case.command(*LDCACHE)]
    done = subprocess.run(command, input=case.state(), check=False, capture_output=True)
    assert done.returncode == 0
    assert b"/etc/ld.so.cache: Permission denied; " in done.stderr


@pytest.mark.parametrize("mode", ["0", "1"])
def test_params_that_are_no_procs_are_left_alone(case: Case, mode: str) -> None:
    step = "--disable-device-node-modification"
    done = case.start_mounted(
        FAKE_PARAMS % mode, step, after="grep -c $root/proc /proc/self/mountinfo || true"
    )
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert ("/proc/driver/nvidia/params: it is not on a proc file system;" in done.stderr) == (mode == "1")


def test_params_on_a_shared_mount_are_left_alone(case: Case) -> None:
    script = "mount --bind $root $root; mount --make-shared $root\n" + FAKE_PARAMS % 1
    done = case.start_mounted(script, "--disable-device-node-modification")
    assert "it is not on a proc file system" in done.stderr


def in_own_proc(case: Case, code: str, *, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run CODE with the hook's modules and $root/proc, a proc file system, open as ``proc``."""
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


def test_a_file_is_laid_over_one_of_proc_read_only_and_nothing_else_stays(case: Case) -> None:
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
        ("mount --make-shared {root}/proc", "what is mounted on this /proc is mounted on the host as well"),
        ("mount --bind /etc/hostname {root}/proc/tty/drivers", "another mount lies there already"),
        (
            "mount -t tmpfs tmpfs {root}/proc/tty; touch {root}/proc/tty/drivers",
            "it is not on a proc file system",
        ),
    ],
    ids=["own", "shared", "covered", "tmpfs"],
)
def test_only_a_proc_of_the_container_alone_is_mounted_on(case: Case, before: str, why: str) -> None:
    code = """
try:
    print(device_params.check_mounts(device_params.open_params(proc, "tty", "drivers")))
except device_params.ContainerPathError as refused:
    print(refused.why)
"""
    done = in_own_proc(case, code, before=before.format(root=case.root))
    assert (done.stdout, done.stderr) == (f"{why}\n", "")


def test_a_mount_that_fails_leaves_nothing(case: Case) -> None:
    code = f"""
try:
    device_params.mount_over(device_params.open_params(proc, "tty", "drivers"), bytes(1 << 20))
except OSError as error:
    print(error.strerror)
print(sum({str(case.root)!r} in line for line in open("/proc/self/mountinfo")))
"""
    done = in_own_proc(case, code)
    assert (done.stdout, done.stderr) == ("No space left on device\n1\n", "")
