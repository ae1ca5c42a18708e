"""Views with reflinks, copies and empty files, on hosts where hard links are impossible."""

from __future__ import annotations

import os

import pytest
from support.abilities import cannot_run, tool
from support.store import views
from support.store.views import in_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

STATE_ON_TMPFS = """
mkdir -p "$1/var/lib/cdigen"
mount -t tmpfs -o size=200m,mode=0755 tmpfs "$1/var/lib/cdigen"
---
"""
# The mounts of a unit with ProtectSystem=strict and StateDirectory=.
HARDENED = """
mkdir -p "$1/var/lib/cdigen"
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount --bind "$1/var/lib/cdigen" "$1/var/lib/cdigen"
mount -o remount,bind,rw "$1/var/lib/cdigen"
---
"""
REFUSED = """
from cdigen.model.errors import StoreError
try:
    publish(base)
except StoreError as error:
    print(error.message, error.hint, left(base), find(base), sep="|")
"""

pytestmark = pytest.mark.usefixtures("own_mounts")


@pytest.mark.parametrize("mounts_of_case", [STATE_ON_TMPFS, HARDENED], ids=["tmpfs", "hardened"])
def test_if_files_can_only_be_copied_the_error_has_the_reason(base: Path, mounts_of_case: str) -> None:
    output = in_namespace(mounts_of_case + REFUSED, base)
    message, hint, rest, found = output.strip().split("|")
    assert (
        f"nvidia-smi cannot be hard-linked into {base}/var/lib/cdigen (Invalid cross-device link" in message
    )
    assert "on different mounts of one" in message
    assert "and cannot be reflinked" in message
    assert "copy_driver_files: true" in hint
    assert (rest, found) == ("[]", "None")


@pytest.mark.parametrize("mounts_of_case", [STATE_ON_TMPFS, HARDENED], ids=["tmpfs", "hardened"])
def test_copies_have_the_content_and_the_time_of_their_sources(base: Path, mounts_of_case: str) -> None:
    script = """
(base / SMI[1:]).chmod(0o1755)
published = publish(base, copies=True)
assert published.how == "copied" and is_whole(base, published)
copy, source = (view(base, published) / "bin/nvidia-smi").stat(), (base / SMI[1:]).stat()
assert copy.st_ino != source.st_ino and copy.st_nlink == 1
assert copy.st_mtime_ns == source.st_mtime_ns
print(oct(copy.st_mode), find(base).how, publish(base).how, left(base) == [published.name])
"""
    if mounts_of_case == HARDENED:
        script = script.replace("(base / SMI[1:]).chmod(0o1755)\n", "")
    assert in_namespace(mounts_of_case + script, base) == "0o100755 found found True\n"


SHARING = """
from cdigen.model.view import ViewPlan
part = ViewPlan(vendor="nvidia", version=VERSION, files=PLAN.files[:2])
whole = publish(base, copies=True)
"""


def test_a_copy_in_another_view_is_linked_and_not_copied_again(base: Path) -> None:
    script = """
less = publish(base, part, copies=True)
shared = (view(base, less) / "bin/nvidia-smi").stat()
print(whole.name != less.name, less.how, shared.st_nlink, oct(shared.st_mode), find(base, part).how)
print(is_whole(base, whole), (view(base, less) / "lib64/libcuda.so.550.163.01").stat().st_nlink)
"""
    output = in_namespace(STATE_ON_TMPFS + SHARING + script, base)
    assert output == "True copied 2 0o100755 found\nTrue 2\n"


@pytest.mark.parametrize(
    "change",
    [
        # The same size and time, but other bytes.
        'put(base, LIBRARY, b"Z" * 30_000)',
        'put(base, LIBRARY, b"A" * 30_000, mode=0o755)',
        "copy.chmod(0o666)",
        "import os; os.chown(copy, 1000, 1000)",
        'copy.unlink(); copy.symlink_to("/etc/passwd")',
    ],
)
def test_a_file_that_differs_from_the_copy_in_another_view_is_copied(base: Path, change: str) -> None:
    script = f"""
copy = view(base, whole) / "lib64/libcuda.so.550.163.01"
{change}
less = publish(base, part, copies=True)
own = view(base, less) / "lib64/libcuda.so.550.163.01"
print(own.stat().st_nlink, own.read_bytes() == (base / LIBRARY[1:]).read_bytes())
"""
    assert in_namespace(STATE_ON_TMPFS + SHARING + script, base) == "1 True\n"


