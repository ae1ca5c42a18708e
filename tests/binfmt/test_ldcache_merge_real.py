"""Merges into caches of the machine's ldconfig, checked with ldconfig and the machine's loader."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest
from support.abilities import cannot_run, tool
from support.values.loader_model import (
    DRIVER,
    FOLDER,
    HWCAP,
    LIBRARIES,
    MAGIC,
    extension_at,
    find_library,
    hwcaps_names,
    patched,
    places,
)

from cdigen.binfmt.ldcache import ABIS, FLAGS_X86_64, parse
from cdigen.binfmt.ldcache_merge import merge

LDCONFIG = "/sbin/ldconfig"
LOADER = "/lib64/ld-linux-x86-64.so.2"
PLACEHOLDER = "lib" + "x" * 60
IMAGE = (
    "libcuda.so.1", "libnvidia-ml.so.9", "libnvidia-ml.so.10", "libnvidia-ml-2.so", "libimage.so.1",
    "liba.so",
)  # fmt: skip


def run(*command: str | Path) -> bytes:
    return subprocess.run(command, check=True, capture_output=True).stdout


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return a library of each ABI of this machine, with a SONAME that tests can overwrite."""
    if not Path(LOADER).exists():
        cannot_run(f"no loader for x86-64 at {LOADER}")
    folder = tmp_path_factory.mktemp("templates")
    source, stub = folder / "answer.s", folder / "libc.so.6"
    source.write_text(".text\n.globl answer\n.type answer, @function\nanswer: ret\n")
    make = (tool("gcc"), "-shared", "-nostdlib", "-Wl,--no-as-needed")
    run(*make, f"-Wl,-soname,{PLACEHOLDER}", "-o", folder / "x86_64", source)
    # ldconfig recognises a 32-bit library of glibc by its need of libc.so.6.
    run(*make, "-m32", "-Wl,-soname,libc.so.6", "-o", stub, source)
    run(*make, "-m32", f"-Wl,-soname,{PLACEHOLDER}", "-o", folder / "i386", source, stub)
    return {abi: (folder / abi).read_bytes() for abi in ("x86_64", "i386")}


def install(folder: Path, template: bytes, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        soname = name.encode().ljust(len(PLACEHOLDER), b"\0")
        (folder / name).write_bytes(template.replace(PLACEHOLDER.encode(), soname))


class Machine:
    """Folders with libraries; the real ldconfig writes caches for these and the machine's folders."""

    def __init__(self, folder: Path, templates: dict[str, bytes]) -> None:
        self.folder = folder
        self.ours: list[tuple[str, str, int]] = []
        for abi, library in (("x86_64", "lib64"), ("i386", "lib")):
            install(folder / "image" / library, templates[abi], IMAGE)
            install(folder / "driver" / library, templates[abi], DRIVER)
            self.ours += [(name, str(folder / "driver" / library / name), ABIS[abi]) for name in DRIVER]
        for name in ("x86-64-v2", "x86-64-v3"):
            install(folder / "image/lib64/glibc-hwcaps" / name, templates["x86_64"], ("libimage.so.1",))

    def ldconfig(self, *folders: str, format_: str = "new") -> bytes:
        configuration, made = self.folder / "ld.so.conf", self.folder / "ld.so.cache"
        configuration.write_text("".join(f"{self.folder / folder}\n" for folder in folders))
        run(LDCONFIG, "-X", "-i", "-c", format_, "-f", configuration, "-C", made)
        return made.read_bytes()

    def listed(self, data: bytes) -> list[str]:
        """Return the lines of ``ldconfig -p`` about libraries."""
        listing = self.folder / "listing"
        listing.write_bytes(data)
        output = run(LDCONFIG, "-p", "-C", listing)
        return [line for line in os.fsdecode(output).splitlines() if line.startswith("\t")]


IMAGE_FOLDERS = ("image/lib64", "image/lib")
DRIVER_FOLDERS = ("driver/lib64", "driver/lib")


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory, templates: dict[str, bytes]) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"), templates)


