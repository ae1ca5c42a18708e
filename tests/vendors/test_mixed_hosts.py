"""NVIDIA's, AMD's and Intel's GPUs in one host: three kinds, three files, each vendor's trouble its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.host import NAME as NVIDIAS
from support.daemon.host import Host, daemon
from support.hosts import amd_tree, intel_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")

AMDS, INTELS = "amd.com-gpu.json", "intel.com-gpu.json"
IGPU = f"sys/devices/pci0000:00/{intel_tree.IGPU}"
FILES = {"nvidia": NVIDIAS, "amd": AMDS, "intel": INTELS}
# NVIDIA's two have the cards 1 and 2.
AMD = (replace(amd_tree.radeon(), card=3, render=131),)
INTEL = (intel_tree.gpu(0, intel_tree.IGPU, "0xa780", "i915", pci_class=intel_tree.VGA),)


def lay_others(root: Path) -> None:
    """Lay AMD's GPU, whose nodes are card3 and renderD131, and Intel's, card0 and renderD128."""
    amd_tree.write(root, AMD)
    intel_tree.lay(root, *INTEL)


@pytest.fixture
def host(host: Path) -> Path:
    """Return a host with two of NVIDIA's GPUs, one of AMD's and one of Intel's."""
    lay_others(host)
    return host


def specs(root: Path) -> dict[str, bytes]:
    folder = root / "run/cdi"
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")} if folder.exists() else {}


def nodes(content: bytes, device: str = "all") -> list[str]:
    document: dict[str, Any] = json.loads(content)
    edits = next(one["containerEdits"] for one in document["devices"] if one["name"] == device)
    return [node["path"] for node in edits["deviceNodes"]]


def test_each_vendor_has_a_kind_and_a_file_of_its_own(cdigen: Run, host: Path) -> None:
    assert cdigen("generate", "--root", host, "--write").code == 0
    written = specs(host)
    assert written.keys() == set(FILES.values())
    assert {json.loads(content)["kind"] for content in written.values()} == {
        "nvidia.com/gpu",
        "amd.com/gpu",
        "intel.com/gpu",
    }
    # `all` means all of one vendor's.
    assert nodes(written[AMDS]) == ["/dev/dri/card3", "/dev/dri/renderD131"]
    assert [node for node in nodes(written[INTELS]) if "by-path" not in node] == [
        "/dev/dri/card0",
        "/dev/dri/renderD128",
    ]
    ours = [node for node in nodes(written[NVIDIAS]) if "by-path" not in node]
    assert ours == [
        *("/dev/dri/card1", "/dev/dri/card2", "/dev/dri/renderD129", "/dev/dri/renderD130"),
        *("/dev/nvidia0", "/dev/nvidia1"),
    ]


