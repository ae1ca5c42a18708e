"""GPUs of NVIDIA, AMD and Intel in one host: three kinds, three files, and separate failures."""

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
# NVIDIA's two GPUs have the nodes card1 and card2.
AMD = (replace(amd_tree.radeon(), card=3, render=131),)
INTEL = (intel_tree.gpu(0, intel_tree.IGPU, "0xa780", "i915", pci_class=intel_tree.VGA),)


def lay_others(root: Path) -> None:
    """Write AMD's GPU with card3 and renderD131, and Intel's GPU with card0 and renderD128."""
    amd_tree.write(root, AMD)
    intel_tree.lay(root, *INTEL)


@pytest.fixture
def host(host: Path) -> Path:
    """Return a host with two GPUs of NVIDIA, one GPU of AMD and one GPU of Intel."""
    lay_others(host)
    return host


def specs(root: Path) -> dict[str, bytes]:
    folder = root / "run/cdi"
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")} if folder.exists() else {}


def nodes(content: bytes, device: str = "all") -> list[str]:
    document: dict[str, Any] = json.loads(content)
    edits = next(one["containerEdits"] for one in document["devices"] if one["name"] == device)
    return [node["path"] for node in edits["deviceNodes"]]


def test_each_vendor_has_a_separate_kind_and_spec_file(cdigen: Run, host: Path) -> None:
    assert cdigen("generate", "--root", host, "--write").code == 0
    written = specs(host)
    assert written.keys() == set(FILES.values())
    assert {json.loads(content)["kind"] for content in written.values()} == {
        "nvidia.com/gpu",
        "amd.com/gpu",
        "intel.com/gpu",
    }
    # `all` means all devices of one vendor.
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


def test_a_spec_does_not_depend_on_other_vendors(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    together = specs(host)
    for vendor, file in FILES.items():
        alone = cdigen("generate", "--root", host, "--vendor", vendor)
        assert (alone.code, alone.out.encode()) == (0, together[file])


def test_inspect_shows_vendors_in_order_and_list_shows_the_devices_of_all_vendors(
    cdigen: Run, host: Path
) -> None:
    cdigen("generate", "--root", host, "--write")
    shown = cdigen("inspect", "--root", host).out
    places = [shown.index(f"{vendor}: driver ") for vendor in FILES]
    assert places == sorted(places)
    rows = cdigen("list", "--root", host, "--json").json
    assert {row["kind"] for row in rows} == {"nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu"}
    assert all(row["usable"] for row in rows)


def test_the_same_index_in_three_kinds_means_three_devices(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    nodes_by_kind = [nodes(content, "0") for content in specs(host).values()]
    every = [node for paths in nodes_by_kind for node in paths]
    assert len(nodes_by_kind) == 3
    assert len(every) == len(set(every))


def test_generate_without_a_kind_fails_on_a_host_with_several_vendors(cdigen: Run, host: Path) -> None:
    done = cdigen("generate", "--root", host)
    assert done.failed(
        2, "3 kinds", "nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu", "--kind", "--output-dir"
    )
    assert cdigen("generate", "--root", host, "--kind", "amd.com/gpu").json["kind"] == "amd.com/gpu"


# Changes of the host. Each change breaks one vendor.


def _set_another_version(root: Path) -> None:
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
    "nvidia's module is of another version": ("nvidia", _set_another_version),
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
def test_a_broken_vendor_does_not_change_the_specs_of_other_vendors(
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
def test_only_the_spec_of_a_broken_vendor_is_withdrawn(cdigen: Run, host: Path, breakage: str) -> None:
    cdigen("generate", "--root", host, "--write")
    before = specs(host)
    broken, act = BREAKAGES[breakage]
    act(host)
    cdigen("generate", "--root", host, "--write", "--withdraw")
    assert specs(host) == {name: content for name, content in before.items() if name != FILES[broken]}


# The daemon.


def test_the_daemon_withdraws_only_the_spec_of_a_broken_vendor_and_restores_it(tmp_path: Path) -> None:
    host = Host(tmp_path / "host").make()
    lay_others(host.root)
    host.configure(settle_timeout_s=0.3)
    with daemon(host) as running:
        running.rests()
        before = specs(host.root)
        assert before.keys() == set(FILES.values())
        for vendor, path in (("nvidia", "dev/nvidiactl"), ("amd", "dev/dri"), ("intel", "dev/dri")):
            kept = _remove_nodes(host.root, vendor, path)
            running.sees(lambda vendor=vendor: FILES[vendor] not in specs(host.root))  # type: ignore[misc]
            assert specs(host.root) == {name: each for name, each in before.items() if name != FILES[vendor]}
            for place, aside in kept.items():
                aside.rename(place)
            running.sees(lambda: specs(host.root) == before)
        running.sees(lambda: [one["state"] for one in running.status["vendors"]] == ["ready"] * 3)


def _remove_nodes(root: Path, vendor: str, path: str) -> dict[Path, Path]:
    """Rename the nodes of VENDOR; return a mapping from the old paths to the new paths."""
    names = {"amd": ("card3", "renderD131"), "intel": ("card0", "renderD128"), "nvidia": ("",)}[vendor]
    moved = {}
    for name in names:
        place = root / path / name
        moved[place] = root / f"{vendor}-{name or 'node'}"
        place.rename(moved[place])
    return moved