def test_a_merge_has_the_order_of_an_ldconfig_run_with_the_driver_first(machine: Machine) -> None:
    expected = machine.ldconfig(*DRIVER_FOLDERS, *IMAGE_FOLDERS)
    merged = merge(machine.ldconfig(*IMAGE_FOLDERS), machine.ours)
    assert places(merged) == places(expected)
    assert machine.listed(merged) == machine.listed(expected)
    assert hwcaps_names(merged) == hwcaps_names(expected) == [b"x86-64-v2", b"x86-64-v3"]


def test_a_merge_into_a_combined_cache_has_the_same_order(machine: Machine) -> None:
    expected = machine.ldconfig(*DRIVER_FOLDERS, *IMAGE_FOLDERS)
    merged = merge(machine.ldconfig(*IMAGE_FOLDERS, format_="compat"), machine.ours)
    assert merged.startswith(MAGIC)
    assert places(merged) == places(expected)


def test_the_unusable_hwcaps_names_of_a_combined_cache_are_omitted(machine: Machine) -> None:
    merged = merge(machine.ldconfig(*IMAGE_FOLDERS, format_="compat"), machine.ours)
    assert hwcaps_names(merged) == []
    assert [one.hwcap & HWCAP != 0 for one in parse(merged) if one.soname == "libimage.so.1"].count(True) == 2


def test_a_merge_of_no_libraries_changes_no_byte(machine: Machine) -> None:
    data = machine.ldconfig(*IMAGE_FOLDERS)
    assert merge(data, ()) == data


def test_a_new_cache_has_the_order_of_ldconfig(machine: Machine) -> None:
    ours = {place[:2] for place in machine.ours}
    made = machine.ldconfig(*DRIVER_FOLDERS)
    expected = [place for place in places(made) if place[:2] in ours]
    merged = merge(b"", machine.ours)
    assert places(merged) == expected
    assert len(machine.listed(merged)) == len(expected)


def test_a_second_merge_changes_no_byte(machine: Machine) -> None:
    merged = merge(machine.ldconfig(*IMAGE_FOLDERS), machine.ours)
    assert merge(merged, machine.ours) == merged


def test_driver_entries_of_ldconfig_are_replaced(machine: Machine) -> None:
    data = machine.ldconfig(*IMAGE_FOLDERS, *DRIVER_FOLDERS)
    assert places(merge(data, machine.ours)) == places(machine.ldconfig(*DRIVER_FOLDERS, *IMAGE_FOLDERS))


class Root:
    """A root folder with the machine's loader, the libraries of an image and the driver's libraries."""

    def __init__(self, folder: Path, templates: dict[str, bytes]) -> None:
        self.folder = folder
        chroot = tool("chroot", "coreutils")
        self.enter = [chroot] if os.geteuid() == 0 else ["unshare", "--map-root-user", chroot]
        (folder / "etc").mkdir(parents=True)
        (folder / "lib64").mkdir()
        (folder / LOADER[1:]).write_bytes(Path(LOADER).read_bytes())
        (folder / LOADER[1:]).chmod(0o755)
        system = folder / "usr/lib/x86_64-linux-gnu"
        install(system, templates["x86_64"], IMAGE)
        install(system / "glibc-hwcaps/x86-64-v2", templates["x86_64"], ("libcuda.so.1", "libimage.so.1"))
        install(folder / "opt/image", templates["x86_64"], ("libonly.so.1",))
        install(folder / FOLDER[1:], templates["x86_64"], DRIVER)
        (folder / "etc/ld.so.conf").write_text("/usr/lib/x86_64-linux-gnu\n/opt/image\n")
        for name in (*IMAGE, *DRIVER, "libonly.so.1"):
            self._link(name)

    def _link(self, name: str) -> None:
        """Write a program that needs only the library NAME."""
        stub = next(self.folder.glob(f"**/{name}"))
        program, empty = self.folder / f"needs-{name}", self.folder / "empty.s"
        empty.write_text("")
        run(tool("gcc"), "-shared", "-nostdlib", "-Wl,--no-as-needed", "-o", program, empty, stub)

    def ldconfig(self, *, format_: str = "new") -> bytes:
        run(*self.enter[:-1], LDCONFIG, "-X", "-r", self.folder, "-c", format_)
        return (self.folder / "etc/ld.so.cache").read_bytes()

    def loaded(self, name: str, data: bytes | None) -> str:
        """Return the path that the loader uses for NAME with the cache DATA, or "" if there is no path."""
        place = self.folder / "etc/ld.so.cache"
        place.unlink(missing_ok=True)
        if data is not None:
            place.write_bytes(data)
        command = [*self.enter, str(self.folder), LOADER, "--list", f"/needs-{name}"]
        result = subprocess.run(
            command, check=False, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
        )
        if result.returncode < 0 or result.returncode > 127:
            return f"died of {result.returncode}"
        lines = [line.split() for line in result.stdout.splitlines()]
        return next((words[2] for words in lines if words[:2] == [name, "=>"] and words[2] != "not"), "")


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory, templates: dict[str, bytes]) -> Root:
    made = Root(tmp_path_factory.mktemp("root"), templates)
    tried = subprocess.run(
        [*made.enter, str(made.folder), LOADER, "--version"], check=False, capture_output=True
    )
    if tried.returncode:
        cannot_run(f"no chroot: {os.fsdecode(tried.stderr).strip()}")
    return made


