"""`cdigen list`, `inspect` and `status` show the health from the daemon."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.values.unhealthy_gpus import ECC, FELL, example, healthy, save, with_causes

from cdigen.model.inventory import Inventory
from cdigen.model.inventory_json import from_document
from cdigen.value import replace

GPU = "nvidia.com/gpu"


@pytest.fixture
def found(cdigen: Run, host: Path) -> dict[str, Inventory]:
    """Write the specs of the host; return its inventories, in which all devices are healthy."""
    assert cdigen("generate", "--write", "--root", host).code == 0
    inventories = from_document(cdigen("inspect", "--root", host, "--json").json)
    whole = inventories["nvidia"]
    return {"nvidia": replace(whole, accelerators=tuple(map(healthy, whole.accelerators)))}


def states(cdigen: Run, host: Path) -> dict[str, str]:
    rows = [line.split("  ") for line in cdigen("list", "--root", host).out.splitlines()]
    return {row[0]: next(word.strip() for word in row[1:] if word) for row in rows}


def test_list_has_the_health_of_each_device_name(
    cdigen: Run, host: Path, found: dict[str, Inventory]
) -> None:
    save(host, with_causes(found, 1, FELL, ECC))
    rows = {row["device"]: row for row in cdigen("list", "--root", host, "--json").json}
    uuid = found["nvidia"].accelerators[1].uuid
    health = {name: row["health"] for name, row in rows.items()}
    assert health[f"{GPU}=0"] == "healthy"
    assert [health[f"{GPU}={name}"] for name in ("1", uuid, "all")] == ["unhealthy"] * 3
    assert health[f"{GPU}=none"] == "unknown"
    assert [cause["cause"] for cause in rows[f"{GPU}={uuid}"]["causes"]] == ["xid-79", "xid-48"]
    # A runtime can still resolve the name.
    assert rows[f"{GPU}=1"]["usable"]


def test_the_table_of_list_has_the_causes(cdigen: Run, host: Path, found: dict[str, Inventory]) -> None:
    save(host, with_causes(found, 1, FELL, ECC))
    state = states(cdigen, host)
    assert state[f"{GPU}=0"] == "usable"
    assert state[f"{GPU}=1"] == "unhealthy: xid-79, xid-48"
    assert state[f"{GPU}=all"] == "unhealthy: 1 of 2 (xid-79, xid-48)"


def test_without_a_daemon_every_health_is_unknown(
    cdigen: Run, host: Path, found: dict[str, Inventory]
) -> None:
    (save(host, with_causes(found, 1, FELL)).parent / "status.json").unlink()
    assert {row["health"] for row in cdigen("list", "--root", host, "--json").json} == {"unknown"}
    assert states(cdigen, host)[f"{GPU}=1"] == "usable"
    assert "xid" not in cdigen("inspect", "--root", host).out


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"schema": 1, "vendors": {"unknown": 1}}'])
def test_commands_work_with_an_invalid_inventory(
    cdigen: Run, host: Path, found: dict[str, Inventory], content: bytes
) -> None:
    save(host, found).write_bytes(content)
    for command in ("list", "inspect", "status"):
        assert cdigen(command, "--root", host).code == 0


def test_inspect_has_the_health_from_the_daemon(cdigen: Run, host: Path, found: dict[str, Inventory]) -> None:
    save(host, with_causes(found, 1, FELL))
    assert from_document(cdigen("inspect", "--root", host, "--json").json) == with_causes(found, 1, FELL)
    assert f"unhealthy: xid-79 since {FELL.since}" in cdigen("inspect", "--root", host).out


def test_a_new_gpu_does_not_have_the_health_of_the_gpu_that_it_replaces(
    cdigen: Run, host: Path, found: dict[str, Inventory]
) -> None:
    whole = with_causes(found, 1, FELL)["nvidia"]
    other = replace(whole.accelerators[1], uuid="GPU-00000000-1111-2222-3333-444444444444")
    save(host, {"nvidia": replace(whole, accelerators=(whole.accelerators[0], other))})
    gpus = from_document(cdigen("inspect", "--root", host, "--json").json)["nvidia"].accelerators
    assert [gpu.health for gpu in gpus] == ["healthy", "unknown"]


def test_the_health_in_an_inventory_with_another_driver_version_is_ignored(
    cdigen: Run, host: Path, found: dict[str, Inventory]
) -> None:
    whole = with_causes(found, 1, FELL)["nvidia"]
    save(host, {"nvidia": replace(whole, driver=replace(whole.driver, version="1.2"))})
    assert {row["health"] for row in cdigen("list", "--root", host, "--json").json} == {"unknown"}
    assert "the inventory is stale" in cdigen("health", "--root", host).err


def test_status_shows_unhealthy_devices(cdigen: Run, host: Path) -> None:
    save(host, with_causes(example(), 3, FELL, ECC))
    done = cdigen("status", "--root", host)
    (line,) = [line for line in done.out.splitlines() if "xid-79" in line]
    assert line.startswith(f"{GPU}=3 ")
    assert FELL.detail in line
    assert "'cdigen health' shows what ends each cause" in done.out
    rows = cdigen("status", "--root", host, "--json").json["devices"]
    assert [row["health"] for row in rows].count("unhealthy") == 1


def test_status_shows_the_causes_of_a_gpu_once_and_not_of_each_partition(cdigen: Run, host: Path) -> None:
    save(host, with_causes(example("ubuntu-2xmi300x-cpx"), 0, FELL, vendor="amd"))
    lines = cdigen("status", "--root", host).out.splitlines()
    assert len([line for line in lines if "xid-79" in line]) == 1
    rows = cdigen("status", "--root", host, "--json").json["devices"]
    assert [row["health"] for row in rows].count("unhealthy") == 9


def test_status_does_not_list_healthy_devices(cdigen: Run, host: Path) -> None:
    save(host, example())
    assert "UNHEALTHY" not in cdigen("status", "--root", host).out
