"""All packages contain the documentation without dead links, and the addresses of the project.

The tests of each package (test_wheel.py, e2e/test_packages_*.py, e2e/test_image_*.py) check the other files.
"""

import re
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from support.containers.image_archive import contents
from support.installation.installing import done, make
from support.installation.wheels import build
from support.paths import REPOSITORY
from support.processes import succeeded

FOLDER = "usr/share/doc/cdigen"
WORDS = {"README.md", "SECURITY.md", "docs", "examples", "schemas", "packaging"}
LINK = re.compile(r"""\]\(([^)#:\s]+)(?:\#[^)]*)?\)|(?:src|srcset|href)="([^":]+)\"""", re.VERBOSE)


@pytest.fixture(scope="module")
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the documentation in a package."""
    tree = tmp_path_factory.mktemp("package")
    done(make("install-documentation", tree))
    return tree / FOLDER


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return table


def relative_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_package_has_pages_examples_alert_rules_manifests_and_schemas(documentation: Path) -> None:
    assert {path.name for path in documentation.iterdir()} >= WORDS
    assert {
        "docs/README.md",
        "examples/monitoring/alerts.yaml",
        "packaging/kubernetes/base/daemonset.yaml",
        "schemas/config.schema.json",
    } <= relative_files(documentation)
    assert not [path for path in documentation.rglob("*") if path.name == "__pycache__"]


def test_no_link_in_a_package_is_dead(documentation: Path) -> None:
    pages = [path for path in documentation.rglob("*.md") if path.name != "CHANGELOG.md"]
    assert len(pages) > 20
    dead = []
    for page in pages:
        for match in LINK.finditer(page.read_text(encoding="utf-8")):
            target = (page.parent / (match[1] or match[2])).resolve()
            if not target.is_relative_to(documentation) or not target.exists():
                dead.append((page.relative_to(documentation).as_posix(), match[0]))
    assert dead == []


def test_the_wheel_has_the_files_of_the_other_packages(documentation: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    (prefix,) = {name.partition("/share/")[0] for name in names if ".data/" in name}
    packed = {name.removeprefix(f"{prefix}/share/doc/cdigen/") for name in names if name.startswith(prefix)}
    assert packed == relative_files(documentation)


@pytest.mark.parametrize("file", ["debian/cdigen.install", "rpm/cdigen.spec"])
def test_a_package_of_a_distribution_lists_every_part_of_the_documentation(
    documentation: Path, file: str
) -> None:
    patterns = re.findall(
        rf"^(?:%doc )?/?{FOLDER}/(\S+)$", (REPOSITORY / "packaging" / file).read_text(), re.MULTILINE
    )
    parts = {path.name for path in documentation.iterdir()}
    assert {part for part in parts if not any(fnmatch(part, pattern) for pattern in patterns)} == set()


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_the_wheel_has_types_classifiers_and_addresses(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert "cdigen/py.typed" in archive.namelist()
    fields = metadata(wheel)
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= set(fields.get_all("Classifier", []))
    addresses = {f"{name}, {address}" for name, address in project()["urls"].items()}
    assert addresses == set(fields.get_all("Project-URL", []))


def test_all_addresses_are_of_one_host() -> None:
    urls: dict[str, str] = project()["urls"]
    home = urls["Homepage"]
    assert {address for address in urls.values() if not f"{address}/".startswith(f"{home}/")} == set()


def test_packages_of_distributions_have_the_addresses_of_the_project() -> None:
    urls = project()["urls"]
    control = message_from_bytes((REPOSITORY / "packaging/debian/control").read_bytes())
    assert (control["Homepage"], control["Vcs-Git"]) == (urls["Homepage"], urls["Source"])
    assert control["Vcs-Browser"] == urls["Source"]
    fields = dict(
        re.findall(r"^(\w+): (.*)$", (REPOSITORY / "packaging/rpm/cdigen.spec").read_text(), re.MULTILINE)
    )
    assert (fields["URL"], fields["VCS"]) == (urls["Homepage"], urls["Source"])


def test_the_image_has_labels_with_licence_time_and_addresses(tmp_path: Path) -> None:
    layer, image = tmp_path / "layer.tar", tmp_path / "image.tar"
    with tarfile.open(layer, "w") as archive:
        archive.add(REPOSITORY / "README.md", "README.md")
    words = ("localhost/cdigen", "1.2.3", "amd64", image, layer)
    program = REPOSITORY / "packaging/oci_archive.py"
    succeeded([sys.executable, program, *words], env={"SOURCE_DATE_EPOCH": "0"})
    (tmp_path / "layout").mkdir()
    labels = contents(image, tmp_path / "layout").config["config"]["Labels"]
    urls = project()["urls"]
    assert labels == {
        "org.opencontainers.image.title": "cdigen",
        "org.opencontainers.image.description": "makes a host's GPUs available to containers",
        "org.opencontainers.image.authors": "The cdigen maintainers",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": "1.2.3",
        "org.opencontainers.image.created": "1970-01-01T00:00:00Z",
        "org.opencontainers.image.url": urls["Homepage"],
        "org.opencontainers.image.documentation": urls["Documentation"],
        "org.opencontainers.image.source": urls["Source"],
    }
