"""`cdigen kubelet` as a process: what pods get, and what stays when daemon, specs or driver go."""

from __future__ import annotations

import shutil
import signal
import time
from resource import RLIM_INFINITY, RLIMIT_FSIZE, prlimit

import grpc
import pytest
from support.kubelet.process import Side, cdigen_kubelet, daemon, serving
from support.kubelet.resources import GPU
from support.values import unhealthy_gpus
from support.waiting import limited, pause, until

from cdigen.frontend import status as files
from cdigen.kubelet.plugin import PODS_S, RESYNC_S

pytestmark = pytest.mark.process


def refusal(side: Side, *ids: str, resource: str = GPU) -> str:
    with pytest.raises(grpc.RpcError) as refused:
        side.kubelet.endpoints[resource].allocate(*ids)
    return str(refused.value.details())


def test_a_container_gets_its_gpus_by_name_and_nothing_else(side: Side) -> None:
    with daemon(side), serving(side):
        assert side.kubelet.lists(*side.ids)
        plugin = side.kubelet.endpoints[GPU]
        chosen = plugin.prefer(side.ids, [side.ids[5]], 2)
        assert (len(chosen), chosen[0]) == (2, side.ids[5])

        container = plugin.allocate(*chosen)

        names = [f"{GPU}={one}" for one in chosen]
        assert [device.name for device in container.cdi_devices] == names
        assert dict(container.annotations) == {"cdi.k8s.io/cdigen_nvidia.com_gpu": ",".join(names)}
        assert [*container.envs, *container.mounts, *container.devices] == []
        assert refusal(side, "GPU-9") == f"cdigen: {GPU} has no GPU-9 (any more); it has 8 devices now"
        assert until(lambda: side.status()["journal"][-1]["state"] == "refused")


def test_a_container_shows_in_journal_and_metrics_with_its_pod(side: Side) -> None:
    with daemon(side), serving(side, verbose=True) as process:
        side.kubelet.endpoints[GPU].allocate(side.ids[0])
        side.kubelet.has(side.ids[0])

        assert until(lambda: [row["pod"] for row in side.status()["journal"]] == ["train"])

        row = side.status()["journal"][0]
        assert (row["state"], row["container"], row["names"]) == ("held", "main", [f"{GPU}={side.ids[0]}"])
        assert (side.resource()["given"], side.resource()["allocated"]) == (1, 1)
        assert side.status()["stale"] == []
        metrics = side.get("/metrics")[1]
        assert f'device="{side.ids[0]}",namespace="ml",pod="train"' in metrics
        assert f'cdigen_kubelet_allocations_total{{resource="{GPU}"}} 1.0' in metrics
        assert side.get("/readyz") == (200, "ok\n")
        # With -v each container has its line.
        assert [line["devices"] for line in process.lines("allocated")] == [[side.ids[0]]]
        assert process.stop() == 0
    assert side.status() == {}


def test_a_pod_shows_soon_also_where_specs_change_as_it_comes(side: Side) -> None:
    with daemon(side), serving(side):
        # The kubelet was asked once, and is asked again after PODS_S.
        assert until(lambda: side.resource()["allocated"] == 0)
        side.kubelet.has(side.ids[0])
        for turn in range(12):
            (side.root / f"run/cdi/other-{turn}.json").write_text("{}")
            pause(0.01)
            if turn == 6:
                side.kubelet.endpoints[GPU].allocate(side.ids[0])
        assert until(lambda: side.status()["journal"][-1]["state"] == "held", within_s=0.8 * PODS_S)


def test_what_changes_bit_by_bit_is_one_list(side: Side) -> None:
    sick = unhealthy_gpus.ill(side.inventories, 0, unhealthy_gpus.FELL)
    with daemon(side), serving(side) as process:
        assert until(lambda: side.resource()["allocated"] == 0)
        lists = side.kubelet.endpoints[GPU].lists
        before = len(lists)
        # All changes come before the process reads any of them.
        process.process.send_signal(signal.SIGSTOP)
        for turn in range(41):
            unhealthy_gpus.save(side.root, side.inventories if turn % 2 else sick)
        process.process.send_signal(signal.SIGCONT)
        assert until(lambda: side.resource()["health"]["unhealthy"] == 1)
        assert len(lists) - before <= 2


