"""`cdigen diff` compares the specs on disk with the present state of the host."""

from pathlib import Path

import pytest
from support.command.fixtures import Run

SPEC = "run/cdi/nvidia.com-gpu.json"


def test_a_written_spec_does_not_differ(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    done = cdigen("diff", "--root", host)
    assert (done.code, done.out) == (0, "")


def test_a_spec_that_was_never_written_has_only_added_devices(cdigen: Run, host: Path) -> None:
    done = cdigen("diff", "--root", host, "--json")
    assert done.code == 1
    (row,) = done.json
    assert (row["kind"], row["removed"], row["changed"]) == ("nvidia.com/gpu", [], [])
    assert "0" in row["added"]
    assert not (host / SPEC).exists()


@pytest.mark.parametrize("gone", ["dev/nvidia0", "proc/driver/nvidia/version"], ids=["node", "driver"])
def test_a_gpu_whose_node_or_driver_is_missing_is_listed_as_removed(
    cdigen: Run, host: Path, gone: str
) -> None:
    cdigen("generate", "--root", host, "--write")
    (host / gone).unlink()
    done = cdigen("diff", "--root", host, "--json")
    assert done.code == 1
    assert "0" in done.json[0]["removed"]


def test_an_added_library_is_shown_with_its_container_path(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    spec = (host / SPEC).read_text()
    lines = [line for line in spec.splitlines() if '/libcuda.so.1"' in line]
    (host / SPEC).write_text(spec.replace(lines[0] + "\n", ""))
    done = cdigen("diff", "--root", host)
    assert done.code == 1
    assert "+ nvidia.com/gpu: mount /usr/lib64/libcuda.so.1" in done.out


def test_a_host_without_gpus_and_specs_is_not_ready(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("diff", "--root", tmp_path)
    assert done.code == 3


def test_diff_rejects_an_inventory(cdigen: Run, host: Path) -> None:
    done = cdigen("diff", "--root", host, "--inventory", "x.json")
    assert done.code == 2
