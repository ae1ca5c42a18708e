"""`generate`, `validate` and `doctor` report mounts of two kinds that cover each other (mounts-covered)."""

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
def foreign_spec(host: Path) -> Path:
    """Write the spec of another vendor, which mounts its own libcuda; return the path of the spec."""
    (host / "opt/accel").mkdir(parents=True)
    (host / "opt/accel/libcuda.so.1").write_bytes(b"another")
    return put(host / "etc/cdi/accel.json", FOREIGN)


def test_generate_writes_its_spec_and_reports_a_spec_of_another_vendor_that_covers_a_mount(
    cdigen: Run, host: Path, foreign_spec: Path
) -> None:
    done = cdigen("generate", "--root", host, "--write")
    assert done.code == 0
    (line,) = [line for line in done.err.splitlines() if "warning" in line]
    assert all(word in line for word in WORDS)
    rows = cdigen("generate", "--root", host, "--write", "--json").json
    assert "mounts-covered" in [finding["rule"] for finding in rows[0]["findings"]]
    foreign_spec.unlink()
    assert "mounts-covered" not in cdigen("generate", "--root", host, "--write").err


def test_a_spec_that_no_runtime_loads_covers_no_mounts(cdigen: Run, host: Path, foreign_spec: Path) -> None:
    foreign_spec.write_text(json.dumps({**FOREIGN, "unknown": 1}))
    assert "mounts-covered" not in cdigen("generate", "--root", host, "--write").err


def test_a_printed_spec_is_not_compared_with_specs_on_the_host(
    cdigen: Run, host: Path, foreign_spec: Path
) -> None:
    assert foreign_spec.exists()
    assert cdigen("generate", "--root", host).err == ""


def test_validate_reports_covered_mounts_at_the_second_file_and_accepts_both_files(
    cdigen: Run, host: Path, foreign_spec: Path
) -> None:
    ours = host / "ours.json"
    ours.write_text(cdigen("generate", "--root", host).out)
    done = cdigen("validate", ours, foreign_spec)
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if "mounts-covered" in line]
    assert all(word in line for word in WORDS)
    first, second = cdigen("validate", ours, foreign_spec, "--json").json
    assert first["findings"] == []
    (finding,) = second["findings"]
    assert (finding["severity"], finding["path"]) == ("warning", "$.containerEdits.mounts[0]")
    assert finding["line"] == 1
    assert cdigen("validate", foreign_spec, "--json").json[0]["findings"] == []


def test_doctor_reports_covered_mounts(cdigen: Run, host: Path, foreign_spec: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    (row,) = [
        row for row in cdigen("doctor", "--root", host, "--json").json if row["check"] == "mounts-covered"
    ]
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert all(word in row["detail"] for word in WORDS[:3])
    foreign_spec.unlink()
    configure(host, PROFILES)
    cdigen("generate", "--root", host, "--write")
    rows = cdigen("doctor", "--root", host, "--json").json
    assert [row["ok"] for row in rows if row["check"] == "mounts-covered"] == [True]


@pytest.mark.parametrize("layout", ["auto", "files", "view", "hwcaps"])
def test_the_documented_profiles_do_not_cover_each_other(cdigen: Run, host: Path, layout: str) -> None:
    configure(host, PROFILES)
    done = cdigen("generate", "--root", host, "--write", "--verbose", "--layout", layout)
    assert done.code == 0
    assert "mounts-covered" not in done.err
    specs = sorted((host / "run/cdi").glob("*.json"))
    assert len(specs) == 3
    assert "mounts-covered" not in cdigen("validate", *specs).out
