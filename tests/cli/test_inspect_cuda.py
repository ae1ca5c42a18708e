"""`cdigen inspect` tells which CUDA the driver serves: by its own word, or by its branch."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.nvml.standin import Machine, install, trusted_folder
from support.values.unhealthy_gpus import example, save

from cdigen.value import replace


def test_the_driver_tells_it(cdigen: Run, host: Path) -> None:
    with trusted_folder() as folder:
        library = install(folder, Machine(cuda=12080))
        given = ("inspect", "--root", host, "--nvml", library)
        assert "driver 550.163.01 (proprietary kernel module), CUDA 12.8, x86_64" in cdigen(*given).out
        assert cdigen(*given, "--json").json["vendors"]["nvidia"]["driver"]["cuda"] == "12.8"


def test_where_nvml_is_not_asked_its_branch_does_and_json_says_unknown(cdigen: Run, host: Path) -> None:
    assert "kernel module), CUDA 12.4, x86_64" in cdigen("inspect", "--root", host).out
    assert cdigen("inspect", "--root", host, "--json").json["vendors"]["nvidia"]["driver"]["cuda"] is None


@pytest.mark.parametrize(("version", "shown"), [("550.163.01", "12.9"), ("535.1", None)])
def test_the_daemons_word_counts_for_the_same_driver(
    cdigen: Run, host: Path, version: str, shown: str | None
) -> None:
    (inventory,) = example().values()
    save(host, {"nvidia": replace(inventory, driver=replace(inventory.driver, version=version, cuda="12.9"))})
    document = cdigen("inspect", "--root", host, "--json").json
    assert document["vendors"]["nvidia"]["driver"]["cuda"] == shown


def test_an_inventory_from_elsewhere_tells_what_it_told_there(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    with trusted_folder() as folder:
        library = install(folder, Machine(cuda=12080))
        there = cdigen("inspect", "--root", host, "--nvml", library, "--json").out
    (tmp_path / "there.json").write_text(there)
    assert ", CUDA 12.8," in cdigen("inspect", "--inventory", tmp_path / "there.json").out
    (tmp_path / "odd.json").write_text(there.replace('"12.8"', '"twelve"'))
    assert cdigen("inspect", "--inventory", tmp_path / "odd.json").failed(2, "driver.cuda", "such as 12.4")
