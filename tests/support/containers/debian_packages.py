"""cdigen's Debian packages in this and a next version, and hosts whose apt uses local repositories."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support.own_trees import copy_tree
from support.paths import REPOSITORY
from support.processes import succeeded

NEXT = "0.2.0"
APT = (
    "DEBIAN_FRONTEND=noninteractive apt-get --quiet --assume-yes --no-install-recommends --allow-downgrades "
    "--option=Dpkg::Options::=--force-unsafe-io --option=APT::AutoRemove::RecommendsImportant=false "
    "--option=APT::AutoRemove::SuggestsImportant=false"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Debs:
    """Folders with the packages of this version, of a next version, and of their dependencies."""

    now: Path
    later: Path
    archives: Path

    def lay_into(self, root: Path) -> None:
        """Copy all folders into the tree ROOT of a host. After this, its apt uses no other repository."""
        (root / "debs").mkdir()
        for name, folder in (("now", self.now), ("later", self.later), ("archives", self.archives)):
            copy_tree(folder, root / "debs" / name)
        sources = root / "etc/apt/sources.list"
        sources.unlink()  # the file may be a hard link
        sources.write_text("deb [trusted=yes] file:/debs/archives ./\n")


def build(cache: Path, suite: str, folder: Path) -> Debs:
    """Build this and a next version of the packages into FOLDER, in CACHE's file system.

    The hosts are of SUITE, such as ``bookworm``.
    """
    now, later = folder / "now", folder / "later"
    packager = cache / "packager-trixie"
    succeeded([REPOSITORY / "packaging/build-deb", now], env={**os.environ, "DEB_ROOT": str(packager)})
    later.mkdir()
    for deb in now.glob("*.deb"):
        _next_version(deb, later)
    return Debs(now=now, later=later, archives=packager / "archives" / suite)


def one_file(folder: Path, path: str) -> Path:
    """Make and return a package in FOLDER with one file at PATH, like a file of a driver's package."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        tree = Path(made) / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        name = "a-driver"
        fields = f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: Tests <root@localhost>\n"
        (tree / "DEBIAN/control").write_text(f"{fields}Description: a file\n")
        (tree / path).parent.mkdir(parents=True)
        (tree / path).touch()
        _pack(tree, folder / f"{name}.deb")
    return folder / f"{name}.deb"


def pynvml_repository(folder: Path) -> None:
    """Make Debian's python3-pynvml in FOLDER from this Python's module, with an index for apt."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    deb = folder / "python3-pynvml_1_all.deb"
    fields = (
        "Package: python3-pynvml\nVersion: 1\nArchitecture: all\nMaintainer: Tests <root@localhost>\n"
        "Depends: libnvidia-ml1 | libnvidia-ml.so.1, python3:any\nDescription: a module\n"
    )
    with tempfile.TemporaryDirectory(dir=folder) as made:
        modules = Path(made) / "usr/lib/python3/dist-packages"
        modules.mkdir(parents=True)
        shutil.copy(spec.origin, modules)
        (Path(made) / "DEBIAN").mkdir()
        (Path(made) / "DEBIAN/control").write_text(fields)
        _pack(Path(made), deb)
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    index = f"{fields}Filename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"
    (folder / "Packages").write_text(index)


def _next_version(deb: Path, folder: Path) -> None:
    """Make a later version of DEB, in which a module of the hook has another name."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        tree = Path(made) / "tree"
        subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
        control = tree / "DEBIAN/control"
        control.write_text(re.sub(r"\b0\.1\.0-", f"{NEXT}-", control.read_text()))
        (tree / "DEBIAN/md5sums").unlink()
        for init in tree.rglob("cdigen/__init__.py"):
            init.write_text(init.read_text().replace("0.1.0", NEXT))
            hook = init.parent / "hook"
            (hook / "loader.py").rename(hook / "next_loader.py")
            for module in hook.glob("*.py"):
                module.write_text(module.read_text().replace("cdigen.hook.loader", "cdigen.hook.next_loader"))
            # The byte code is that of the old sources, and Python would not detect this.
            for stale in init.parent.rglob("*.pyc"):
                stale.unlink()
        _pack(tree, folder)


def _pack(tree: Path, target: Path) -> None:
    options = ("-Znone", "--root-owner-group", "--build")
    subprocess.run(["dpkg-deb", *options, tree, target], check=True, stdout=subprocess.DEVNULL)