def test_a_status_that_could_not_be_written_is_written_when_there_is_room(side: Side) -> None:
    with daemon(side), cdigen_kubelet(side) as process:
        # From then on nothing changes in it.
        assert until(lambda: side.resource()["confirmed"] and side.resource()["allocated"] == 0)
        # Longer than its log is by now, shorter than a status.
        prlimit(process.process.pid, RLIMIT_FSIZE, (1_500, RLIM_INFINITY))
        side.put(unhealthy_gpus.ill(side.inventories, 0, unhealthy_gpus.FELL))
        assert until(lambda: process.lines("status"))
        prlimit(process.process.pid, RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))
        assert until(lambda: side.resource()["health"]["unhealthy"] == 1)
        assert until(lambda: [line["level"] for line in process.lines("status")] == ["error", "info"])


def test_a_pod_that_a_busy_kubelet_tells_of_later_shows_soon(side: Side) -> None:
    with daemon(side), serving(side):
        side.kubelet.endpoints[GPU].allocate(side.ids[0])
        assert until(lambda: [row["state"] for row in side.status()["journal"]] == ["ended"])
        side.kubelet.has(side.ids[0])
        assert until(lambda: side.status()["journal"][0]["pod"] == "train", within_s=0.8 * PODS_S)


def test_a_daemon_that_is_gone_changes_nothing_also_for_the_next_process(side: Side) -> None:
    with daemon(side), serving(side):
        before = side.kubelet.list_of(GPU)
        assert until(lambda: side.status()["stale"] == [])
    with cdigen_kubelet(side):
        assert until(lambda: side.kubelet.list_of(GPU) == before)
        assert until(lambda: side.resource()["state"] == "registered")
        assert side.status()["stale"] == [
            "the inventory is stale: the cdigen daemon, which updates it, does not run"
        ]
        assert side.kubelet.endpoints[GPU].allocate(side.ids[3]).cdi_devices[0].name.endswith(side.ids[3])
        (side.root / "run/cdigen/inventory.json").unlink()
        assert until(lambda: "there is no inventory" in side.status()["stale"][0])
        assert side.kubelet.list_of(GPU) == before


def test_a_daemon_that_ends_and_is_back_is_said_without_another_list(side: Side) -> None:
    with cdigen_kubelet(side) as process:
        with daemon(side):
            assert until(lambda: side.lists(8) and side.status()["stale"] == [])
            lists = len(side.kubelet.endpoints[GPU].lists)
        side.put(side.inventories)
        assert until(lambda: side.status()["stale"])
        assert until(lambda: side.resource()["confirmed"])
        # The inventory is as it was; without an event the host is read after RESYNC_S.
        with daemon(side):
            assert until(lambda: side.status()["stale"] == [], within_s=0.8 * RESYNC_S)
        assert [line["level"] for line in process.lines("stale")][-2:] == ["warning", "info"]
        assert "the cdigen daemon, which updates it, does not run" in process.lines("stale")[-2]["message"]
        assert len(side.kubelet.endpoints[GPU].lists) == lists
        assert len(side.kubelet.registered) == 1


def test_a_driver_that_goes_leaves_the_resource_with_no_devices_and_one_list_brings_them_back(
    side: Side,
) -> None:
    with daemon(side), serving(side) as process:
        side.driver_goes()
        assert until(lambda: side.lists(0))
        assert refusal(side, side.ids[0]) == (
            f"cdigen: {GPU} has no {side.ids[0]} (any more); it has 0 devices now"
        )
        assert until(lambda: side.resource()["count"] == 0)
        assert side.resource()["state"] == "registered"
        side.put(side.inventories)
        assert until(lambda: side.lists(8))
        assert len(side.kubelet.registered) == 1
        # Refusals have a line without -v.
        assert [line["cause"] for line in process.lines("refused")] == ["unknown_id"]


def test_a_host_that_never_had_a_driver_registers_nothing_and_waits(side: Side) -> None:
    side.driver_goes()
    with daemon(side), cdigen_kubelet(side) as process:
        assert until(side.serves_http)
        assert (side.status()["state"], side.status()["reason"]) == ("idle", "")
        assert side.get("/readyz")[0] == 200
        assert side.kubelet.registered == []
        side.put(side.inventories)
        assert until(lambda: side.lists(8))
        assert process.process.poll() is None


