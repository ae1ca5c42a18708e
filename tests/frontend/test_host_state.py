"""The state of a host, and whether it still counts: changes are seen, however soon they follow."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import NAME, Host, spec
from support.nri.serving import settled
from support.waiting import until

from cdigen.frontend.host_state import HostSources, read_host_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cdigen.frontend.host_state import HostState


@pytest.fixture
def here(tmp_path: Path) -> Host:
    made = Host(tmp_path / "host")
    made.write_spec()
    made.write_inventory()
    return made


CHANGES: dict[str, Callable[[Host], object]] = {
    "a spec is replaced": lambda here: here.write_spec(["2"]),
    "a spec is added": lambda here: here.write_spec(["2"], file="more.json"),
    "a spec is removed": lambda here: (here.specs / NAME).unlink(),
    "a spec is moved away": lambda here: (here.specs / NAME).rename(here.root / NAME),
    "a spec directory is removed": lambda here: (here.root / "etc/cdi").rmdir(),
    "a spec directory is replaced": lambda here: replaced(here.root / "etc/cdi"),
    "another driver runs": lambda here: (here.root / "sys/module/nvidia/version").write_text("9.9"),
    "the inventory is replaced": lambda here: here.write_inventory(),
    "the inventory is removed": lambda here: here.inventory.unlink(),
}


def replaced(folder: Path) -> None:
    """Put a folder with the same times into its place, as tools that copy folders do."""
    status = folder.stat()
    folder.rmdir()
    folder.mkdir()
    os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_makes_it_out_of_date(here: Host, change: str) -> None:
    state = settled(here.root)
    assert state.is_current()
    CHANGES[change](here)
    assert not state.is_current()


def test_a_folder_whose_time_was_set_back_has_changed_all_the_same(here: Host) -> None:
    before = here.specs.stat()
    state = settled(here.root)
    here.write_spec(["2"])
    os.utime(here.specs, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not state.is_current()


def test_a_spec_directory_behind_a_link_is_that_of_the_host_it_is_on(here: Host) -> None:
    tree = str(here.root)
    places = HostSources(host=tree, specs=tree, spec_dirs=("/var/run/cdi",), runs=tree, run_dir="/run/cdigen")
    state = current(places)
    assert state.specs.resolve("nvidia.com/gpu=0").ok
    assert state.is_current()
    here.write_spec(["2"])
    assert not state.is_current()


def test_ten_thousand_devices_are_state_in_a_moment(here: Host) -> None:
    here.write_spec([f"d{number}" for number in range(10_000)])
    assert len(settled(here.root).specs.devices) == 10_000


def current(places: HostSources) -> HostState:
    """Return the state of a host once its files are so old that their times show the next change."""
    states: list[HostState] = []

    def is_current() -> bool:
        states.append(read_host_state(places, library="1.0.1"))
        return states[-1].is_current()

    assert until(is_current)
    return states[-1]


def sources(root: Path) -> HostSources:
    tree = str(root)
    return HostSources(host=tree, specs=tree, spec_dirs=("/etc/cdi",), runs=tree, run_dir="/run/cdigen")


def changes_are_seen(root: Path, times: int) -> None:
    """Replace a spec, look, and replace it again at once: what was looked at must never count as current."""
    folder = root / "etc/cdi"
    folder.mkdir(parents=True)
    for number in range(times):
        for age in ("old", "new"):
            new = folder / ".new"
            new.write_text(json.dumps(spec([f"{age}{number}"])))
            new.rename(folder / NAME)
            if age == "old":
                state = read_host_state(sources(root), library="1.0.1")
        assert not state.is_current(), number


def test_a_second_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    changes_are_seen(tmp_path, 50)


@pytest.mark.usefixtures("own_mounts")
def test_it_is_seen_on_file_systems_whose_times_go_in_ticks(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "ramfs", "none", str(tmp_path)], check=True)
    try:
        changes_are_seen(tmp_path, 50)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_what_nobody_has_touched_stays_current_and_an_inventory_counts_as_well(tmp_path: Path) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "run/cdigen").mkdir(parents=True)
    (tmp_path / "run/cdigen/inventory.json").write_text("{}")
    state = current(sources(tmp_path))
    assert state.is_current()
    (tmp_path / "run/cdigen/inventory.json.new").write_text("{}")
    assert state.is_current()
    (tmp_path / "run/cdigen/inventory.json.new").rename(tmp_path / "run/cdigen/inventory.json")
    assert not state.is_current()


def again(before: HostState, root: Path) -> HostState:
    return read_host_state(sources(root), library="1.0.1", before=before)


def test_an_inventory_is_taken_apart_again_only_where_something_about_it_has_changed(here: Host) -> None:
    first = read_host_state(sources(here.root), library="1.0.1")
    second = again(first, here.root)
    assert second.inventory is first.inventory
    here.write_inventory(driver="560.1")
    third = again(second, here.root)
    assert third.inventory_file == second.inventory_file
    assert third.inventory == read_host_state(sources(here.root), library="1.0.1").inventory
    assert third.inventory != second.inventory
    here.inventory.write_bytes(b"{}")
    assert "cannot be read" in again(third, here.root).inventory.problem
    here.inventory.unlink()
    assert "there is no inventory" in again(third, here.root).inventory.problem
