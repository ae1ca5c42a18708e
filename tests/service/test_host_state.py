"""The state of a host is outdated after every change, even immediately after the state was read."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import NAME, Host, spec
from support.nri.serving import settled_state
from support.waiting import until

from cdigen.service.host_state import HostSources, read_host_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cdigen.service.host_state import HostState


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
    """Replace FOLDER by an empty folder with the same times, as tools that copy folders do."""
    status = folder.stat()
    folder.rmdir()
    folder.mkdir()
    os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_makes_the_state_outdated(here: Host, change: str) -> None:
    state = settled_state(here.root)
    assert state.is_current()
    CHANGES[change](here)
    assert not state.is_current()


def test_a_change_is_detected_although_the_time_of_the_folder_was_set_back(here: Host) -> None:
    before = here.specs.stat()
    state = settled_state(here.root)
    here.write_spec(["2"])
    os.utime(here.specs, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not state.is_current()


def test_a_link_to_a_spec_directory_is_resolved_within_the_tree_of_the_host(here: Host) -> None:
    tree = str(here.root)
    host_sources = HostSources(
        host=tree, specs=tree, spec_dirs=("/var/run/cdi",), runs=tree, run_dir="/run/cdigen"
    )
    state = current(host_sources)
    assert state.specs.resolve("nvidia.com/gpu=0").ok
    assert state.is_current()
    here.write_spec(["2"])
    assert not state.is_current()


def test_a_spec_with_ten_thousand_devices_is_read(here: Host) -> None:
    here.write_spec([f"d{number}" for number in range(10_000)])
    assert len(settled_state(here.root).specs.devices) == 10_000


def current(host_sources: HostSources) -> HostState:
    """Read the state until the files are so old that their times show the next change; return the state."""
    states: list[HostState] = []

    def is_current() -> bool:
        states.append(read_host_state(host_sources, library="1.0.1"))
        return states[-1].is_current()

    assert until(is_current)
    return states[-1]


def sources(root: Path) -> HostSources:
    tree = str(root)
    return HostSources(host=tree, specs=tree, spec_dirs=("/etc/cdi",), runs=tree, run_dir="/run/cdigen")


def changes_are_detected(root: Path, times: int) -> None:
    """Replace a spec, read the state, and replace the spec again at once; the state must be outdated."""
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


def test_a_change_within_the_same_clock_tick_as_the_previous_change_is_detected(tmp_path: Path) -> None:
    changes_are_detected(tmp_path, 50)


@pytest.mark.usefixtures("own_mounts")
def test_a_change_is_detected_on_file_systems_whose_times_are_clock_ticks(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "ramfs", "none", str(tmp_path)], check=True)
    try:
        changes_are_detected(tmp_path, 50)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_the_state_stays_current_until_the_inventory_is_replaced(tmp_path: Path) -> None:
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


def test_an_inventory_is_parsed_again_only_after_a_change(here: Host) -> None:
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
