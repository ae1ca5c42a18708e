"""A container's root beside a "host" folder, the installed hook, and the changes that the hook makes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

from cdigen.binfmt import ldcache
from cdigen.binfmt.ldcache_merge import merge

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.binfmt.ldcache import LdCacheEntry

VIEW = "/usr/local/nvidia/lib64"
LDCACHE = ("--update-ldcache", "x86_64", VIEW, "libcuda.so.1", "libnvidia-ml.so.1")
PROFILE = ("--update-application-profile",)
LINKS = ("--create-symlinks", "libcuda.so.1", "/usr/lib/libcuda.so")
# An access time before the modification time: a read then changes the access time (mount(8), relatime).
LONG_AGO_NS = 10**18
LINE = re.compile(r"cdigen-hook: [\w.-]+: [^\n]+")


def image_cache(*names: str) -> bytes:
    """Return a loader cache with an entry in /usr/lib for each of NAMES (by default, for two libraries)."""
    libraries = [
        (name, f"/usr/lib/{name}", ldcache.FLAGS_X86_64) for name in names or ("libz.so.1", "liba.so")
    ]
    return merge(b"", libraries)


class Case:
    """A bundle with an image's root, and a folder beside it that represents the host."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.program = program
        self.bundle = folder / "bundle"
        self.root = self.bundle / "rootfs"
        self.host = folder / "host"
        (self.root / "etc/ld.so.conf.d").mkdir(parents=True)
        (self.root / "usr/lib").mkdir(parents=True)
        (self.root / "etc/ld.so.cache").write_bytes(image_cache())
        for name in (
            "ld.so.cache",
            "passwd",
            "ld.so.conf.d/host.conf",
            "nvidia/host.conf",
            "lib/libcuda.so.1",
        ):
            path = self.host / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"the host's " + name.encode())
            os.utime(path, ns=(LONG_AGO_NS, path.stat().st_mtime_ns))
        self.configure({"ociVersion": "1.1.0", "root": {"path": "rootfs"}})

    @property
    def cache(self) -> Path:
        return self.root / "etc/ld.so.cache"

    @property
    def conf(self) -> Path:
        return self.root / "etc/ld.so.conf.d/00-cdigen.conf"

    def configure(self, config: object) -> None:
        (self.bundle / "config.json").write_text(json.dumps(config))

    def state(self) -> bytes:
        state = {
            "ociVersion": "1.1.0",
            "id": "test",
            "status": "creating",
            "pid": 1,
            "bundle": str(self.bundle),
        }
        return json.dumps(state).encode()

    def command(self, *steps: str) -> list[str]:
        return [sys.executable, "-I", "-S", "-B", str(self.program), *steps]

    def start(
        self, *steps: str, state: bytes | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Start the hook as a runtime does; a hook that blocks is an error."""
        done = subprocess.run(
            self.command(*steps),
            input=(self.state() if state is None else state).decode("utf-8", "surrogateescape"),
            env={"PATH": "/usr/bin:/bin"} if env is None else env,
            cwd=self.root,
            check=False,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
        )
        return lines_only(done)

    def start_mounted(
        self, before: str, *steps: str, after: str = "", state: bytes | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Start the hook in its own mount namespace, between the shell scripts BEFORE and AFTER.

        Both scripts can use $root and $host.
        """
        script = f'root={self.root}; host={self.host}\n{before}\nrc=0; "$@" || rc=$?\n{after}\nexit $rc'
        done = subprocess.run(
            ["unshare", "-m", "sh", "-ec", script, "sh", *self.command(*steps)],
            input=(self.state() if state is None else state).decode(),
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return lines_only(done)

    def entries(self) -> tuple[tuple[str, str], ...]:
        return pairs(self.cache.read_bytes())


def pairs(data: bytes) -> tuple[tuple[str, str], ...]:
    """Return names and paths of the loader cache DATA in its order."""
    entries: tuple[LdCacheEntry, ...] = ldcache.parse(data)
    return tuple((entry.soname, entry.path) for entry in entries)


def lines_only(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Assert that standard error has only lines of the hook, and no traceback; return DONE."""
    assert all(LINE.fullmatch(line) for line in done.stderr.splitlines()), done.stderr
    return done


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return the properties of all files in FOLDER, also their access times, which it does not change."""
    found: dict[str, tuple[object, ...]] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            status = os.lstat(path)
            content = ""
            if stat.S_ISREG(status.st_mode):
                fd = os.open(path, os.O_RDONLY | os.O_NOATIME)
                content = hashlib.sha256(os.read(fd, 1 << 20)).hexdigest()
                os.close(fd)
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            read = status.st_atime_ns if stat.S_ISREG(status.st_mode) else 0
            times = (status.st_mtime_ns, status.st_ctime_ns, read)
            found[path] = (status.st_mode, status.st_ino, status.st_nlink, times, content)
    return found
