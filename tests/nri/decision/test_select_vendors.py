"""`cdigen resolve` resolves AMD_VISIBLE_DEVICES and HABANA_VISIBLE_DEVICES by the device names in specs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree, intel_tree

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
# The ids of the tree's GPUs as `amd-ctk gpu list` writes them.
IDS = [f"0x{number:X}" for number in amd_tree.UNIQUE_IDS]

Resolve = Callable[[str], tuple[int, list[str], str]]


@pytest.fixture
def resolve(tmp_path: Path, cdigen: Run) -> Resolve:
    """Return a function that writes the specs of the host below `tmp_path`, and resolves a variable.

    It returns the exit code, the devices without their kind, and the reason of a refusal.
    """
    (tmp_path / "etc/cdigen").mkdir(parents=True)
    (tmp_path / "etc/cdigen/config.yaml").write_text("nri: {allow: [{namespaces: [ml]}]}\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")

    def run(variable: str) -> tuple[int, list[str], str]:
        assert cdigen("generate", "--root", tmp_path, "--write", "--quiet").code == 0
        done = cdigen("resolve", "--root", tmp_path, "--namespace", "ml", "--env", variable, "--json")
        kind = "amd.com/gpu" if variable.startswith("AMD_") else "intel.com/gaudi"
        return (
            done.code,
            [name.removeprefix(f"{kind}=") for name in done.json["devices"]],
            done.json["reason"],
        )

    return run


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("0", ["0"]),
        ("1,3", ["1", "3"]),
        ("0-2", ["0", "1", "2"]),
        ("0,2-3", ["0", "2", "3"]),
        ("all", ["all"]),
        (IDS[0], [IDS[0]]),
        (IDS[1].lower(), [IDS[1]]),
        (IDS[1].removeprefix("0x"), [IDS[1]]),
        (IDS[1].removeprefix("0x").lower(), [IDS[1]]),
        (IDS[1].replace("0x", "0X"), [IDS[1]]),
        # The spelling of sysfs.
        (f"{amd_tree.UNIQUE_IDS[0]:016x}", [IDS[0]]),
        (f"0x{amd_tree.UNIQUE_IDS[0]:016x}", [IDS[0]]),
        (f"{IDS[0]},{IDS[2]}", [IDS[0], IDS[2]]),
    ],
)
def test_whole_gpus_are_found_by_number_range_id_and_all(
    tmp_path: Path, resolve: Resolve, value: str, names: list[str]
) -> None:
    amd_tree.write(tmp_path, amd_tree.mi210(4))
    assert resolve(f"AMD_VISIBLE_DEVICES={value}")[:2] == (0, names)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("15", ["15"]),
        ("6-9", ["6", "7", "8", "9"]),
        ("all", ["all"]),
        # All partitions of a GPU share one id, which selects the GPU.
        (IDS[1], [IDS[1]]),
    ],
)
def test_partitions_are_found_by_number_and_their_gpu_by_its_id(
    tmp_path: Path, resolve: Resolve, value: str, names: list[str]
) -> None:
    amd_tree.write(tmp_path, amd_tree.mi300x(8, count=2))
    assert resolve(f"AMD_VISIBLE_DEVICES={value}")[:2] == (0, names)


def test_an_id_that_has_only_digits_is_not_an_index(tmp_path: Path, resolve: Resolve) -> None:
    first, second = amd_tree.mi210(2)
    amd_tree.write(tmp_path, (first, replace(second, unique_id=0x1234567890123456)))
    assert resolve("AMD_VISIBLE_DEVICES=1234567890123456")[:2] == (0, ["0x1234567890123456"])
    assert resolve("AMD_VISIBLE_DEVICES=1")[:2] == (0, ["1"])


@pytest.mark.parametrize("value", ["4", "2-4", "0x1234ABCD", "1234ABCD", "12345678", "GPU-1"])
def test_a_missing_device_is_refused_with_the_existing_names(
    tmp_path: Path, resolve: Resolve, value: str
) -> None:
    amd_tree.write(tmp_path, amd_tree.mi210(4))
    code, names, reason = resolve(f"AMD_VISIBLE_DEVICES={value}")
    assert (code, names) == (1, [])
    assert reason


@pytest.mark.parametrize(
    ("value", "names"),
    [("0", ["0"]), ("1,0", ["1", "0"]), ("all", ["all"]), ("none", []), ("2", None), ("0-1", None)],
)
def test_gaudis_are_found_by_the_numbers_of_their_nodes(
    tmp_path: Path, resolve: Resolve, value: str, names: list[str] | None
) -> None:
    # The nodes are not in the order of their addresses.
    intel_tree.lay(tmp_path, intel_tree.gaudi(1, "0000:19:00.0"), intel_tree.gaudi(0, "0000:b3:00.0"))
    code, found, _ = resolve(f"HABANA_VISIBLE_DEVICES={value}")
    assert (code, found) == ((1, []) if names is None else (0, names))
    spec = json.loads((tmp_path / "run/cdi/intel.com-gaudi.json").read_text())
    nodes = {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in spec["devices"]
    }
    assert "/dev/accel/accel0" in nodes["0"]
    assert "/dev/accel/accel1" in nodes["1"]
