"""The process `cdigen kubelet` with a daemon, and after the daemon, the specs or the driver are removed."""

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

from cdigen.kubelet.allocation.kubelet_view import PODS_S
from cdigen.kubelet.plugin import RESYNC_S
from cdigen.service import status as files
from cdigen.value import replace

pytestmark = pytest.mark.process


def refusal(side: Side, *ids: str, resource: str = GPU) -> str:
    with pytest.raises(grpc.RpcError) as refused:
        side.kubelet.endpoints[resource].allocate(*ids)
    return str(refused.value.details())


def test_a_container_gets_only_the_cdi_names_of_its_gpus(side: Side) -> None:
    with daemon(side), serving(side):
        assert side.kubelet.lists(*side.ids)
        plugin = side.kubelet.endpoints[GPU]
        chosen = plugin.preferred_allocation(side.ids, [side.ids[5]], 2)
        assert (len(chosen), chosen[0]) == (2, side.ids[5])

        container = plugin.allocate(*chosen)

        names = [f"{GPU}={one}" for one in chosen]
        assert [device.name for device in container.cdi_devices] == names
        assert dict(container.annotations) == {"cdi.k8s.io/cdigen_nvidia.com_gpu": ",".join(names)}
        assert [*container.envs, *container.mounts, *container.devices] == []
        text = f"cdigen: {GPU}: unknown device GPU-9; the resource has 8 devices now"
        assert refusal(side, "GPU-9") == text
        assert until(lambda: side.status()["journal"][-1]["state"] == "refused")


def test_journal_and_metrics_show_a_container_with_its_pod(side: Side) -> None:
    with daemon(side), serving(side, verbose=True) as process:
        side.kubelet.endpoints[GPU].allocate(side.ids[0])
        side.kubelet.has(side.ids[0])

        assert until(lambda: [row["pod"] for row in side.status()["journal"]] == ["train"])

        row = side.status()["journal"][0]
        assert (row["state"], row["container"], row["names"]) == ("held", "main", [f"{GPU}={side.ids[0]}"])
        assert (side.resource()["allocations"], side.resource()["allocated"]) == (1, 1)
        assert side.status()["stale"] == []
        metrics = side.get("/metrics")[1]
        assert f'device="{side.ids[0]}",namespace="ml",pod="train"' in metrics
        assert f'cdigen_kubelet_allocations_total{{resource="{GPU}"}} 1.0' in metrics
        assert side.get("/readyz") == (200, "ok\n")
        # With -v there is a line for each container.
        assert until(lambda: [line["devices"] for line in process.lines("allocated")] == [[side.ids[0]]])
        assert process.stop() == 0
    assert side.status() == {}


def test_a_pod_is_shown_soon_even_if_specs_change_at_the_same_time(side: Side) -> None:
    with daemon(side), serving(side):
        # The process has listed the pods once, and lists them again after PODS_S.
        assert until(lambda: side.resource()["allocated"] == 0)
        side.kubelet.has(side.ids[0])
        for turn in range(12):
            (side.root / f"run/cdi/other-{turn}.json").write_text("{}")
            pause(0.01)
            if turn == 6:
                side.kubelet.endpoints[GPU].allocate(side.ids[0])
        assert until(lambda: side.status()["journal"][-1]["state"] == "held", within_s=0.8 * PODS_S)


def test_many_changes_in_a_short_time_cause_at_most_two_lists(side: Side) -> None:
    unhealthy = unhealthy_gpus.with_causes(side.inventories, 0, unhealthy_gpus.FELL)
    with daemon(side), serving(side) as process:
        assert until(lambda: side.resource()["allocated"] == 0)
        lists = side.kubelet.endpoints[GPU].lists
        before = len(lists)
        # All changes are written before the process reads any change.
        process.process.send_signal(signal.SIGSTOP)
        for turn in range(41):
            unhealthy_gpus.save(side.root, side.inventories if turn % 2 else unhealthy)
        process.process.send_signal(signal.SIGCONT)
        assert until(lambda: side.resource()["health"]["unhealthy"] == 1)
        assert len(lists) - before <= 2