def test_a_copy_keeps_the_label_of_its_source(base: Path) -> None:
    script = """
os.setxattr(base / LIBRARY[1:], "security.selinux", b"system_u:object_r:lib_t:s0")
copy = view(base, publish(base, copies=True)) / "lib64/libcuda.so.1"
print(os.getxattr(copy, "security.selinux"), oct(copy.stat().st_mode))
"""
    try:
        os.setxattr(base / views.LIBRARY[1:], "security.selinux", b"x:x:x:s0")
    except OSError:
        cannot_run("this file system keeps no SELinux labels")
    assert in_namespace(STATE_ON_TMPFS + script, base) == "b'system_u:object_r:lib_t:s0' 0o100644\n"


def test_the_space_for_all_copies_is_checked_before_the_first_copy(base: Path) -> None:
    script = """
from cdigen.model.errors import StoreError
put(base, LIBRARY, b"A" * (40 << 20))
(base / "var/lib/cdigen/views").mkdir()
try:
    publish(base, copies=True)
except StoreError as error:
    print(error.message, error.hint, left(base), sep="|")
"""
    mounts_of_case = STATE_ON_TMPFS.replace("200m", "100m")
    message, hint, rest = in_namespace(mounts_of_case + script, base).strip().split("|")
    assert "the copies of the view take 41 MiB" in message
    assert "has 100 MiB free (64 MiB must stay free)" in message
    assert "free space" in hint
    assert rest == "[]"


@pytest.mark.parametrize("options", ["size=60k", "size=1m,nr_inodes=8", "size=1m,nr_inodes=14"])
def test_a_disk_that_becomes_full_while_files_are_copied_leaves_no_files(base: Path, options: str) -> None:
    mounts_of_case = STATE_ON_TMPFS.replace("size=200m", options)
    script = """
from cdigen.model.errors import StoreError
from cdigen.store.directory import open_or_create
from cdigen.store.views import builder, folder, sources
root = Root(str(base))
try:
    layout = sources.view_layout(PLAN, root)
    with open_or_create(f"{state(base)}/views") as place, folder.temporary_view(place, layout.name) as view:
        # A negative margin has the effect of space that is used after the check.
        builder.fill(view, layout, root, copies=True, margin=-(1 << 30))
except StoreError as error:
    print(error.message, error.hint, left(base), sep="|")
"""
    message, hint, rest = in_namespace(mounts_of_case + script, base).strip().split("|")
    assert "No space left on device" in message
    assert "df" in hint
    assert rest == "[]"


def test_driver_files_can_only_be_copied_if_proc_is_not_mounted(base: Path) -> None:
    mounts_of_case = """
mkdir -p "$1/var/lib/cdigen"
mount -t tmpfs tmpfs /proc
---
"""
    assert "/proc is not mounted" in in_namespace(mounts_of_case + REFUSED, base)
    made = "published = publish(base, copies=True)\nprint(published.how, is_whole(base, published))"
    assert in_namespace(mounts_of_case + made, base) == "copied True\n"


def test_some_files_are_linked_if_other_files_must_be_copied(base: Path) -> None:
    mounts_of_case = """
mkdir -p "$1/var/lib/cdigen"
mkdir "$1/other"
cp -p "$1/usr/bin/nvidia-smi" "$1/other"
mount -t tmpfs tmpfs "$1/usr/bin"
cp -p "$1/other/nvidia-smi" "$1/usr/bin"
---
"""
    script = """
published = publish(base, copies=True)
print(published.how, is_whole(base, published), *sorted(
    path.name for path in view(base, published).rglob("*") if path.is_file() and path.stat().st_nlink == 2))
"""
    output = in_namespace(mounts_of_case + script, base).split()
    assert output[:2] == ["copied", "True"]
    assert "libcuda.so.550.163.01" in output
    assert "nvidia-smi" not in output


# The folder is a separate read-only mount, as /etc is in the mount namespace of cdigen.service.
APART = """
mkdir -p "$1/var/lib/cdigen"
mount --bind "$1/{folder}" "$1/{folder}"
mount -o remount,bind,ro "$1/{folder}"
---
"""


