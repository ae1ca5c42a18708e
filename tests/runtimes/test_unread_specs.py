"""The daemon searches for runtimes that cannot read its specs. It rarely repeats the query of a binary."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from cdigen.host.root import Root
from cdigen.runtimes import installed
from cdigen.runtimes.unread_specs import RETRY_S, UnreadSpecs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = {"/etc/cdi/nvidia.com-gpu.json": "0.6.0"}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, other_users: None) -> Iterator[Path]:  # noqa: ARG001 - only root's files are trusted
    made = Path(tempfile.mkdtemp(dir="/var/lib"))
    monkeypatch.setattr(installed, "FOLDERS", (str(made),))
    yield made
    shutil.rmtree(made)


class Host:
    """A host whose podman adds a line to ``queries``, and reports RELEASE if ``ready`` exists."""

    def __init__(self, folder: Path, release: str = "4.1.1") -> None:
        self.now_s = 0.0
        self.ready = folder / "ready"
        self._queries = folder / "queries"
        self._unread = UnreadSpecs(lambda: self.now_s)
        podman = folder / "podman"
        podman.write_text(
            f"#!/bin/sh\necho >>{self._queries}\n[ -e {self.ready} ] && echo podman version {release}\n"
        )
        podman.chmod(0o755)

    def messages(self) -> list[str]:
        return [finding.message for finding in self._unread.findings(Root(), VERSIONS)]

    def hints(self, versions: dict[str, str], *targets: str) -> list[str]:
        return [finding.hint for finding in self._unread.findings(Root(), versions, targets)]

    def severities(self) -> list[str]:
        return [finding.severity for finding in self._unread.findings(Root(), VERSIONS)]

    def queries(self) -> int:
        return len(self._queries.read_text().splitlines())


def test_a_query_without_a_version_is_repeated_after_a_minute(folder: Path) -> None:
    host = Host(folder)
    assert host.messages() == []
    host.ready.touch()
    host.now_s = RETRY_S - 1
    assert (host.messages(), host.queries()) == ([], 1)
    host.now_s = RETRY_S
    (message,) = host.messages()
    assert "podman 4.1.1 ignores this file" in message
    assert host.queries() == 2


def test_a_version_is_queried_once(folder: Path) -> None:
    host = Host(folder)
    host.ready.touch()
    first = host.messages()
    host.now_s = 100 * RETRY_S
    assert host.messages() == first != []
    assert host.queries() == 1


def test_the_hint_keeps_the_releases_of_the_key_target(folder: Path) -> None:
    host = Host(folder)
    host.ready.touch()
    assert host.hints(VERSIONS, "docker-28", "podman-4.1.1") == ["target: [docker-28, podman-4.1.1]"]


def test_for_a_kind_with_its_own_target_only_a_runtime_without_cdi_is_reported(folder: Path) -> None:
    own = {"/etc/cdi/nvidia.com-gpu.json": ""}
    host = Host(folder)
    host.ready.touch()
    assert host.hints(own) == []
    older = Host(folder, "4.0.1")
    assert older.hints(own) == ["install podman 4.3 or newer"]
    assert older.hints({}) == []


def test_a_spec_that_no_installed_runtime_reads_is_an_error(folder: Path) -> None:
    host = Host(folder)
    host.ready.touch()
    assert host.severities() == ["error"]
    docker = folder / "dockerd"
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    assert host.severities() == ["warning"]


def test_singularity_3_reads_no_specs_and_apptainers_link_is_not_singularity(folder: Path) -> None:
    """The release of https://github.com/sylabs/singularity/issues/1850 is 3.11.3."""
    for name, text in (("apptainer", "apptainer version 1.3.0"), ("ce", "singularity-ce version 3.11.3")):
        (folder / name).write_text(f"#!/bin/sh\necho {text}\n")
        (folder / name).chmod(0o755)
    (folder / "singularity").symlink_to("apptainer")
    unread = UnreadSpecs()
    (found,) = unread.findings(Root(), VERSIONS)
    assert found.message == f"{folder}/apptainer: apptainer 1.3.0 reads no CDI specs"
    (folder / "singularity").unlink()
    (folder / "ce").rename(folder / "singularity")
    (_, found) = unread.findings(Root(), VERSIONS)
    assert found.message == f"{folder}/singularity: singularity 3.11.3 reads no CDI specs"
    assert found.hint.startswith("install SingularityCE 4.0 or newer, and request devices with 'singularity ")
