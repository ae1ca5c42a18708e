"""What an image may put where the hook reads and writes: no files, others' files, bombs, damaged caches."""

import base64
import json
import struct

import pytest
from support.containers.hostile_images import STRICT, Target, hook_lines

pytestmark = pytest.mark.e2e

COMPAT = "/usr/local/cuda/compat"
LIBCUDA = f"{COMPAT}/libcuda.so.999.1"
REAL = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"  # the host's
KINDS = {
    "FIFO": "mkfifo",
    "device that never ends": "mknod -m 666 {} c 1 5",
    "disk": "mknod -m 666 {} b 7 0",
    "socket": "python3 -c 'import socket, sys; socket.socket(1).bind(sys.argv[1])'",
    "folder": "mkdir",
}
NO_FILE = "it is a FIFO, socket or device"
WHY = dict.fromkeys(KINDS, NO_FILE) | {"folder": "it is a folder"}
CONSEQUENCES = {"/etc/ld.so.cache": "update-ldcache", LIBCUDA: "enable-cuda-compat"}


def instead(place: str, kind: str) -> str:
    """Return a script that puts something of KIND in the place of a file."""
    command = KINDS[kind] if "{}" in KINDS[kind] else f"{KINDS[kind]} {{}}"
    return f"rm -rf .{place}; mkdir -p .{place.rpartition('/')[0]}; {command.format('.' + place)}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", CONSEQUENCES)
def test_what_is_no_file_is_refused_with_a_line(target: Target, place: str, kind: str) -> None:
    with target.untouched():
        said = target.said(instead(place, kind))
    assert f"cdigen-hook: {CONSEQUENCES[place]}: {place}: {WHY[kind]}, not a regular file; " in said


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "folder"])
@pytest.mark.parametrize("place", [COMPAT, "/etc/ld.so.conf.d", "/etc/ld.so.conf.d/00-cdigen.conf"])
def test_what_is_no_folder_harms_nobody(target: Target, place: str, kind: str) -> None:
    with target.untouched():
        said = target.said(instead(place, kind))
    assert said == "" or (place == COMPAT and f"{COMPAT}: Not a directory; " in said)


