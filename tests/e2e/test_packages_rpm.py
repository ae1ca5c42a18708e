"""The RPM packages that Debian's rpmbuild builds have the expected contents and scriptlets.

The tests install the packages into a Debian root, where rpm has no record of installed packages. Therefore,
dependencies on packages of a distribution with rpm are not tested.
"""

import gzip
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.abilities import tool
from support.installation.installing import done, make, snapshot
from support.own_trees import copied_tree
from support.paths import REPOSITORY
from support.processes import captured

pytestmark = pytest.mark.e2e

CODE = "usr/lib/cdigen"
HOOK = "usr/libexec/cdigen/lib"
# Files that the packages install and `make install` does not.
OF_RPM = {
    "etc", "etc/cdigen", "etc/cdigen/config.yaml", "usr/lib/systemd/system-preset",
    "usr/lib/systemd/system-preset/50-cdigen.preset", "usr/share/cdigen", "usr/share/cdigen/compile",
    "usr/share/cdigen/refresh", "usr/share/licenses", "usr/share/licenses/cdigen",
    "usr/share/licenses/cdigen/LICENSE",
}  # fmt: skip
# The documentation, which `make install` does not install either.
DOCUMENTATION = tuple(
    f"usr/share/doc/cdigen/{name}"
    for name in re.findall(r"^DOCUMENTATION := (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)[0]
    .replace("packaging/kubernetes", "packaging")
    .split()
)


def ran(*command: str | Path, cwd: Path = REPOSITORY) -> str:
    return done(captured(command, cwd=cwd))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tool("rpmbuild")
    folder = tmp_path_factory.mktemp("rpm")
    ran("packaging/build-rpm", folder)
    return folder


def package(packages: Path, name: str) -> Path:
    (found,) = packages.glob(f"{name}-[0-9]*.noarch.rpm")
    return found


def queried(file: Path, *options: str) -> str:
    return ran("rpm", "--query", "--package", file, *options)


@pytest.fixture(scope="module")
def unpacked(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    for file in packages.iterdir():
        shell = 'rpm2cpio "$1" | cpio --extract --make-directories --preserve-modification-time --quiet'
        ran("sh", "-euc", shell, "sh", file, cwd=folder)
    return folder


@pytest.mark.needs_root
def test_two_builds_of_the_packages_are_identical(packages: Path, tmp_path: Path) -> None:
    ran("packaging/build-rpm", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in packages.iterdir()
    }


@pytest.mark.needs_root
def test_the_packages_install_the_files_of_make_install(unpacked: Path, tmp_path: Path) -> None:
    done(
        make(
            "install",
            tmp_path,
            "INSTALL_DEPS=no",
            f"HOST_PYTHON={sys.executable}",
            "HOOK_PYTHON=/usr/bin/python3",
        )
    )
    packaged, installed = (
        {
            path.removesuffix(".gz"): row[0]
            for path, row in snapshot(top).items()
            if not path.startswith((CODE, HOOK, *DOCUMENTATION))
        }
        for top in (unpacked, tmp_path)
    )
    assert {path: mode for path, mode in packaged.items() if path not in OF_RPM} == installed
    modules = [
        {
            path.relative_to(top): path.read_bytes()
            for path in (top / CODE).rglob("*")
            if path.suffix in {".py", ".json", ".binpb"}
        }
        for top in (unpacked, tmp_path)
    ]
    (exchange,) = [path for path in modules[0] if path.name == "exchange.py"]
    assert {**modules[1], exchange: modules[0][exchange]} == modules[0]
    manual = gzip.decompress((unpacked / "usr/share/man/man8/cdigen.8.gz").read_bytes())
    assert manual == (REPOSITORY / "etc/man/cdigen.8").read_bytes()


@pytest.mark.needs_root
def test_the_packages_have_every_file_of_the_documentation(unpacked: Path, tmp_path: Path) -> None:
    done(make("install-documentation", tmp_path))
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.as_posix() for path in made if not (unpacked / path).is_file()} == set()


@pytest.mark.needs_root
def test_every_file_belongs_to_root_and_only_root_can_write_it(packages: Path) -> None:
    form = "[%{FILEUSERNAME} %{FILEGROUPNAME} %{FILEMODES:perms} %{FILENAMES}\n]"
    for file in packages.iterdir():
        for row in queried(file, "--queryformat", form).splitlines():
            user, group, mode, _ = row.split(" ", 3)
            assert (user, group, mode[5], mode[8]) == ("root", "root", "-", "-"), row


@pytest.mark.needs_root
def test_the_packages_are_noarch_and_contain_no_byte_code(packages: Path) -> None:
    for file in packages.iterdir():
        assert queried(file, "--queryformat", "%{ARCH}") == "noarch"
        assert not [path for path in queried(file, "--list").splitlines() if path.endswith(".pyc")]


@pytest.mark.needs_root
def test_scriptlets_are_valid_shell_without_rpm_macros(packages: Path) -> None:
    for file in packages.iterdir():
        for kind in ("--scripts", "--triggers", "--filetriggers"):
            text = queried(file, kind)
            assert "%{" not in text
            script = "\n".join(line for line in text.splitlines() if " scriptlet (using /bin/sh)" not in line)
            done(captured(["sh", "-n"], input=script))


@pytest.mark.needs_root
def test_the_packages_require_the_dependencies_of_the_code(packages: Path) -> None:
    needed = queried(package(packages, "cdigen"), "--requires")
    for row in (
        (REPOSITORY / "pyproject.toml")
        .read_text()
        .split("\ndependencies = [\n")[1]
        .split("\n]")[0]
        .splitlines()
    ):
        name, _, floor = row.strip(' ",').partition(">=")
        if name != "nvidia-ml-py":
            assert f"python3dist({name}) >= {floor.partition(',')[0]}\n" in needed
    same = f"cdigen = {queried(package(packages, 'cdigen'), '--queryformat', '%{VERSION}-%{RELEASE}')}\n"
    assert same in queried(package(packages, "cdigen-nri"), "--requires")
    of_the_kubelet = queried(package(packages, "cdigen-kubelet"), "--requires")
    assert same in of_the_kubelet
    assert "python3dist(grpcio) >= 1.48\n" in of_the_kubelet


@pytest.mark.needs_root
def test_a_package_with_structlog_contains_no_other_module_and_requires_the_others(tmp_path: Path) -> None:
    ran("packaging/build-rpm", tmp_path, "--with", "structlog", "--define", f"pip {sys.executable} -m pip")
    built = package(tmp_path, "cdigen")
    needed = queried(built, "--requires")
    assert "python3dist(tomlkit)" in needed
    assert "structlog" not in needed
    below = [path.removeprefix(f"/{CODE}/") for path in queried(built, "--list").splitlines()]
    names = {path.split("/")[0].partition("-")[0] for path in below if not path.startswith("/")}
    assert names == {"cdigen", "structlog"}


@pytest.fixture
def root(cache: Path) -> Iterator[Path]:
    with copied_tree(cache / "host-trixie", cache) as root:
        for device in ("null", "zero", "urandom"):
            (root / "dev" / device).exists() or ran("cp", "--archive", f"/dev/{device}", root / "dev")
        # In distributions with rpm, the package named filesystem has these folders.
        for name in ("licenses", "zsh/site-functions"):
            (root / "usr/share" / name).mkdir(parents=True)
        yield root


def host_files(root: Path) -> set[str]:
    return {
        path
        for path in snapshot(root)
        if not path.startswith(("var/lib/rpm", "usr/lib/sysimage", "tmp", "var/tmp"))
    }


def test_no_file_is_left_after_installation_upgrade_and_removal(packages: Path, root: Path) -> None:
    rpm = ("rpm", "--root", root, "--nodeps", "--noplugins")
    ran("rpm", "--root", root, "--initdb")
    before = host_files(root)
    ran(*rpm, "--install", *packages.iterdir())
    assert ran("chroot", root, "cdigen", "--version").startswith("cdigen ")
    compiled = list((root / HOOK).rglob("*.cpython-313.pyc"))
    assert len(compiled) == len(list((root / HOOK).rglob("*.py")))
    # Flags of PEP 552: byte code is checked by a hash of its source.
    assert {path.read_bytes()[4] for path in (root / CODE).rglob("*.pyc")} | {
        path.read_bytes()[4] for path in compiled
    } == {3}
    assert ran("chroot", root, "systemctl", "is-enabled", "cdigen") == "enabled\n"
    inode = (root / HOOK).stat().st_ino

    ran(*rpm, "--upgrade", "--force", *packages.iterdir())
    assert (root / HOOK).stat().st_ino != inode
    assert (root / HOOK / "cdigen/hook/main.py").exists()

    ran(*rpm, "--erase", "cdigen", "cdigen-nri", "cdigen-kubelet")
    assert host_files(root) == before
