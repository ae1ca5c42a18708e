"""`cdigen inspect` shows the driver's CUDA version, from NVML or derived from the driver's branch."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.nvml.standin import Machine, install, trusted_folder
from support.values.unhealthy_gpus import example, save

from cdigen.value import replace


def test_the_version_that_nvml_reports_is_shown(cdigen: Run, host: Path) -> None:
    with trusted_folder() as folder:
        library = install(folder, Machine(cuda=12080))
        arguments = ("inspect", "--root", host, "--nvml", library)
        assert "driver 550.163.01 (proprietary kernel module), CUDA 12.8, x86_64" in cdigen(*arguments).out
        assert cdigen(*arguments, "--json").json["vendors"]["nvidia"]["driver"]["cuda"] == "12.8"


def test_without_nvml_the_driver_branch_determines_the_cuda_version(cdigen: Run, host: Path) -> None:
    assert "kernel module), CUDA 12.4, x86_64" in cdigen("inspect", "--root", host).out
    assert cdigen("inspect", "--root", host, "--json").json["vendors"]["nvidia"]["driver"]["cuda"] is None


@pytest.mark.parametrize(("version", "shown"), [("550.163.01", "12.9"), ("535.1", None)])
def test_the_cuda_version_in_the_daemons_inventory_is_used_for_the_same_driver(
    cdigen: Run, host: Path, version: str, shown: str | None
) -> None:
    (inventory,) = example().values()
    save(host, {"nvidia": replace(inventory, driver=replace(inventory.driver, version=version, cuda="12.9"))})
    document = cdigen("inspect", "--root", host, "--json").json
    assert document["vendors"]["nvidia"]["driver"]["cuda"] == shown


def test_for_an_inventory_of_another_host_the_cuda_version_of_that_host_is_shown(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    with trusted_folder() as folder:
        library = install(folder, Machine(cuda=12080))
        there = cdigen("inspect", "--root", host, "--nvml", library, "--json").out
    (tmp_path / "there.json").write_text(there)
    assert ", CUDA 12.8," in cdigen("inspect", "--inventory", tmp_path / "there.json").out
    (tmp_path / "odd.json").write_text(there.replace('"12.8"', '"twelve"'))
    assert cdigen("inspect", "--inventory", tmp_path / "odd.json").failed(2, "driver.cuda", "such as 12.4")
