"""The start-up hook reports, replaces or ignores hostile files: special files, links, bombs, bad caches."""

import base64
import json
import struct

import pytest
from support.containers.hostile_images import STRICT, Target, hook_lines

pytestmark = pytest.mark.e2e

COMPAT = "/usr/local/cuda/compat"
LIBCUDA = f"{COMPAT}/libcuda.so.999.1"
REAL = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"  # of the host
KINDS = {
    "FIFO": "mkfifo",
    "device that never ends": "mknod -m 666 {} c 1 5",
    "disk": "mknod -m 666 {} b 7 0",
    "socket": "python3 -c 'import socket, sys; socket.socket(1).bind(sys.argv[1])'",
    "folder": "mkdir",
}
NO_FILE = "is a FIFO, socket or device"
WHY = dict.fromkeys(KINDS, NO_FILE) | {"folder": "is a folder"}
CONSEQUENCES = {"/etc/ld.so.cache": "update-ldcache", LIBCUDA: "enable-cuda-compat"}


def replacement_script(place: str, kind: str) -> str:
    """Return a script that replaces the file PLACE with a file of KIND."""
    command = KINDS[kind] if "{}" in KINDS[kind] else f"{KINDS[kind]} {{}}"
    return f"rm -rf .{place}; mkdir -p .{place.rpartition('/')[0]}; {command.format('.' + place)}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", CONSEQUENCES)
def test_a_special_file_or_a_folder_is_refused_with_a_message(target: Target, place: str, kind: str) -> None:
    with target.untouched():
        messages = target.hook_messages(replacement_script(place, kind))
    assert f"cdigen-hook: {CONSEQUENCES[place]}: {place}: {WHY[kind]}, not a regular file; " in messages


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "folder"])
@pytest.mark.parametrize("place", [COMPAT, "/etc/ld.so.conf.d", "/etc/ld.so.conf.d/00-cdigen.conf"])
def test_a_special_file_instead_of_a_folder_is_ignored_or_reported(
    target: Target, place: str, kind: str
) -> None:
    with target.untouched():
        messages = target.hook_messages(replacement_script(place, kind))
    assert messages == "" or (place == COMPAT and f"{COMPAT}: Not a directory; " in messages)


# A bomb is a file that could cost the hook unlimited time or memory.
# Bomb -> a script that makes the bomb (it runs in the root of the image), and the hook's message.
BOMBS = {
    "sparse": (f"truncate -s 10G .{LIBCUDA}", "not an ELF file: it starts with 00000000"),
    "sparse library": (f"cp {REAL} .{LIBCUDA}; truncate -s 10G .{LIBCUDA}", ""),
    "header alone": (f"head -c 64 {REAL} >.{LIBCUDA}", "the program header table ends at byte "),
    "100,000 files": (f"seq -f .{COMPAT}/f%.0f 100000 | xargs touch", "there are more than 1024 files"),
    "many versions": (
        f"touch .{COMPAT}/libcuda.so.{{901..999}}.1",
        "there are 99 versions of libcuda, not one",
    ),
    "circle": (f"ln -s libcuda.so.999.1 .{LIBCUDA}", "the path has more than 40 links"),
    "endless path": (
        f"ln -s {'a/../' * 700}x .{LIBCUDA}; mkdir .{COMPAT}/a",
        "the path has more than 512 steps",
    ),
    "own process": (f"ln -s /proc/self/exe .{LIBCUDA}", "leads into /proc"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_compatibility_library_that_is_a_bomb_is_reported_or_ignored(target: Target, bomb: str) -> None:
    script, line = BOMBS[bomb]
    with target.untouched():
        messages = target.hook_messages(f"mkdir -p .{COMPAT}; {script}")
    assert line in messages
    assert bool(messages) == bool(line)


def elf(sections: list[tuple[int, int, int, int]], note: bytes = b"", *, count: int | None = None) -> bytes:
    """Return a shared object with SECTIONS (name, type, offset, size) and a note at byte 4096.

    The string table at byte 2048 contains the name of the section with NVIDIA's note.
    """
    strings = b"\0.note.cuda.fwd_compatibility\0"
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 0, 0)
        for name, kind, at, size in sections
    )
    dynamic = struct.pack("<QQQQQQ", 5, 2048, 10, len(strings), 0, 0)
    programs = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 4096, 4096, 4096)
    programs += struct.pack("<IIQQQQQQ", 2, 6, 1024, 1024, 1024, len(dynamic), len(dynamic), 8)
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH",
        3,
        62,
        1,
        0,
        64,
        3000,
        0,
        64,
        56,
        2,
        64,
        len(sections) if count is None else count,
        0,
    )
    data = bytearray(4096)
    for at, part in ((0, header), (64, programs), (1024, dynamic), (2048, strings), (3000, table)):
        data[at : at + len(part)] = part
    return bytes(data) + note


