"""`generate`, `validate` and `doctor` name two kinds that cover each other's mounts, by the same rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.command.specs import configure, put

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

CUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
FOREIGN = {
    "cdiVersion": "0.5.0",
    "kind": "example.com/accel",
    "devices": [{"name": "0", "containerEdits": {"env": ["ACCEL=0"]}}],
    "containerEdits": {
        "mounts": [
            {"hostPath": "/opt/accel/libcuda.so.1", "containerPath": CUDA, "type": "bind", "options": ["ro"]}
        ]
    },
}
PROFILES = """
profiles:
  - {name: default, class: gpu}
  - {name: compute, class: gpu-compute, capabilities: [compute, utility]}
  - {name: graphics, class: gpu-graphics, capabilities: [graphics]}
"""
WORDS = ("example.com/accel", "nvidia.com/gpu", CUDA, "mounts-covered")


@pytest.fixture
def beside(host: Path) -> Path:
    """Return the spec of another maker on the host, which mounts a libcuda of its own."""
    (host / "opt/accel").mkdir(parents=True)
    (host / "opt/accel/libcuda.so.1").write_bytes(b"another")
    return put(host / "etc/cdi/accel.json", FOREIGN)


def test_generate_names_a_spec_of_another_maker_and_writes_all_the_same(
    cdigen: Run, host: Path, beside: Path
) -> None:
    done = cdigen("generate", "--root", host, "--write")
    assert done.code == 0
    (line,) = [line for line in done.err.splitlines() if "warning" in line]
    assert all(word in line for word in WORDS)
    rows = cdigen("generate", "--root", host, "--write", "--json").json
    assert "mounts-covered" in [finding["rule"] for finding in rows[0]["findings"]]
    beside.unlink()
    assert "mounts-covered" not in cdigen("generate", "--root", host, "--write").err


def test_what_no_runtime_loads_covers_nothing(cdigen: Run, host: Path, beside: Path) -> None:
    beside.write_text(json.dumps({**FOREIGN, "unknown": 1}))
    assert "mounts-covered" not in cdigen("generate", "--root", host, "--write").err


def test_a_printed_spec_is_held_against_nothing_that_lies_about(
    cdigen: Run, host: Path, beside: Path
) -> None:
    assert beside.exists()
    assert cdigen("generate", "--root", host).err == ""


def test_validate_names_it_at_the_later_of_two_files_and_both_stay_valid(
    cdigen: Run, host: Path, beside: Path
) -> None:
    ours = host / "ours.json"
    ours.write_text(cdigen("generate", "--root", host).out)
    done = cdigen("validate", ours, beside)
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if "mounts-covered" in line]
    assert all(word in line for word in WORDS)
    first, second = cdigen("validate", ours, beside, "--json").json
    assert first["findings"] == []
    (finding,) = second["findings"]
    assert (finding["severity"], finding["path"]) == ("warning", "$.containerEdits.mounts[0]")
    assert finding["line"] == 1
    assert cdigen("validate", beside, "--json").json[0]["findings"] == []


def test_doctor_names_it(cdigen: Run, host: Path, beside: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    (row,) = [
        row for row in cdigen("doctor", "--root", host, "--json").json if row["check"] == "mounts-covered"
    ]
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert all(word in row["detail"] for word in WORDS[:3])
    beside.unlink()
    configure(host, PROFILES)
    cdigen("generate", "--root", host, "--write")
    rows = cdigen("doctor", "--root", host, "--json").json
    assert [row["ok"] for row in rows if row["check"] == "mounts-covered"] == [True]


@pytest.mark.parametrize("layout", ["auto", "files", "view", "hwcaps"])
def test_the_documentations_own_profiles_do_not_cover_each_other(
    cdigen: Run, host: Path, layout: str
) -> None:
    configure(host, PROFILES)
    done = cdigen("generate", "--root", host, "--write", "--verbose", "--layout", layout)
    assert done.code == 0
    assert "mounts-covered" not in done.err
    specs = sorted((host / "run/cdi").glob("*.json"))
    assert len(specs) == 3
    assert "mounts-covered" not in cdigen("validate", *specs).out