def test_a_status_that_could_not_be_written_is_written_when_space_is_free(side: Side) -> None:
    with daemon(side), cdigen_kubelet(side) as process:
        # The status does not change any more.
        assert until(lambda: side.resource()["confirmed"] and side.resource()["allocated"] == 0)
        # This limit of the file size is larger than the log, and smaller than a status.json.
        prlimit(process.process.pid, RLIMIT_FSIZE, (1_500, RLIM_INFINITY))
        side.put(unhealthy_gpus.with_causes(side.inventories, 0, unhealthy_gpus.FELL))
        assert until(lambda: process.lines("status"))
        prlimit(process.process.pid, RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))
        assert until(lambda: side.resource()["health"]["unhealthy"] == 1)
        assert until(lambda: [line["level"] for line in process.lines("status")] == ["error", "info"])


def test_a_pod_that_a_busy_kubelet_lists_later_is_shown_soon(side: Side) -> None:
    with daemon(side), serving(side):
        side.kubelet.endpoints[GPU].allocate(side.ids[0])
        assert until(lambda: [row["state"] for row in side.status()["journal"]] == ["ended"])
        side.kubelet.has(side.ids[0])
        assert until(lambda: side.status()["journal"][0]["pod"] == "train", within_s=0.8 * PODS_S)


def test_devices_stay_advertised_without_a_daemon_even_by_a_new_process(side: Side) -> None:
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


def test_the_end_and_the_restart_of_the_daemon_are_logged_and_cause_no_new_list(side: Side) -> None:
    with cdigen_kubelet(side) as process:
        with daemon(side):
            assert until(lambda: side.lists(8) and side.status()["stale"] == [])
            lists = len(side.kubelet.endpoints[GPU].lists)
        side.put(side.inventories)
        assert until(lambda: side.status()["stale"])
        assert until(lambda: side.resource()["confirmed"])
        # The inventory has not changed. Without an event, cdigen would read the host only after RESYNC_S.
        with daemon(side):
            assert until(lambda: side.status()["stale"] == [], within_s=0.8 * RESYNC_S)
        assert until(lambda: [row["level"] for row in process.lines("stale")][-2:] == ["warning", "info"])
        assert "the cdigen daemon, which updates it, does not run" in process.lines("stale")[-2]["message"]
        assert len(side.kubelet.endpoints[GPU].lists) == lists
        assert len(side.kubelet.registered) == 1


def test_a_gpu_that_is_removed_while_a_pod_has_it_is_unhealthy_until_the_pod_ends(side: Side) -> None:
    host = side.inventories["nvidia"]
    first, *others = (str(gpu.uuid) for gpu in host.accelerators)
    side.kubelet.has(first)
    with daemon(side), serving(side):
        assert until(lambda: side.resource()["allocated"] == 1)
        side.put({"nvidia": replace(host, accelerators=host.accelerators[1:])})
        assert until(lambda: side.kubelet.list_of(GPU)[first] == ("Unhealthy", ()))
        assert side.kubelet.lists(first, *others)
        side.kubelet.has()
        side.kubelet.endpoints[GPU].allocate(others[0])
        assert until(lambda: side.kubelet.lists(*others), within_s=0.8 * PODS_S)


def test_a_resource_stays_registered_without_devices_while_the_driver_is_removed(
    side: Side,
) -> None:
    with daemon(side), serving(side) as process:
        side.driver_goes()
        assert until(lambda: side.lists(0))
        assert refusal(side, side.ids[0]) == (
            f"cdigen: {GPU}: unknown device {side.ids[0]}; the resource has 0 devices now"
        )
        assert until(lambda: side.resource()["count"] == 0)
        assert side.resource()["state"] == "registered"
        side.put(side.inventories)
        assert until(lambda: side.lists(8))
        assert len(side.kubelet.registered) == 1
        # Refusals are logged without -v.
        assert until(lambda: [line["cause"] for line in process.lines("refused")] == ["unknown_id"])


def test_a_host_without_a_driver_registers_nothing_until_a_driver_is_loaded(side: Side) -> None:
    side.driver_goes()
    with daemon(side), cdigen_kubelet(side) as process:
        assert until(side.serves_http)
        assert (side.status()["state"], side.status()["reason"]) == ("idle", "")
        assert side.get("/readyz")[0] == 200
        assert side.kubelet.registered == []
        side.put(side.inventories)
        assert until(lambda: side.lists(8))
        assert process.process.poll() is None