STRINGS = (0, 3, 2048, 30)
NOTES: dict[str, tuple[bytes, str]] = {
    "claims 4 GiB": (
        elf([STRINGS, (1, 7, 4096, 1 << 32)]),
        "the note of 4294967296 bytes is larger than 4096",
    ),
    "beyond the end": (
        elf([STRINGS, (1, 7, 1 << 40, 4000)]),
        "a section ends at byte 1099511631776, after the end of the file (4096)",
    ),
    "sections without end": (elf([STRINGS], count=65535), "65535 sections exceed the limit of 256"),
    "nested": (b"[" * 3000, "the note is not JSON"),
    "great number": (b'{"driver":[' + b"9" * 3000 + b"]}", ""),
    "no text": (b'{"CUDA version":"\xff\xfe"}', "the note is not JSON"),
}


@pytest.mark.parametrize("note", NOTES)
def test_a_compatibility_note_that_is_a_bomb_is_reported_or_ignored(target: Target, note: str) -> None:
    data, line = NOTES[note]
    if not data.startswith(b"\x7f"):
        owner = b"NVIDIA Corporation\0\0"
        text = struct.pack("<III", len(owner), len(data), 1) + owner + data
        data = elf([STRINGS, (1, 7, 4096, len(text))], text)
    coded = base64.b64encode(data).decode()
    with target.untouched():
        messages = target.hook_messages(f"mkdir -p .{COMPAT}; base64 -d <<<{coded} >.{LIBCUDA}")
    assert line in messages
    assert bool(messages) == bool(line)


# Damage -> a script that changes the real loader cache of an image, and the hook's message.
CACHES = {
    "of 2 GiB": ("truncate -s 2G etc/ld.so.cache", "2147483648 bytes exceed the limit of 16777216"),
    "of zero bytes": (": >etc/ld.so.cache", ""),
    "of only zeros": ("rm etc/ld.so.cache; truncate -s 1M etc/ld.so.cache", ""),
    "that no user may read": ("chmod 0 etc etc/ld.so.cache etc/ld.so.conf.d", ""),
    "of strange owners": ("chown -R 123456:654321 etc usr/lib usr/lib64; chmod 1700 etc", ""),
    "whose first name is beyond its end": ("poke 52 '\\377\\377\\377\\177'", "the names at "),
    "whose last name does not end": ("truncate -s -1 etc/ld.so.cache; printf x >>etc/ld.so.cache", ""),
    **{
        f"cut at {size}": (f"truncate -s {size} etc/ld.so.cache", None)
        for size in (1, 20, 47, 48, 49, 72, 4000)
    },
}
POKE = 'poke() { printf "$2" | dd of=etc/ld.so.cache bs=1 seek=$1 conv=notrunc status=none; }'


@pytest.mark.parametrize("damage", CACHES)
def test_a_damaged_loader_cache_is_replaced_or_reported(target: Target, damage: str) -> None:
    script, line = CACHES[damage]
    with target.untouched():
        messages = target.hook_messages(f"{POKE}; {script}")
    if line is not None:
        assert line in messages
        assert bool(messages) == bool(line)


def cache_with_one_name(size: int) -> bytes:
    """Return a cache of SIZE bytes whose entries share one name, which extends to the end of the cache."""
    count = 190_000
    base = 48 + 24 * count
    strings = b"/usr/local/nvidia/lib64/".ljust(size - base - 1, b"9") + b"\0"
    entry = struct.pack("<iIIIQ", 0x303, base + 24, base, 0, 0)
    return (
        struct.pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", count, len(strings), 2, 0)
        + entry * count
        + strings
    )


@pytest.mark.parametrize("size", [4_570_000, 16 << 20])
def test_a_cache_whose_entries_share_one_long_name_does_not_delay_the_start(
    target: Target, size: int
) -> None:
    """If the hook copied the name for each entry, it would need gigabytes, and runc would end it in 10 s."""
    target.host.run("base64 -d >/srv/names", stdin=base64.b64encode(cache_with_one_name(size)).decode())
    with target.untouched():
        messages = target.hook_messages("cp /srv/names etc/ld.so.cache", options="--memory 256m")
    assert "is longer than 4096 bytes" in messages


