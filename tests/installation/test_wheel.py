"""The wheel and the source archive have the expected contents, and their builds are reproducible."""

import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.abilities import cannot_run, tool
from support.installation.wheels import build
from support.paths import REPOSITORY
from support.processes import captured

# Files that the wheel lacks: they build and check releases, or are starters of 'make install'.
SOURCES_ONLY = {"cdigen.starter", "floors.py", "help", "kubectl-inspect-gpushare.starter"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_all_files_of_etc_for_hosts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if name.startswith("cdigen/etc/")}
    listed = {
        f"cdigen/{path.relative_to(REPOSITORY)}": path.read_bytes()
        for path in (REPOSITORY / "etc").rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not SOURCES_ONLY & set(path.relative_to(REPOSITORY / "etc").parts)
    }
    assert packed == listed


def test_the_wheel_has_the_schemas_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "cdigen/schemas/output/install-service.schema.json" in names
    release = wheel.name.removesuffix("-py3-none-any.whl")
    assert {name.split("/")[0] for name in names} == {"cdigen", f"{release}.data", f"{release}.dist-info"}


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_builds_in_different_folders_are_identical(tmp_path: Path, target: str) -> None:
    tracked = captured(
        [tool("git"), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY
    )
    names = [name for name in tracked.stdout.split("\0") if name and (REPOSITORY / name).is_file()]
    if not names:
        cannot_run("these sources are not a git clone")
    made = []
    for order, top in ((1, tmp_path / "one"), (-1, tmp_path / "another")):
        for name in names[::order]:
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, top / name)
            (top / name).chmod(
                0o755 if (REPOSITORY / name).stat().st_mode & 0o100 else 0o600 if order < 0 else 0o644
            )
        folder = tmp_path / f"made-{top.name}"
        folder.mkdir()
        made.append(build(target, folder, sources=top).read_bytes())
    assert made[0] == made[1]


def test_the_source_archive_has_all_files_that_make_needs(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        ".ci/run",
        ".github/workflows/ci.yml",
        "MAINTAINERS",
        "Makefile",
        "etc/install",
        "requirements-build.lock",
        "requirements-dev.lock",
        "requirements-release.lock",
        "requirements.lock",
        "schemas/config.schema.json",
        "README.md",
    } <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", ".git/"))]
