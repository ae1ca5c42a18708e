"""A scan with a cache has the result of a fresh scan, after any change to the files."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support.waiting import pause

from cdigen.host.root import Root
from cdigen.runtimes.scan import scan
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.runtimes.users import ROOT, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cdigen.runtimes.scan import SpecScan

SEEDS, EDITS = 12, 120
# Most edits are followed by a scan immediately, within the same step of the clock.
SETTLED_S, SETTLES = 0.025, 0.1
DIRECTORIES = ("/etc/cdi", "/run/cdi")
NAMES = ("a.json", "b.json", "c.yaml", "d.json", "e.yml", "é.json")
KINDS = ("nvidia.com/gpu", "amd.com/gpu")
# Most names have the same length, so that contents of the same size are frequent.
DEVICES = ("g0", "g1", "G1", "g2", "all")
READERS = (ROOT, Reader(uid=65_534, gids=(65_534,)))
LIBRARIES = ("1.0.1", "1.1.0", "main")


class Disk:
    """Two spec directories below ROOT, and methods that change the directories at random (CHANCE)."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self._chance = chance
        self._made = 0
        for folder in (*DIRECTORIES, "/aside"):
            self.at(folder).mkdir(parents=True)
        self.edits: tuple[Callable[[], object], ...] = (
            self.replace, self.replace, self.replace, self.rewrite, self.rewrite, self.rename, self.exchange,
            self.link, self.rewrite_aside, self.swap_aside, self.chmod, self.remove, self.remove_all,
            self.touch, self.spoil, self.make_folder, self.make_fifo,
        )  # fmt: skip

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def content(self) -> bytes:
        chance = self._chance
        names = chance.sample(DEVICES, chance.choice((1, 1, 2, 3)))
        devices = [{"name": name, "containerEdits": {"env": [f"A={chance.choice('xy')}"]}} for name in names]
        version = chance.choice(("0.6.0", "0.6.0", "0.6.0", "9.9.9"))
        document = {"cdiVersion": version, "kind": chance.choice(KINDS), "devices": devices}
        return json.dumps(document).encode()

    def some(self) -> Path:
        """Return the path of a spec, which may not exist."""
        folder = self.at(self._chance.choice(DIRECTORIES))
        folder.mkdir(exist_ok=True)
        return folder / self._chance.choice(NAMES)

    def new(self) -> Path:
        self._made += 1
        made = self.at(f"/aside/new{self._made}")
        made.write_bytes(self.content())
        return made

    def replace(self) -> None:
        path = self.clear(self.some())
        self.new().rename(path)

    def rewrite(self) -> None:
        """Write a file in place, mostly with the same size, and restore its modification time."""
        path = self.some()
        if not path.is_file() or path.is_symlink():
            return
        before, size = path.stat(), path.stat().st_size
        content = next((new for _ in range(20) if len(new := self.content()) == size), self.content())
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def rename(self) -> None:
        path, other = self.some(), self.some()
        if path.is_file() and path != other:
            path.rename(self.clear(other))

    def exchange(self) -> None:
        """Exchange the names of two files: the inodes do not change."""
        path, other = self.some(), self.some()
        if path != other and path.is_file() and other.is_file():
            path.rename(self.at("/aside/moving"))
            other.rename(path)
            self.at("/aside/moving").rename(other)

    def link(self) -> None:
        path = self.clear(self.some())
        path.symlink_to(f"../../aside/target{self._chance.randrange(3)}")

    def rewrite_aside(self) -> None:
        self.at(f"/aside/target{self._chance.randrange(3)}").write_bytes(self.content())

    def swap_aside(self) -> None:
        self.new().rename(self.at(f"/aside/target{self._chance.randrange(3)}"))

    def chmod(self) -> None:
        path = self.some()
        if path.is_file():
            path.chmod(self._chance.choice((0o644, 0o600, 0o000)))

    def touch(self) -> None:
        path = self.some()
        if path.is_file():
            path.touch()

    def spoil(self) -> None:
        path = self.some()
        if path.is_file():
            path.chmod(0o644)  # an ordinary user cannot write into a file without the permission
            path.write_bytes(self.content()[:-9])

    def remove(self) -> None:
        self.clear(self.some())

    def remove_all(self) -> None:
        shutil.rmtree(self.some().parent)

    def make_folder(self) -> None:
        self.clear(self.some()).mkdir()

    def make_fifo(self) -> None:
        # While a spec is a FIFO, no device is found, so a FIFO is rare.
        path = self.clear(self.some())
        if self._chance.random() < 0.2:
            os.mkfifo(path)

    @staticmethod
    def clear(path: Path) -> Path:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        return path


def result_of(found: SpecScan) -> dict[str, Any]:
    """Return the complete result of a scan."""
    return {
        "devices": found.devices,
        "problems": found.problems,
        "files": found.files,
        "directories": found.directories,
        "fatal": found.fatal,
        "names": {kind: names.sorted for kind, names in found.names.items()},
        "folded": {kind: [names.find(one.upper()) for one in DEVICES] for kind, names in found.names.items()},
        "file": {device: found.file(device) for device in all_devices()},
        "resolved": [found.resolve(device) for device in all_devices()],
        "definitions": found.definitions(),
    }


def all_devices() -> list[str]:
    return [f"{kind}={device}" for kind in KINDS for device in DEVICES]


@pytest.fixture(params=("here", pytest.param("in ticks", marks=pytest.mark.needs_root)))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on disk, or on ramfs. File times on ramfs have the steps of the kernel's clock."""
    if request.param == "here":
        yield tmp_path
        return
    subprocess.run(["mount", "-t", "ramfs", "none", str(tmp_path)], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_scan_with_a_cache_equals_a_fresh_scan_after_any_change(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    disk = Disk(folder, chance)
    kept, keeping = SpecCache(), SpecCache(json.dumps)
    before: list[tuple[SpecScan, dict[str, Any]]] = []
    for number in range(EDITS):
        edit = chance.choice(disk.edits)
        edit()
        if chance.random() < SETTLES:
            pause(SETTLED_S)
        library, reader = chance.choice((*LIBRARIES, "1.0.1", "1.0.1")), chance.choice((ROOT, *READERS))
        arguments: dict[str, Any] = {"library": library, "reader": reader}
        found = scan(DIRECTORIES, Root(str(folder)), cache=kept, **arguments)
        fresh = result_of(scan(DIRECTORIES, Root(str(folder)), **arguments))
        assert result_of(found) == fresh, f"after edit {number}, {edit.__name__}"
        of_documents = scan(DIRECTORIES, Root(str(folder)), cache=keeping, **arguments)
        again = scan(DIRECTORIES, Root(str(folder)), cache=SpecCache(json.dumps), **arguments)
        assert of_documents.files == again.files
        before.append((found, fresh))
    # Earlier results have not changed, because other code may still use these results.
    for found, fresh in before:
        assert result_of(found) == fresh