def test_a_spec_that_vanishes_between_list_and_allocate_is_a_refusal_with_the_reason(side: Side) -> None:
    with daemon(side), serving(side):
        (side.root / "run/cdi/nvidia.com-gpu.json").unlink()
        assert until(lambda: set(side.kubelet.health()) == {"Unhealthy"})
        assert (
            refusal(side, side.ids[0]) == f"cdigen: {side.ids[0]} is in no CDI spec now: see 'cdigen status'"
        )
        assert until(lambda: side.resource()["refused"] == {"no_spec": 1})
        assert [(row["state"], row["cause"]) for row in side.status()["journal"]] == [("refused", "no_spec")]


def test_what_a_container_has_under_another_name_is_refused_while_the_kubelet_says_so(side: Side) -> None:
    held, other = side.ids[0], side.ids[1]
    side.kubelet.has(held, resource="nvidia.com/h100")
    with daemon(side), serving(side):
        plugin = side.kubelet.endpoints[GPU]
        assert until(lambda: held not in plugin.prefer(side.ids, [], 7))
        assert refusal(side, held) == (
            f"cdigen: another container has what is asked for of {GPU}: "
            f"{held} (pod ml/train, container main, as nvidia.com/h100)"
        )
        assert plugin.allocate(other).cdi_devices
        assert len(plugin.prefer(side.ids, [], 8)) == 8
        # The pod has ended; nobody has told us, and the request does.
        side.kubelet.listed = []
        assert plugin.allocate(held).cdi_devices


@limited(2.0)
def test_a_kubelet_that_hangs_when_it_is_asked_holds_no_container_up(side: Side, within_s: float) -> None:
    side.kubelet.has(side.ids[0], resource="nvidia.com/h100")
    with daemon(side), serving(side):
        plugin = side.kubelet.endpoints[GPU]
        assert until(lambda: side.ids[0] not in plugin.prefer(side.ids, [], 7))
        side.kubelet.lists_at_once.clear()
        begun_s = time.monotonic()
        assert plugin.allocate(side.ids[0]).cdi_devices
        assert time.monotonic() - begun_s < within_s
        side.kubelet.lists_at_once.set()


def test_a_spec_that_cannot_be_read_is_said_once_and_costs_no_other(side: Side) -> None:
    with daemon(side), serving(side) as process:
        (side.root / "run/cdi/broken.json").write_text("{")
        assert until(lambda: side.status()["problems"])
        side.put(unhealthy_gpus.ill(side.inventories, 0, unhealthy_gpus.FELL))
        assert until(lambda: side.resource()["health"]["unhealthy"] == 1)
        assert len([line for line in process.lines("finding") if "broken.json" in line["path"]]) == 1


def test_what_the_kubelet_gives_again_under_the_same_name_is_never_refused(side: Side) -> None:
    # An init container's GPU goes to the next container of its pod, and so after the kubelet's restart.
    side.kubelet.has(side.ids[0])
    with daemon(side), serving(side):
        assert until(lambda: len(side.status()["journal"]) == 1)
        for _ in range(3):
            assert side.kubelet.endpoints[GPU].allocate(side.ids[0]).cdi_devices


def test_a_gpu_that_fails_and_comes_back_is_shown_so(side: Side) -> None:
    with daemon(side), serving(side):
        side.put(unhealthy_gpus.ill(side.inventories, 0, unhealthy_gpus.FELL))
        assert until(lambda: "Unhealthy" in side.kubelet.health())
        assert until(lambda: side.resource()["devices"][0]["causes"] == ["xid-79"])
        side.put(side.inventories)
        assert until(lambda: set(side.kubelet.health()) == {"Healthy"})


def test_a_run_directory_that_others_remove_is_made_again(side: Side) -> None:
    with daemon(side), cdigen_kubelet(side):
        assert until(lambda: side.status().get("state") == "registered")
        assert until(side.serves_http)
        shutil.rmtree(side.run_dir)
        assert until(lambda: side.status().get("state") == "registered")
        assert until(side.serves_http)


def test_the_process_may_be_killed_and_started_again(side: Side) -> None:
    with daemon(side):
        for turn in range(2):
            with cdigen_kubelet(side) as process:
                assert until(lambda: len(side.kubelet.registered) > turn and side.lists(8))  # noqa: B023
                assert until(lambda: side.resource()["state"] == "registered")
                assert len(list(side.kubelet.plugins.glob("cdigen-*"))) == 1
                process.kill()
            assert until(side.kubelet.endpoints[GPU].ended.is_set)
            assert files.reason_not_running(str(side.run_dir), side.status())
        assert len(side.kubelet.registered) == 2