BYTE_BY_BYTE = r"""
import json, os, re, subprocess, sys
os.makedirs("/srv/cut/root/etc/ld.so.conf.d", exist_ok=True)
json.dump({"root": {"path": "root"}}, open("/srv/cut/config.json", "w"))
state = json.dumps({"ociVersion": "1.2.0", "bundle": "/srv/cut"}).encode()
hook, cache = json.load(sys.stdin)
data = open(cache, "rb").read()
path = "/srv/cut/root/etc/ld.so.cache"
outcomes, codes = {}, set()
for size in range(len(data)):
    with open(path, "wb") as file:
        file.write(data[:size])
    done = subprocess.run(hook["args"], executable=hook["path"], input=state, capture_output=True, timeout=60,
                          env=dict(entry.split("=", 1) for entry in hook["env"]), cwd="/srv/cut/root")
    codes.add(done.returncode)
    lines = done.stderr.decode().splitlines()
    listed = subprocess.run(["ldconfig", "-p", "-C", path], capture_output=True) if not lines else None
    outcome = lines or [f"listed {b'libcuda.so.1' in listed.stdout} {listed.returncode}"]
    outcomes.setdefault(re.sub("[0-9]+", "N", " ".join(outcome)), []).append(size)
print(json.dumps([sorted(codes), outcomes]))
"""


def test_a_cache_that_is_cut_at_any_byte_is_replaced_or_reported(target: Target) -> None:
    """The host's ldconfig makes a cache of three libraries. The hook runs with the arguments of its spec."""
    target.host.run(
        """rm -rf /srv/small /srv/cut; mkdir -p /srv/small/usr/lib/glibc-hwcaps/x86-64-v2 /srv/small/etc
        cd /srv/small/usr/lib
        cp /usr/lib/x86_64-linux-gnu/lib{z,zstd,xxhash}.so.? . && cp libz.so.1 glibc-hwcaps/x86-64-v2/
        ldconfig -r /srv/small -X"""
    )
    spec = json.loads(target.host.run("cat /run/cdi/nvidia.com-gpu.json"))
    hook_and_cache = json.dumps([spec["containerEdits"]["hooks"][0], "/srv/small/etc/ld.so.cache"])
    with target.untouched():
        answer = target.host.attempt(
            f"python3 -c {quoted(BYTE_BY_BYTE)}", stdin=hook_and_cache, timeout_s=300
        )
    assert answer.returncode == 0, answer.stderr
    codes, outcomes = json.loads(answer.stdout)
    assert codes == [0]
    problem = "the tables end at byte N, after the end of the file (N)"
    line = f"cdigen-hook: update-ldcache: /etc/ld.so.cache: {problem}; "
    assert all(outcome == "listed True N" or outcome.startswith(line) for outcome in outcomes), outcomes
    assert sum(map(len, outcomes.values())) > 300


def quoted(program: str) -> str:
    return "'" + program.replace("'", "'\\''") + "'"


def test_a_hard_link_to_a_host_file_is_replaced_and_the_host_file_is_unchanged(target: Target) -> None:
    """With --rootfs, the root is on the host's file system, so hard links to host files are possible."""
    target.host.run(
        """rm -rf /srv/linked; mkdir /srv/linked; cd /srv/linked; cp -a "$(podman mount $(
            podman create localhost/debian-like true))/." .; podman rm --all --force >/dev/null
        mkdir -p evil && cp /run/canaries/* evil
        cp etc/ld.so.cache /srv/host.cache; cp etc/ld.so.conf /srv/host.conf
        ln -f /srv/host.cache etc/ld.so.cache; ln -f /srv/host.conf etc/ld.so.conf.d/00-cdigen.conf"""
    )
    list_host_files = "stat -c '%n %i %s %Y %h' /srv/host.*; md5sum /srv/host.*"
    before = target.host.run(list_host_files)
    with target.untouched():
        answer = target.host.attempt(f"podman run --rm --device {STRICT} --rootfs /srv/linked ldconfig -p")
    assert "libcuda.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libcuda.so.1" in answer.stdout, (
        answer.stderr
    )
    assert not hook_lines(answer.stderr)
    assert target.host.run(list_host_files) == before.replace(" 2\n", " 1\n")
