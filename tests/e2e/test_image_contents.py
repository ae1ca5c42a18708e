"""cdigen's image contains its programs, dependencies and licences, and no files that only hosts use."""

import stat
import subprocess
from pathlib import Path

import pytest
from support.containers.image_archive import Contents, build, contents
from support.paths import REPOSITORY
from support.processes import captured

pytestmark = pytest.mark.e2e

# The limits of the packed image and of the unpacked image (120 MiB); docs/reference/evidence.md has the
# current sizes.
MOST_PACKED, MOST_UNPACKED = 40 << 20, 120 << 20


@pytest.fixture(scope="module")
def image(image_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return contents(image_archive, tmp_path_factory.mktemp("layout"))


def test_the_image_is_smaller_than_the_limits(image: Contents, image_archive: Path) -> None:
    assert image_archive.stat().st_size <= MOST_PACKED
    assert image.size <= MOST_UNPACKED


def test_two_builds_of_the_image_are_identical(image_archive: Path, cache: Path, tmp_path: Path) -> None:
    # The packages are built again, in folders with other names.
    again = build(cache, tmp_path / "again/of/it.tar.zst")
    assert subprocess.run(["cmp", image_archive, again], check=False).returncode == 0


def test_the_image_has_no_entrypoint_and_an_unprivileged_user(image: Contents) -> None:
    config = image.config["config"]
    assert config["User"] == "65532:65532"
    assert "Entrypoint" not in config


def test_the_image_has_no_shell_no_setuid_program_and_no_device_node(image: Contents) -> None:
    names = {Path(path).name for path, file in image.files.items() if not file.isdir()}
    assert not names & {"sh", "bash", "dash", "busybox", "perl", "apt", "apt-get", "dpkg", "su", "mount"}
    special = stat.S_ISUID | stat.S_ISGID
    assert [path for path, file in image.files.items() if file.isfile() and file.mode & special] == []
    assert {(file.uid, file.gid) for file in image.files.values()} == {(0, 0)}
    assert not any(file.isdev() or file.isfifo() for file in image.files.values())
    writable = {path for path, file in image.files.items() if file.mode & stat.S_IWOTH and not file.issym()}
    assert writable == {"tmp", "var/tmp"}


def test_the_image_has_no_files_that_only_hosts_and_package_managers_use(image: Contents) -> None:
    unwanted = ("systemd", "/man/", "var/cache/apt/", "var/lib/apt/", "etc/apt", ".deb", "bash-completion")
    assert [path for path in image.files if any(word in path for word in unwanted)] == []
    # The image does not need the start-up hook, because specs have the hook of the host, or none.
    assert [path for path in image.files if path.endswith("cdigen-hook")] == []


def test_the_image_has_the_name_and_licence_of_every_package(image: Contents) -> None:
    status = "var/lib/dpkg/status.d/"
    packages = {path.removeprefix(status) for path in image.files if path.startswith(status)} - {""}
    assert {"cdigen", "python3-cdigen", "python3-grpcio", "python3-pynvml", "libc6"} <= packages

    def has_licence(package: str) -> bool:
        folder = image.files.get(f"usr/share/doc/{package}")
        if folder is not None and folder.issym():
            return has_licence(folder.linkname)
        return f"usr/share/doc/{package}/copyright" in image.files

    assert [package for package in packages if not has_licence(package)] == []


def test_all_python_modules_of_the_image_are_compiled(image: Contents) -> None:
    code = [path for path in image.files if path.endswith(".py") and path.startswith("usr/lib/")]
    missing = []
    for path in code:
        source = Path(path)
        if str(source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc") not in image.files:
            missing.append(path)
    assert len(code) > 1000
    assert missing == []


COMPLETE = ("--base", "/dev/null", "--debs", "/etc/dpkg", "image.tar")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "usage: packaging/image [--base TAR] [--debs FOLDER] OUT.tar.zst"),
        (("image.iso",), "usage: packaging/image [--base TAR] [--debs FOLDER] OUT.tar.zst"),
        (("--layer", "x", "image.tar"), "unknown option --layer"),
        (("--base", "image.tar"), "image.tar does not exist"),
        (("--base", "/dev/null"), "usage: packaging/image"),
        pytest.param(COMPLETE, "/etc/dpkg has no package cdigen", marks=pytest.mark.needs_root),
        pytest.param(COMPLETE, "needs root", marks=pytest.mark.needs_user),
    ],
)
def test_packaging_image_rejects_wrong_arguments(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    words = tuple(str(tmp_path / word) if word.startswith("image.") else word for word in words)
    command = [str(REPOSITORY / "packaging/image"), *words]
    done = captured(command)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []
