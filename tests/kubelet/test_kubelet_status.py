"""The status.json and /metrics of the process that serves the kubelet."""

import json
from typing import Any

from support.json_output import validator
from support.kubelet.resources import GPU, card, changed, ids, replicas, resource, unit

from cdigen.cli.services.service_text import kubelet_text
from cdigen.config import RULE
from cdigen.kubelet.allocation.container_response import AllocationRefusal, ContainerResponse
from cdigen.kubelet.allocation.journal import MAX_JOURNAL, Allocation, AllocationJournal
from cdigen.kubelet.gpu_memory.node_writer import GpuMemoryState
from cdigen.kubelet.labels.label_file import LabelState
from cdigen.kubelet.metrics import MAX_POD_SERIES, render
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.status import MAX_UNITS, KubeletPluginStatus, RegisteredResource, document
from cdigen.model.findings import Finding
from cdigen.model.health import Cause
from cdigen.service.status import ServiceProcess
from cdigen.value import replace

MEMORY = "aliyun.com/gpu-mem"
PROCESS = ServiceProcess(pid=7, started=1, namespace="pid:[1]")


def served(gpus: Resource, state: str = "registered", **more: Any) -> RegisteredResource:
    return RegisteredResource(resource=gpus, state=state, since_s=20.0, **more)


def view(*resources: RegisteredResource, **more: Any) -> KubeletPluginStatus:
    return KubeletPluginStatus(started_s=10.0, kubelet_dir="/var/lib/kubelet", served=resources, **more)


def shown(status: KubeletPluginStatus) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document(status, PROCESS)))
    return found


def scraped(status: KubeletPluginStatus, journal: AllocationJournal | None = None) -> dict[str, float]:
    counted = journal or AllocationJournal()
    status = replace(status, allocations=counted.allocations, refused=counted.refused)
    lines = render(status, counted.durations).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def has(*ids: str, pod: str = "train", name: str = GPU) -> PodDevices:
    return PodDevices(namespace="ml", pod=pod, container="main", resource=name, ids=ids)


def test_the_state_is_registered_only_if_every_resource_is_registered() -> None:
    one, other = resource(1), Resource(name="amd.com/gpu", units=())

    assert view().state == "idle"
    assert view(served(one)).state == "registered"
    assert view(served(one, "waiting"), served(other, "waiting")).state == "waiting"
    assert view(served(one), served(other, "claimed-by-other")).state == "registering"


def test_the_reason_is_from_the_first_resource_that_is_not_registered() -> None:
    claimed = served(
        resource(1), "claimed-by-other", reason="another device plugin has registered the resource"
    )

    assert shown(view(claimed))["reason"] == f"{GPU}: another device plugin has registered the resource"
    assert shown(view(served(resource(1))))["reason"] == ""


def test_a_resource_is_shown_with_its_devices_and_their_causes() -> None:
    cause = Cause(cause="xid-79", since="", detail="", clears_when="")
    unhealthy = unit(card(1, health="unhealthy", causes=(cause,), numa_node=1))
    gpus = Resource(name=GPU, units=(unit(card(0, health="healthy")), unhealthy))

    row = shown(view(served(gpus, is_confirmed=True, registrations=2), pods=(has("GPU-0"),)))["resources"][0]

    assert row["devices"][1] == {
        "device": "GPU-1",
        "units": 1,
        "health": "unhealthy",
        "causes": ["xid-79"],
        "numa_node": 1,
        "names": [f"{GPU}=GPU-1"],
    }
    assert row["health"] == {"healthy": 1, "unhealthy": 1, "unknown": 0}
    assert (row["count"], row["allocated"], row["confirmed"], row["registrations"]) == (2, 1, True, 2)


def test_without_a_list_of_pods_the_number_of_allocated_devices_is_unknown() -> None:
    status = view(served(resource(1)))

    assert shown(status)["resources"][0]["allocated"] is None
    assert not [name for name in scraped(status) if "allocated_devices" in name or "pod_device" in name]


def test_the_journal_names_pod_and_container_or_the_reason_of_a_refusal() -> None:
    allocated = Allocation(at_s=30.0, resource=GPU, ids=("GPU-0",), names=(f"{GPU}=GPU-0",))
    refused = Allocation(at_s=31.0, resource=GPU, ids=("GPU-9",), cause="unknown_id", reason="no GPU-9")

    status = view(served(resource(1)), journal=(allocated, refused), pods=(has("GPU-0"),))
    first, second = shown(status)["journal"]

    assert (first["state"], first["namespace"], first["pod"], first["container"]) == (
        "held",
        "ml",
        "train",
        "main",
    )
    assert first["names"] == [f"{GPU}=GPU-0"]
    assert (second["state"], second["cause"], second["reason"], second["pod"]) == (
        "refused",
        "unknown_id",
        "no GPU-9",
        "",
    )


def test_allocations_of_other_plugins_are_not_in_the_journal() -> None:
    status = view(served(resource(1)), pods=(has("x", name="example.com/fpga"), has("GPU-0")))

    assert [row["resource"] for row in shown(status)["journal"]] == [GPU]


def test_the_document_stays_small_on_a_node_with_thousands_of_replicas() -> None:
    gpus = replicas(8, 625)
    many = tuple(Allocation(at_s=1.0, resource=GPU, ids=(id_,)) for id_ in ids(gpus, range(500)))

    found = shown(view(served(gpus), journal=many, pods=(has(*ids(gpus, range(5000))),)))

    assert found["resources"][0]["count"] == 5000
    assert len(found["resources"][0]["devices"]) == MAX_UNITS
    assert len(found["journal"]) == MAX_JOURNAL


def test_the_status_is_stale_while_the_daemon_does_not_run() -> None:
    status = view(served(resource(1)), stale=("the daemon does not run",))

    assert shown(status)["stale"] == ["the daemon does not run"]
    assert scraped(status)["cdigen_kubelet_stale"] == 1
    assert scraped(view())["cdigen_kubelet_stale"] == 0


def test_metrics_have_the_numbers_of_healthy_and_unhealthy_devices_and_of_registrations() -> None:
    gpus = changed(resource(3, health="healthy"), 0, health="unhealthy")

    found = scraped(
        view(served(gpus, registrations=3), served(Resource(name="x.com/y", units=()), "waiting"))
    )

    assert found[f'cdigen_kubelet_devices{{health="healthy",resource="{GPU}"}}'] == 2
    assert found[f'cdigen_kubelet_devices{{health="unhealthy",resource="{GPU}"}}'] == 1
    assert found[f'cdigen_kubelet_registered{{resource="{GPU}"}}'] == 1
    assert found['cdigen_kubelet_registered{resource="x.com/y"}'] == 0
    assert found[f'cdigen_kubelet_registrations_total{{resource="{GPU}"}}'] == 3


def test_metrics_have_the_devices_of_each_container() -> None:
    found = scraped(view(served(resource(2)), pods=(has("GPU-1"), has("x", name="example.com/fpga"))))

    row = f'container="main",device="GPU-1",namespace="ml",pod="train",resource="{GPU}"'
    assert {name: value for name, value in found.items() if "pod_device" in name} == {
        f"cdigen_kubelet_pod_device{{{row}}}": 1
    }
    assert found[f'cdigen_kubelet_allocated_devices{{resource="{GPU}"}}'] == 1


def memory(gpus: int, units: int) -> Resource:
    shared = replicas(gpus, units)
    made = tuple(replace(unit, id=unit.id.replace("::", "-_-")) for unit in shared.units)
    return Resource(name=MEMORY, units=made)


def test_memory_units_are_shown_as_their_gpu_and_a_count() -> None:
    gpus = memory(2, 5_000)
    changed_units = (replace(unit, health="unhealthy") for unit in gpus.units[:5_001])
    unhealthy = replace(gpus, units=(*changed_units, *gpus.units[5_001:]))
    first, second = (tuple(unit.id for unit in gpus.units[start : start + 300]) for start in (0, 5_000))
    allocated = Allocation(at_s=30.0, resource=MEMORY, ids=first[:100], count=300)
    pods = (
        PodDevices(namespace="ml", pod="train", container="main", resource=MEMORY, ids=first),
        PodDevices(namespace="ml", pod="old", container="main", resource=MEMORY, ids=second),
    )
    one = view(served(unhealthy), journal=(allocated,), pods=pods)

    found = shown(one)
    rows = found["resources"][0]["devices"]
    assert [(row["device"], row["units"], row["health"]) for row in rows] == [
        ("GPU-0", 5_000, "unhealthy"),
        ("GPU-1", 5_000, "unknown"),
    ]
    assert found["resources"][0]["allocated"] == 600
    journal = [(row["pod"], row["devices"], row["units"], row["state"]) for row in found["journal"]]
    assert journal == [("old", ["GPU-1"], 300, "held"), ("train", ["GPU-0"], 300, "held")]
    assert {name: value for name, value in scraped(one).items() if "pod_device" in name} == {
        "cdigen_kubelet_pod_device{"
        f'container="main",device="{gpu}",namespace="ml",pod="{pod}",resource="{MEMORY}"}}': 300
        for gpu, pod in (("GPU-0", "train"), ("GPU-1", "old"))
    }


def test_the_number_of_metric_series_of_pods_is_limited() -> None:
    gpus = replicas(8, 625)

    found = scraped(view(served(gpus), pods=(has(*ids(gpus, range(5000))),)))

    assert len([name for name in found if "pod_device" in name]) == MAX_POD_SERIES


def test_allocations_are_counted_by_resource_and_refusals_by_cause_starting_at_zero() -> None:
    journal = AllocationJournal()
    status = view(served(resource(1)))
    before = scraped(status, journal)
    journal.record(GPU, (), ContainerResponse(names=()), 0.0008)
    journal.record(GPU, (), AllocationRefusal(cause="no_spec", reason="…"), 2.0)

    after = scraped(status, journal)

    refused = f'cdigen_kubelet_refused_total{{cause="no_spec",resource="{GPU}"}}'
    assert (before[refused], after[refused]) == (0, 1)
    assert after[f'cdigen_kubelet_allocations_total{{resource="{GPU}"}}'] == 1
    assert after['cdigen_kubelet_allocate_seconds_bucket{le="0.001"}'] == 1
    assert after["cdigen_kubelet_allocate_seconds_count"] == 2


def test_an_invalid_configuration_shows_in_status_and_metrics() -> None:
    invalid = Finding(severity="error", rule=RULE, path="/etc/cdigen/config.yaml", message="…")
    status = view(problems=(invalid,))

    assert shown(status)["problems"][0]["rule"] == RULE
    assert (scraped(status)["cdigen_config_valid"], scraped(view())["cdigen_config_valid"]) == (0, 1)


def test_labels_of_the_node_are_shown_and_counted_if_they_are_configured() -> None:
    state = LabelState(file="/f/cdigen", state="written", labels=(("a.com/b", "1"),), expires_s=60.0)
    status = view(labels=state)
    validator("kubelet-status").validate(shown(status))
    assert shown(status)["labels"]["until"] == "1970-01-01T00:01:00.000Z"
    assert scraped(status)["cdigen_kubelet_labels"] == 1
    assert kubelet_text(shown(status), 30.0).splitlines()[1] == "  labels: 1 in /f/cdigen"
    failed = view(labels=replace(state, state="failed", reason="no space left"))
    validator("kubelet-status").validate(shown(failed))
    assert scraped(failed)["cdigen_kubelet_labels"] == 0
    assert kubelet_text(shown(failed), 30.0).splitlines()[1] == "  labels: no space left"
    assert not any("labels" in name for name in scraped(view()))


def test_gpu_memory_sharing_is_shown_and_counted_if_it_is_configured() -> None:
    state = GpuMemoryState(
        node="node1",
        node_problem="the API server refused PATCH /api/v1/nodes/node1: forbidden",
        pods=3,
        served=2,
        waiting=1,
        outcomes={"as_reserved": 4, "moved": 1, "exchanged": 2, "refused": 0},
        repaired=5,
    )
    status = view(shared_memory=state)
    validator("kubelet-status").validate(shown(status))
    found = scraped(status)
    assert found['cdigen_kubelet_shared_memory_ready{component="pods"}'] == 1
    assert found['cdigen_kubelet_shared_memory_ready{component="node"}'] == 0
    assert found['cdigen_kubelet_shared_memory_requests_total{outcome="exchanged"}'] == 2
    assert found['cdigen_kubelet_shared_memory_containers{state="waiting"}'] == 1
    assert found["cdigen_kubelet_shared_memory_repaired_total"] == 5
    lines = kubelet_text(shown(status), 30.0).splitlines()
    assert lines[1].startswith(
        "  GPU memory of node node1: 3 pods request it; containers with units: 2, waiting for units: 1; "
        "requests of the kubelet: 4 allocated as reserved, 1 after a reservation was moved, 2 after res"
    )
    assert lines[2] == "  GPU memory: the API server refused PATCH /api/v1/nodes/node1: forbidden"
    assert shown(view())["shared_memory"] is None
    assert not any("shared_memory" in name for name in scraped(view()))
