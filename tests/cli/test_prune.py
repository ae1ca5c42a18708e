"""`cdigen prune` on views and specs of a host's tree."""

import os
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.command.fixtures import Run
from support.store import views
from support.store.views import old, old_view

FIRST_NAMESPACE = "pid:[4026531836]"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return views.driver(tmp_path / "host")


@pytest.fixture
def sees_all(other_users: None) -> None:  # noqa: ARG001 - only root reads the mounts of other users' processes
    """Skip the test if prune cannot read every process of the machine: it then removes nothing."""
    if os.readlink("/proc/self/ns/pid") != FIRST_NAMESPACE:
        cannot_run("mounts of all processes are visible only outside of containers")


@pytest.mark.usefixtures("sees_all")
def test_prune_removes_unused_views_and_prints_the_reason_for_each_kept_view(cdigen: Run, base: Path) -> None:
    unused, used, fresh = (
        old_view(base, library=b"1"),
        old_view(base, library=b"22"),
        old_view(base, library=b"333"),
    )
    os.utime(Path(views.state(base)) / "views" / fresh)
    spec = views.put(base, "/etc/cdi/x.json", f"/var/lib/cdigen/views/{used}/lib64".encode())
    old(spec.parent)
    done = cdigen("prune", "--root", base, "--json")
    assert (done.code, done.err) == (0, "")
    assert {row["view"]: (row["result"], row["reason"].split(" ")[0]) for row in done.json} == {
        unused: ("removed", "no"),
        used: ("kept", str(spec)),
        fresh: ("kept", "it"),
    }
    assert {row["view"] for row in done.json if row["changed"]} == {unused}
    assert views.left(base) == sorted([used, fresh])


@pytest.mark.usefixtures("sees_all")
def test_a_dry_run_shows_a_table_and_removes_nothing(cdigen: Run, base: Path) -> None:
    name = old_view(base)
    done = cdigen("prune", "--root", base, "--dry-run")
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()] == [["VIEW", "RESULT"], [name, "removable"]]
    assert views.left(base) == [name]


def test_prune_reports_that_there_is_nothing_to_remove(cdigen: Run, base: Path) -> None:
    done = cdigen("prune", "--root", base)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"cdigen: nothing to remove in {base}/var/lib/cdigen/views\n"
    assert cdigen("prune", "--root", base, "--json", "--quiet").json == []


@pytest.mark.parametrize("place", ["given", "etc/cdi", "run/cdi", "srv/cdi"])
def test_prune_keeps_views_that_specs_in_any_spec_directory_use(cdigen: Run, base: Path, place: str) -> None:
    name = old_view(base)
    for folder in ("run", "given"):
        (base / folder).mkdir()
    (base / "var/run").symlink_to("../run")
    views.put(base, "/etc/cdigen/config.yaml", b"spec_dirs: [/srv/cdi]\n")
    spec = views.put(base, f"/{place}/foreign.yaml", f"hostPath: /var/lib/cdigen/views/{name}".encode())
    old(spec.parent)
    done = cdigen("prune", "--root", base, "--spec-dir", base / "given", "--json")
    assert done.json == [{"view": name, "result": "kept", "changed": False, "reason": f"{spec} names it"}]
    assert done.err.startswith("cdigen: nothing to remove")


def test_prune_uses_the_configured_state_directory(cdigen: Run, base: Path) -> None:
    views.put(base, "/etc/cdigen/config.yaml", b"state_dir: /srv/state\n")
    assert f"nothing to remove in {base}/srv/state/views" in cdigen("prune", "--root", base).err


def test_a_view_directory_that_is_a_link_is_refused(cdigen: Run, base: Path) -> None:
    (base / "var/lib/cdigen").mkdir(parents=True)
    (base / "var/lib/cdigen/views").symlink_to("/tmp")
    assert cdigen("prune", "--root", base).failed(5, "view directory", "is a symlink")


@pytest.mark.usefixtures("sees_all")
def test_a_view_that_cannot_be_removed_has_the_exit_code_of_a_failed_write(cdigen: Run, base: Path) -> None:
    name = old_view(base)
    folder = Path(views.state(base)) / "views"
    flagged = os.system(f"chattr +i {folder}/{name} 2>/dev/null")
    if flagged != 0:
        cannot_run("this file system has no immutable flag")
    try:
        done = cdigen("prune", "--root", base)
    finally:
        os.system(f"chattr -i {folder}/{name} {folder}/.cdigen-* 2>/dev/null")
    assert done.failed(5, name, "cannot be removed: Operation not permitted", "lsattr")
    assert "failed" in done.out
    assert views.left(base) == [name]