def test_allocate_is_refused_with_the_reason_after_the_spec_is_removed(side: Side) -> None:
    with daemon(side), serving(side):
        (side.root / "run/cdi/nvidia.com-gpu.json").unlink()
        assert until(lambda: set(side.kubelet.health()) == {"Unhealthy"})
        assert (
            refusal(side, side.ids[0]) == f"cdigen: {GPU}: no CDI spec has {side.ids[0]}; see 'cdigen status'"
        )
        assert until(lambda: side.resource()["refused"] == {"no_spec": 1})
        assert [(row["state"], row["cause"]) for row in side.status()["journal"]] == [("refused", "no_spec")]


def test_a_device_in_use_under_another_name_is_refused_while_the_kubelet_lists_its_pod(side: Side) -> None:
    held, other = side.ids[0], side.ids[1]
    side.kubelet.has(held, resource="nvidia.com/h100")
    with daemon(side), serving(side):
        plugin = side.kubelet.endpoints[GPU]
        assert until(lambda: held not in plugin.preferred_allocation(side.ids, [], 7))
        assert refusal(side, held) == (
            f"cdigen: {GPU}: another container has {held} (pod ml/train, container main, as nvidia.com/h100)"
        )
        assert plugin.allocate(other).cdi_devices
        assert len(plugin.preferred_allocation(side.ids, [], 8)) == 8
        # The pod has ended. cdigen reads this from the list that it requests for the next allocation.
        side.kubelet.listed = []
        assert plugin.allocate(held).cdi_devices


@limited(2.0)
def test_an_allocation_waits_only_a_short_time_for_a_kubelet_that_does_not_list_its_pods(
    side: Side, within_s: float
) -> None:
    side.kubelet.has(side.ids[0], resource="nvidia.com/h100")
    with daemon(side), serving(side):
        plugin = side.kubelet.endpoints[GPU]
        assert until(lambda: side.ids[0] not in plugin.preferred_allocation(side.ids, [], 7))
        side.kubelet.lists_at_once.clear()
        begun_s = time.monotonic()
        assert plugin.allocate(side.ids[0]).cdi_devices
        assert time.monotonic() - begun_s < within_s
        side.kubelet.lists_at_once.set()


def test_an_unreadable_spec_is_logged_once_and_affects_no_other_spec(side: Side) -> None:
    with daemon(side), serving(side) as process:
        (side.root / "run/cdi/broken.json").write_text("{")
        assert until(lambda: side.status()["problems"])
        side.put(unhealthy_gpus.with_causes(side.inventories, 0, unhealthy_gpus.FELL))
        assert until(lambda: side.resource()["health"]["unhealthy"] == 1)
        assert len([line for line in process.lines("finding") if "broken.json" in line["path"]]) == 1


def test_a_repeated_allocation_under_the_same_name_is_never_refused(side: Side) -> None:
    # The kubelet allocates an init container's GPU again to the next container, also after a restart.
    side.kubelet.has(side.ids[0])
    with daemon(side), serving(side):
        assert until(lambda: len(side.status()["journal"]) == 1)
        for _ in range(3):
            assert side.kubelet.endpoints[GPU].allocate(side.ids[0]).cdi_devices


def test_a_gpu_is_unhealthy_after_a_failure_and_healthy_after_its_recovery(side: Side) -> None:
    with daemon(side), serving(side):
        side.put(unhealthy_gpus.with_causes(side.inventories, 0, unhealthy_gpus.FELL))
        assert until(lambda: "Unhealthy" in side.kubelet.health())
        assert until(lambda: side.resource()["devices"][0]["causes"] == ["xid-79"])
        side.put(side.inventories)
        assert until(lambda: set(side.kubelet.health()) == {"Healthy"})


def test_a_removed_run_directory_is_made_again(side: Side) -> None:
    with daemon(side), cdigen_kubelet(side):
        assert until(lambda: side.status().get("state") == "registered")
        assert until(side.serves_http)
        shutil.rmtree(side.run_dir)
        assert until(lambda: side.status().get("state") == "registered")
        assert until(side.serves_http)


def test_a_killed_process_can_be_started_again(side: Side) -> None:
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