def test_a_small_file_on_another_mount_is_copied_and_the_view_is_complete(base: Path) -> None:
    script = """
published = publish(base)
inode = (view(base, published) / "fixed/usr/share/vulkan/icd.d/nvidia_icd.json").stat()
print(published.how, is_whole(base, published), published.separate, published.findings, inode.st_nlink)
print((view(base, published) / "lib64/libcuda.so.1").stat().st_nlink, find(base).how, publish(base).how)
"""
    output = in_namespace(APART.format(folder="usr/share") + script, base)
    assert output == "copied True () () 1\n2 found found\n"


def test_a_large_file_on_another_mount_has_only_a_placeholder(base: Path) -> None:
    script = """
put(base, SMI, b"S" * ((1 << 20) + 1))
mount = lambda *words: subprocess.run(["mount", *words], check=True)
mount("--bind", base / "usr/bin", base / "usr/bin")
published = publish(base)
placeholder = (view(base, published) / "bin/nvidia-smi").stat()
print(published.how, published.separate, published.left_out, placeholder.st_size, oct(placeholder.st_mode))
for finding in published.findings:
    print(finding.severity, finding.rule, finding.path)
again, found = publish(base), find(base)
print(again.how, again.name == published.name, found.separate, len(found.findings))
# With copies, the view is complete, and later calls with copies find it.
whole = publish(base, copies=True)
print(whole.how, is_whole(base, whole), whole.name == f"{published.name}-2", publish(base, copies=True).how)
"""
    mounts_of_case = 'mkdir -p "$1/var/lib/cdigen"\n---\nimport subprocess\n'
    assert in_namespace(mounts_of_case + script, base).splitlines() == [
        "linked ('bin/nvidia-smi',) () 0 0o100000",
        f"info view-file-separate {views.SMI}",
        "found True ('bin/nvidia-smi',) 1",
        "copied True True found",
    ]


def test_a_placeholder_must_have_the_time_of_its_source(base: Path) -> None:
    published = views.publish(base)
    damaged = views.view(base, published) / "bin/nvidia-smi"
    damaged.unlink()
    damaged.write_bytes(b"")
    assert views.find(base) is None


def test_no_view_is_made_if_most_libraries_would_need_separate_mounts(base: Path) -> None:
    output = in_namespace(APART.format(folder="usr/lib") + REFUSED, base)
    message, hint, rest, found = output.strip().split("|")
    assert "libcuda.so.550.163.01 cannot be hard-linked" in message
    assert "layout: files" in hint
    assert (rest, found) == ("[]", "None")


def test_the_files_of_a_driver_on_overlayfs_are_linked(base: Path, tmp_path: Path) -> None:
    mounts_of_case = """
mkdir "$2/upper" "$2/work" "$2/merged"
mount -t tmpfs tmpfs "$2/upper"
mkdir "$2/upper/up" "$2/upper/work"
mount -t overlay -o "lowerdir=$1,upperdir=$2/upper/up,workdir=$2/upper/work" overlay "$2/merged"
---
base = Path(sys.argv[2]) / "merged"
published = publish(base)
print(published.how, is_whole(base, published), find(base).how)
"""
    assert in_namespace(mounts_of_case, base, tmp_path) == "linked True found\n"


@pytest.mark.parametrize(("kind", "package"), [("xfs", "xfsprogs"), ("btrfs", "btrfs-progs")])
def test_files_on_another_mount_are_reflinked_if_the_file_system_can_share_blocks(
    base: Path, tmp_path: Path, kind: str, package: str
) -> None:
    tool(f"mkfs.{kind}", package)
    mounts_of_case = f"""
truncate -s 512M "$2/image"
mkfs.{kind} "$2/image" > "$2/log"
mkdir "$2/disk"
mount -o loop "$2/image" "$2/disk"
cp -a "$1" "$2/disk/host"
mkdir -p "$2/disk/host/var/lib/cdigen"
mount --bind "$2/disk/host/var/lib/cdigen" "$2/disk/host/var/lib/cdigen"
---
base = Path(sys.argv[2]) / "disk/host"
published = publish(base)
inode = (view(base, published) / "bin/nvidia-smi").stat()
print(published.how, is_whole(base, published), find(base).how, oct(inode.st_mode), inode.st_nlink)
"""
    assert in_namespace(mounts_of_case, base, tmp_path) == "cloned True found 0o100755 1\n"