@pytest.mark.parametrize("format_", ["new", "compat"])
def test_the_loader_finds_the_driver_and_all_other_libraries_as_before(root: Root, format_: str) -> None:
    data = root.ldconfig(format_=format_)
    names = (*IMAGE, "libonly.so.1")
    before = {name: root.loaded(name, data) for name in names}
    merged = merge(data, LIBRARIES)
    assert {name: root.loaded(name, merged) for name in DRIVER} == {
        name: f"{FOLDER}/{name}" for name in DRIVER
    }
    unchanged = [name for name in names if name not in DRIVER]
    assert {name: root.loaded(name, merged) for name in unchanged} == {
        name: before[name] for name in unchanged
    }
    assert before["libcuda.so.1"].startswith("/usr/lib")
    assert before["libonly.so.1"] == "/opt/image/libonly.so.1"


@pytest.mark.parametrize("data", [None, b"", b"no cache", MAGIC + bytes(28), MAGIC + b"\xff" * 100])
def test_the_loader_finds_the_driver_if_the_cache_was_missing_or_ignored(
    root: Root, data: bytes | None
) -> None:
    assert root.loaded("libcuda.so.1", data).startswith("/usr/lib")
    merged = merge(data or b"", LIBRARIES)
    assert places(merged) == places(merge(b"", LIBRARIES))
    assert {name: root.loaded(name, merged) for name in DRIVER} == {
        name: f"{FOLDER}/{name}" for name in DRIVER
    }
    assert root.loaded("libimage.so.1", merged).startswith("/usr/lib")


def test_an_hwcaps_offset_that_crashes_the_loader_is_omitted(root: Root) -> None:
    data = root.ldconfig()
    (name,) = hwcaps_names(data)
    at = data.index(struct.pack("<I", data.index(name + b"\0")), extension_at(data))
    bad = patched(data, at, "<I", 0x7FFFFFFF)
    assert root.loaded("libimage.so.1", bad).startswith("died")
    merged = merge(bad, LIBRARIES)
    assert root.loaded("libimage.so.1", merged) == "/usr/lib/x86_64-linux-gnu/libimage.so.1"
    assert root.loaded("libcuda.so.1", merged) == f"{FOLDER}/libcuda.so.1"


def test_the_model_of_the_loader_finds_the_same_libraries_as_the_loader(root: Root) -> None:
    for data in (root.ldconfig(), merge(root.ldconfig(), LIBRARIES)):
        for name in (*IMAGE, *DRIVER, "libonly.so.1"):
            found = find_library(data, name, FLAGS_X86_64)
            assert found is None or found == root.loaded(name, data)
