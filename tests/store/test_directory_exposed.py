"""A directory that other users may write to is refused for state and views, and is a finding for specs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.store import views
from support.store.users import ALICE, MALLORY, ROOT, by, folder

from cdigen.model.errors import StoreError
from cdigen.store import specs
from cdigen.store.views import pruning

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KIND = "nvidia.com/gpu"


def writable_by_everyone(path: Path) -> None:
    path.chmod(0o777)


def sticky(path: Path) -> None:
    path.chmod(0o1777)


def of_a_group(path: Path) -> None:
    os.chown(path, ROOT, ALICE)
    path.chmod(0o775)


def of_a_user(path: Path) -> None:
    os.chown(path, ALICE, ALICE)


EXPOSED = [writable_by_everyone, sticky, of_a_group, of_a_user]


def publish(top: Path) -> specs.PublishedSpec:
    return specs.publish(
        f"{top}/above/specs",
        "x.json",
        b"{}",
        kind=KIND,
        state_dir=f"{top}/above/state",
        check=lambda _: None,
    )


def withdraw(top: Path) -> str:
    return specs.withdraw(f"{top}/above/specs", "x.json", state_dir=f"{top}/above/state")


def prune(top: Path) -> object:
    return pruning.prune(f"{top}/above/state", spec_dirs=())


@pytest.mark.parametrize("expose", EXPOSED)
@pytest.mark.parametrize("work", [publish, withdraw, prune])
def test_a_state_directory_that_other_users_may_write_to_is_refused(
    work: Callable[[Path], object], expose: Callable[[Path], None], top: Path
) -> None:
    publish(top)
    (top / "above/state/views").mkdir()
    before = sorted(top.rglob("*"))
    expose(top / "above/state")
    with pytest.raises(StoreError, match=r"state directory .*/state (belongs to uid|is writable by)"):
        work(top)
    assert sorted(top.rglob("*")) == before


@pytest.mark.parametrize("expose", EXPOSED)
@pytest.mark.parametrize("exposed", ["var/lib/cdigen", "var/lib/cdigen/views"])
def test_no_view_is_made_in_a_directory_that_other_users_may_write_to(
    exposed: str, expose: Callable[[Path], None], top: Path
) -> None:
    host = views.driver(top / "host")
    (host / "var/lib/cdigen/views").mkdir(parents=True)
    expose(host / exposed)
    with pytest.raises(StoreError, match=rf"directory {host / exposed} (belongs to uid|is writable by)"):
        views.publish(host, copies=True)
    assert list((host / "var/lib/cdigen/views").iterdir()) == []


@pytest.mark.parametrize("expose", EXPOSED)
@pytest.mark.parametrize("exposed", ["var/lib/cdigen", "var/lib/cdigen/views"])
def test_no_view_is_found_in_a_directory_that_other_users_may_write_to(
    exposed: str, expose: Callable[[Path], None], top: Path
) -> None:
    host = views.driver(top / "host")
    views.publish(host, copies=True)
    assert views.find(host)
    expose(host / exposed)
    assert views.find(host) is None


@pytest.mark.parametrize("expose", EXPOSED)
def test_a_spec_is_written_to_an_exposed_spec_directory_with_a_warning(
    expose: Callable[[Path], None], top: Path
) -> None:
    specs = folder(folder(top / "above", mode=0o755) / "specs", mode=0o755)
    expose(specs)
    done = publish(top)
    assert done.result == "written"
    (finding,) = done.findings
    assert (finding.severity, finding.rule) == ("warning", "spec-directory-exposed")
    assert finding.message.startswith(f"{specs} ")
    assert finding.hint


def test_a_state_directory_of_root_in_a_folder_of_a_user_is_accepted(top: Path) -> None:
    """An example is `sudo cdigen generate --root ./rootfs --write`."""
    folder(top / "above", ALICE, 0o775)
    assert publish(top).findings == ()
    os.rename(top / "above/state", top / "above/gone")
    folder(top / "above/state", ALICE, 0o755)
    with pytest.raises(StoreError, match="belongs to uid"):
        publish(top)


def test_a_spec_directory_of_root_in_a_sticky_folder_has_no_finding(top: Path) -> None:
    folder(top / "above", mode=0o1777)
    assert publish(top).findings == ()


def test_a_user_may_write_specs_to_folders_that_the_user_owns(top: Path) -> None:
    folder(top / "above", ALICE, 0o775)

    def work() -> None:
        done = publish(top)
        if done.findings:
            raise StoreError(done.findings[0].message)

    assert by(ALICE, work) == ""
    assert (top / "above/specs/x.json").stat().st_uid == ALICE
    assert f"{top}/above/state belongs to uid {ALICE}" in by(MALLORY, work)