# In the folder of the root: what an image does, and what the hook says of it.
BOMBS = {
    "sparse": (f"truncate -s 10G .{LIBCUDA}", "not an ELF file: it starts with 00000000"),
    "sparse library": (f"cp {REAL} .{LIBCUDA}; truncate -s 10G .{LIBCUDA}", ""),
    "header alone": (f"head -c 64 {REAL} >.{LIBCUDA}", "the program header table ends at byte "),
    "100,000 files": (f"seq -f .{COMPAT}/f%.0f 100000 | xargs touch", "there are more than 1024 files"),
    "many versions": (
        f"touch .{COMPAT}/libcuda.so.{{901..999}}.1",
        "there are 99 versions of libcuda, not one",
    ),
    "circle": (f"ln -s libcuda.so.999.1 .{LIBCUDA}", "more than 40 links are on the way"),
    "endless path": (
        f"ln -s {'a/../' * 700}x .{LIBCUDA}; mkdir .{COMPAT}/a",
        "more than 512 steps are on the way",
    ),
    "own process": (f"ln -s /proc/self/exe .{LIBCUDA}", "it leads into /proc"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_compatibility_library_that_is_a_bomb_costs_nothing(target: Target, bomb: str) -> None:
    script, line = BOMBS[bomb]
    with target.untouched():
        said = target.said(f"mkdir -p .{COMPAT}; {script}")
    assert line in said
    assert bool(said) == bool(line)


def elf(sections: list[tuple[int, int, int, int]], note: bytes = b"", *, count: int | None = None) -> bytes:
    """Return a shared object with SECTIONS (name, type, offset, size) and a note at 4096.

    Its strings are those of the section that NVIDIA's note is in, at 2048.
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
        "a part ends at byte 1099511631776, the file at 4096",
    ),
    "sections without end": (elf([STRINGS], count=65535), "65535 sections are more than 256"),
    "nested": (b"[" * 3000, "the note is not JSON"),
    "great number": (b'{"driver":[' + b"9" * 3000 + b"]}", ""),
    "no text": (b'{"CUDA version":"\xff\xfe"}', "the note is not JSON"),
}


@pytest.mark.parametrize("note", NOTES)
def test_a_compatibility_note_that_is_a_bomb_costs_nothing(target: Target, note: str) -> None:
    data, line = NOTES[note]
    if not data.startswith(b"\x7f"):
        owner = b"NVIDIA Corporation\0\0"
        text = struct.pack("<III", len(owner), len(data), 1) + owner + data
        data = elf([STRINGS, (1, 7, 4096, len(text))], text)
    coded = base64.b64encode(data).decode()
    with target.untouched():
        said = target.said(f"mkdir -p .{COMPAT}; base64 -d <<<{coded} >.{LIBCUDA}")
    assert line in said
    assert bool(said) == bool(line)


# What an image's cache may be, by a script that changes the real one, and what the hook says of it.
CACHES = {
    "of 2 GiB": ("truncate -s 2G etc/ld.so.cache", "2147483648 bytes are more than 16777216"),
    "of zero bytes": (": >etc/ld.so.cache", ""),
    "of nothing but zeros": ("rm etc/ld.so.cache; truncate -s 1M etc/ld.so.cache", ""),
    "that nobody may read": ("chmod 0 etc etc/ld.so.cache etc/ld.so.conf.d", ""),
    "of strange owners": ("chown -R 123456:654321 etc usr/lib usr/lib64; chmod 1700 etc", ""),
    "whose first name lies beyond it": ("poke 52 '\\377\\377\\377\\177'", "names are at "),
    "whose last name does not end": ("truncate -s -1 etc/ld.so.cache; printf x >>etc/ld.so.cache", ""),
    **{
        f"cut at {size}": (f"truncate -s {size} etc/ld.so.cache", None)
        for size in (1, 20, 47, 48, 49, 72, 4000)
    },
}
POKE = 'poke() { printf "$2" | dd of=etc/ld.so.cache bs=1 seek=$1 conv=notrunc status=none; }'


@pytest.mark.parametrize("damage", CACHES)
def test_a_damaged_cache_is_left_alone_or_replaced(target: Target, damage: str) -> None:
    script, line = CACHES[damage]
    with target.untouched():
        said = target.said(f"{POKE}; {script}")
    if line is not None:
        assert line in said
        assert bool(said) == bool(line)


def names(size: int) -> bytes:
    """Return a cache of SIZE bytes whose entries all have one name, that reaches to the end of the cache."""
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
def test_a_cache_whose_names_are_all_the_same_bytes_does_not_hold_up_the_start(
    target: Target, size: int
) -> None:
    """Copied out for each entry they would be gigabytes; runc would end the hook after ten seconds."""
    target.host.run("base64 -d >/srv/names", stdin=base64.b64encode(names(size)).decode())
    with target.untouched():
        said = target.said("cp /srv/names etc/ld.so.cache", options="--memory 256m")
    assert "is longer than 4096 bytes" in said


BYTE_BY_BYTE = r"""
import json, os, re, subprocess, sys
os.makedirs("/srv/cut/root/etc/ld.so.conf.d", exist_ok=True)
json.dump({"root": {"path": "root"}}, open("/srv/cut/config.json", "w"))
state = json.dumps({"ociVersion": "1.2.0", "bundle": "/srv/cut"}).encode()
hook, cache = json.load(sys.stdin)
data = open(cache, "rb").read()
path = "/srv/cut/root/etc/ld.so.cache"
said, codes = {}, set()
for size in range(len(data)):
    with open(path, "wb") as file:
        file.write(data[:size])
    done = subprocess.run(hook["args"], executable=hook["path"], input=state, capture_output=True, timeout=60,
                          env=dict(entry.split("=", 1) for entry in hook["env"]), cwd="/srv/cut/root")
    codes.add(done.returncode)
    lines = done.stderr.decode().splitlines()
    listed = subprocess.run(["ldconfig", "-p", "-C", path], capture_output=True) if not lines else None
    outcome = lines or [f"listed {b'libcuda.so.1' in listed.stdout} {listed.returncode}"]
    said.setdefault(re.sub("[0-9]+", "N", " ".join(outcome)), []).append(size)
print(json.dumps([sorted(codes), said]))
"""


def test_a_cache_that_is_cut_at_any_byte_is_replaced_or_left_alone(target: Target) -> None:
    """Made by the host's real ldconfig of three libraries; the hook is started as its spec says."""
    target.host.run(
        """rm -rf /srv/small /srv/cut; mkdir -p /srv/small/usr/lib/glibc-hwcaps/x86-64-v2 /srv/small/etc
        cd /srv/small/usr/lib
        cp /usr/lib/x86_64-linux-gnu/lib{z,zstd,xxhash}.so.? . && cp libz.so.1 glibc-hwcaps/x86-64-v2/
        ldconfig -r /srv/small -X"""
    )
    spec = json.loads(target.host.run("cat /run/cdi/nvidia.com-gpu.json"))
    given = json.dumps([spec["containerEdits"]["hooks"][0], "/srv/small/etc/ld.so.cache"])
    with target.untouched():
        answer = target.host.attempt(f"python3 -c {quoted(BYTE_BY_BYTE)}", stdin=given, timeout_s=300)
    assert answer.returncode == 0, answer.stderr
    codes, said = json.loads(answer.stdout)
    assert codes == [0]
    line = "cdigen-hook: update-ldcache: /etc/ld.so.cache: the tables end at byte N, the file at N; "
    assert all(outcome == "listed True N" or outcome.startswith(line) for outcome in said), said
    assert sum(map(len, said.values())) > 300


def quoted(program: str) -> str:
    return "'" + program.replace("'", "'\\''") + "'"


def test_another_name_of_a_file_of_the_host_is_replaced_and_not_written_through(target: Target) -> None:
    """A root on the host's own file system (--rootfs), where an image's cache may be a host's file itself."""
    target.host.run(
        """rm -rf /srv/linked; mkdir /srv/linked; cd /srv/linked; cp -a "$(podman mount $(
            podman create localhost/debian-like true))/." .; podman rm --all --force >/dev/null
        mkdir -p evil && cp /run/canaries/* evil
        cp etc/ld.so.cache /srv/host.cache; cp etc/ld.so.conf /srv/host.conf
        ln -f /srv/host.cache etc/ld.so.cache; ln -f /srv/host.conf etc/ld.so.conf.d/00-cdigen.conf"""
    )
    look = "stat -c '%n %i %s %Y %h' /srv/host.*; md5sum /srv/host.*"
    before = target.host.run(look)
    with target.untouched():
        answer = target.host.attempt(f"podman run --rm --device {STRICT} --rootfs /srv/linked ldconfig -p")
    assert "libcuda.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libcuda.so.1" in answer.stdout, (
        answer.stderr
    )
    assert not hook_lines(answer.stderr)
    assert target.host.run(look) == before.replace(" 2\n", " 1\n")
