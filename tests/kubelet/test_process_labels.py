"""`cdigen kubelet` writes the node's labels into NFD's folder while it advertises devices."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from support.kubelet.advertised_resources import h100, in_mig, with_gpus
from support.kubelet.nfd_worker import FOLDER, labels_of
from support.kubelet.process import Side, cdigen_kubelet, daemon, serving
from support.values.unhealthy_gpus import example
from support.waiting import until

from cdigen.cli.services.service_text import kubelet_text
from cdigen.kubelet.labels.label_file import LASTS_S
from cdigen.kubelet.plugin import RESYNC_S

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

pytestmark = pytest.mark.process
COUNT = "nvidia.com/gpu.count"


@pytest.fixture(autouse=True)
def labelled(side: Side) -> None:
    """Configure a file of labels on the host SIDE, and write the name of the machine."""
    side.configure(f"kubelet: {{labels: /{FOLDER}/cdigen}}\n")
    dmi = side.root / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    (dmi / "product_name").write_text("NVIDIA DGX H100\n")


def features(side: Side) -> Path:
    folder = side.root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def state(side: Side) -> dict[str, Any]:
    found: dict[str, Any] = side.status()["labels"] or {}
    return found


def count(side: Side) -> str:
    return labels_of(features(side)).get(COUNT, "")


def test_labels_follow_the_devices_and_expire_after_the_end_of_the_process(side: Side) -> None:
    folder = features(side)
    with daemon(side), cdigen_kubelet(side) as process:
        assert until(lambda: count(side) == "8")
        assert labels_of(folder)["nvidia.com/gpu.machine"] == "NVIDIA-DGX-H100"
        assert until(lambda: state(side).get("labels") == labels_of(folder))
        assert f"labels: {len(labels_of(folder))} in {folder}/cdigen" in kubelet_text(side.status(), 0)
        side.put(with_gpus(in_mig(h100(0), "1g.10gb", "1g.10gb")))
        assert until(lambda: labels_of(folder).get("nvidia.com/mig-1g.10gb.count") == "2")
        side.driver_goes()
        assert until(lambda: labels_of(folder) == {})
        side.put(example())
        assert until(lambda: count(side) == "8")
        process.kill()
    # The next process replaces the file of the killed process.
    assert count(side) == "8"
    assert labels_of(folder, time.time() + LASTS_S) == {}
    inode = (folder / "cdigen").stat().st_ino
    with daemon(side), cdigen_kubelet(side) as process:
        assert until(lambda: (folder / "cdigen").stat().st_ino != inode)
        assert process.stop() == 0
    assert count(side) == "8"


def test_devices_are_advertised_without_nfd_and_the_missing_folder_is_logged(side: Side) -> None:
    with daemon(side), serving(side) as process:
        assert until(lambda: state(side).get("state") == "waiting")
        assert not (side.root / FOLDER).exists()
        (line,) = process.lines("labels")
        assert line["level"] == "info"
        assert side.get("/readyz")[0] == 200
        assert "the worker of Node Feature Discovery has not made the folder" in kubelet_text(
            side.status(), 0
        )
        # NFD's worker starts, and makes its folder.
        features(side)
        assert until(lambda: count(side) == "8", within_s=0.8 * RESYNC_S)


def test_another_programs_file_stays_unchanged_and_devices_are_advertised(side: Side) -> None:
    other = features(side) / "cdigen"
    other.write_text("nvidia.com/gpu.count=4\n")
    with daemon(side), serving(side) as process:
        assert until(lambda: state(side).get("state") == "failed")
        assert "another program's" in process.lines("labels")[0]["message"]
        assert other.read_text() == "nvidia.com/gpu.count=4\n"
        assert side.get("/readyz")[0] == 200


def test_labels_can_be_configured_and_removed_by_a_reload(side: Side) -> None:
    folder = features(side)
    text = side.config.read_text()
    side.configure("kubelet: {}\n")
    with daemon(side), serving(side):
        assert until(lambda: side.status()["labels"] is None)
        side.configure(text)
        assert until(lambda: count(side) == "8")
        side.configure(text.replace("features.d/cdigen", "features.d/gpus"))
        assert until(lambda: os.listdir(folder) == ["gpus"])
        side.configure("kubelet: {}\n")
        assert until(lambda: os.listdir(folder) == [])


def test_the_file_of_a_former_process_stays_unchanged_while_the_inventory_is_missing(side: Side) -> None:
    folder = features(side)
    with daemon(side), cdigen_kubelet(side):
        assert until(lambda: count(side) == "8")
    inode = (folder / "cdigen").stat().st_ino
    (side.root / "run/cdigen/inventory.json").unlink()
    with daemon(side), cdigen_kubelet(side):
        assert until(lambda: state(side).get("state") == "waiting")
        assert (folder / "cdigen").stat().st_ino == inode


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_standby_instance_writes_no_labels_until_it_is_active(side: Side, ending: str) -> None:
    folder = features(side)
    with daemon(side), ExitStack() as running:
        first = running.enter_context(cdigen_kubelet(side, "--standby"))
        assert until(lambda: count(side) == "8")
        inode = (folder / "cdigen").stat().st_ino
        second = running.enter_context(cdigen_kubelet(side, "--standby", log="second"))
        assert until(lambda: second.lines("standby"))
        # The active instance restores the file, and the standby does not write.
        (folder / "cdigen").rename(folder.parent / "away")
        assert until(lambda: count(side) == "8")
        assert len(first.lines("labels")) == 1
        assert not second.lines("labels")
        getattr(first, ending)()
        assert until(lambda: second.lines("labels"))
        assert count(side) == "8"
        assert (folder / "cdigen").stat().st_ino != inode
        assert os.listdir(folder) == ["cdigen"]