def test_a_spec_is_the_same_whoever_else_is_there(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    together = specs(host)
    for vendor, file in FILES.items():
        alone = cdigen("generate", "--root", host, "--vendor", vendor)
        assert (alone.code, alone.out.encode()) == (0, together[file])


def test_inspect_shows_them_one_after_the_other_and_list_all_their_devices(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    shown = cdigen("inspect", "--root", host).out
    places = [shown.index(f"{vendor}: driver ") for vendor in FILES]
    assert places == sorted(places)
    rows = cdigen("list", "--root", host, "--json").json
    assert {row["kind"] for row in rows} == {"nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu"}
    assert all(row["usable"] for row in rows)


def test_one_number_in_three_kinds_is_three_devices(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    given = [nodes(content, "0") for content in specs(host).values()]
    every = [node for paths in given for node in paths]
    assert len(given) == 3
    assert len(every) == len(set(every))


def test_printing_where_several_makers_have_gpus_asks_which(cdigen: Run, host: Path) -> None:
    done = cdigen("generate", "--root", host)
    assert done.failed(
        2, "3 kinds", "nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu", "--kind", "--output-dir"
    )
    assert cdigen("generate", "--root", host, "--kind", "amd.com/gpu").json["kind"] == "amd.com/gpu"


# One vendor broken at a time: what is done to the host.


def _tell_another_version(root: Path) -> None:
    file = root / "proc/driver/nvidia/version"
    file.write_text(file.read_text().replace("550.163.01", "550.200.07"))


def _remove(*paths: str) -> Callable[[Path], None]:
    def remove(root: Path) -> None:
        for path in paths:
            target = root / path
            shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()

    return remove


def _loop(path: str) -> Callable[[Path], None]:
    def loop(root: Path) -> None:
        shutil.rmtree(root / path)
        (root / path).symlink_to((root / path).name)

    return loop


BREAKAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "nvidia's module is of another version": ("nvidia", _tell_another_version),
    "nvidia's module is not loaded": ("nvidia", _remove("proc/driver/nvidia")),
    "nvidia's nodes are gone": ("nvidia", _remove("dev/nvidiactl", "dev/nvidia0", "dev/nvidia1")),
    "nvidia's libraries are gone": ("nvidia", _remove("usr/lib")),
    "amd's module is not loaded": ("amd", _remove("sys/module/amdgpu")),
    "amd's driver has no device": ("amd", _remove("sys/bus/pci/drivers/amdgpu")),
    "amd's nodes are gone": ("amd", _remove("dev/dri/card3", "dev/dri/renderD131")),
    "amd's folder leads in a circle": ("amd", _loop("sys/bus/pci/drivers/amdgpu")),
    "intel's driver has no device": (
        "intel",
        _remove("sys/bus/pci/drivers/i915", f"{IGPU}/driver", f"{IGPU}/drm"),
    ),
    "intel's nodes are gone": ("intel", _remove("dev/dri/card0", "dev/dri/renderD128")),
    "intel's folder leads in a circle": ("intel", _loop(IGPU)),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_what_breaks_one_vendor_leaves_the_specs_of_the_others_as_they_are(
    cdigen: Run, host: Path, breakage: str
) -> None:
    cdigen("generate", "--root", host, "--write")
    before = specs(host)
    broken, act = BREAKAGES[breakage]
    act(host)
    shutil.rmtree(host / "run/cdi")
    done = cdigen("generate", "--root", host, "--write")
    assert "Traceback" not in done.err
    after = specs(host)
    assert after == {name: content for name, content in before.items() if name != FILES[broken]}
    assert done.code == 0
    named = cdigen("generate", "--root", host, "--write", "--strict", "--vendor", broken)
    assert named.code == 3


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_the_specs_of_a_vendor_that_is_gone_are_withdrawn_and_no_others(
    cdigen: Run, host: Path, breakage: str
) -> None:
    cdigen("generate", "--root", host, "--write")
    before = specs(host)
    broken, act = BREAKAGES[breakage]
    act(host)
    cdigen("generate", "--root", host, "--write", "--withdraw")
    assert specs(host) == {name: content for name, content in before.items() if name != FILES[broken]}


# The daemon.


def test_the_daemon_keeps_two_while_the_third_is_broken_and_serves_it_again(tmp_path: Path) -> None:
    host = Host(tmp_path / "host").make()
    lay_others(host.root)
    host.configure(settle_timeout_s=0.3)
    with daemon(host) as running:
        running.rests()
        before = specs(host.root)
        assert before.keys() == set(FILES.values())
        for vendor, path in (("nvidia", "dev/nvidiactl"), ("amd", "dev/dri"), ("intel", "dev/dri")):
            kept = _taken_away(host.root, vendor, path)
            running.sees(lambda vendor=vendor: FILES[vendor] not in specs(host.root))  # type: ignore[misc]
            assert specs(host.root) == {name: each for name, each in before.items() if name != FILES[vendor]}
            for place, aside in kept.items():
                aside.rename(place)
            running.sees(lambda: specs(host.root) == before)
        running.sees(lambda: [one["state"] for one in running.status["vendors"]] == ["ready"] * 3)


def _taken_away(root: Path, vendor: str, path: str) -> dict[Path, Path]:
    """Take a vendor's nodes away; returns where they were, and where they are."""
    names = {"amd": ("card3", "renderD131"), "intel": ("card0", "renderD128"), "nvidia": ("",)}[vendor]
    moved = {}
    for name in names:
        place = root / path / name
        moved[place] = root / f"{vendor}-{name or 'node'}"
        place.rename(moved[place])
    return moved
