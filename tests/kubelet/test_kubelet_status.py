"""What status.json and /metrics say of the process that serves the kubelet."""

import json
from typing import Any

from support.json_output import validator
from support.kubelet.resources import GPU, card, changed, ids, replicas, resource, unit

from cdigen.cli.front_end_text import kubelet_text
from cdigen.config import RULE
from cdigen.frontend.status import Process
from cdigen.kubelet.answers import Answer, Refusal
from cdigen.kubelet.counts import Counts
from cdigen.kubelet.journal import Allocation
from cdigen.kubelet.labels.keeper import LabelState
from cdigen.kubelet.metrics import MAX_POD_SERIES, Collector
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.shares.state import SharesState
from cdigen.kubelet.status import MAX_JOURNAL, MAX_UNITS, Served, View, document
from cdigen.model.findings import Finding
from cdigen.model.health import Cause
from cdigen.value import replace

MEMORY = "aliyun.com/gpu-mem"
PROCESS = Process(pid=7, started=1, namespace="pid:[1]")


def served(of: Resource, state: str = "registered", **more: Any) -> Served:
    return Served(resource=of, state=state, since_s=20.0, **more)


def view(*of: Served, **more: Any) -> View:
    return View(started_s=10.0, kubelet_dir="/var/lib/kubelet", served=of, **more)


def shown(of: View) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document(of, PROCESS)))
    return found


def scraped(of: View, counts: Counts | None = None) -> dict[str, float]:
    lines = Collector(lambda: of, counts or Counts()).render().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def has(*ids: str, pod: str = "train", of: str = GPU) -> PodDevices:
    return PodDevices(namespace="ml", pod=pod, container="main", resource=of, ids=ids)


def test_the_state_is_registered_only_when_every_resource_is() -> None:
    one, other = resource(1), Resource(name="amd.com/gpu", units=())

    assert view().state == "idle"
    assert view(served(one)).state == "registered"
    assert view(served(one, "waiting"), served(other, "waiting")).state == "waiting"
    assert view(served(one), served(other, "taken")).state == "registering"


def test_the_reason_is_that_of_the_first_resource_that_is_not_registered() -> None:
    taken = served(resource(1), "taken", reason="another device plugin has registered it")

    assert shown(view(taken))["reason"] == f"{GPU}: another device plugin has registered it"
    assert shown(view(served(resource(1))))["reason"] == ""


def test_a_resource_is_shown_with_its_devices_and_their_causes() -> None:
    cause = Cause(cause="xid-79", since="", detail="", clears_when="")
    sick = unit(card(1, health="unhealthy", causes=(cause,), numa_node=1))
    of = Resource(name=GPU, units=(unit(card(0, health="healthy")), sick))

    row = shown(view(served(of, is_confirmed=True, registrations=2), pods=(has("GPU-0"),)))["resources"][0]

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


def test_where_the_kubelet_does_not_tell_no_number_of_allocated_devices_is_shown() -> None:
    of = view(served(resource(1)))

    assert shown(of)["resources"][0]["allocated"] is None
    assert not [name for name in scraped(of) if "allocated_devices" in name or "pod_device" in name]


def test_the_journal_names_pod_and_container_or_the_reason_of_a_refusal() -> None:
    given = Allocation(at_s=30.0, resource=GPU, ids=("GPU-0",), names=(f"{GPU}=GPU-0",))
    bad = Allocation(at_s=31.0, resource=GPU, ids=("GPU-9",), cause="unknown_id", reason="no GPU-9")

    first, second = shown(view(served(resource(1)), allocations=(given, bad), pods=(has("GPU-0"),)))[
        "journal"
    ]

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


def test_what_other_plugins_give_is_not_in_the_journal() -> None:
    of = view(served(resource(1)), pods=(has("x", of="example.com/fpga"), has("GPU-0")))

    assert [row["resource"] for row in shown(of)["journal"]] == [GPU]


def test_the_document_stays_small_on_a_node_with_thousands_of_replicas() -> None:
    of = replicas(8, 625)
    many = tuple(Allocation(at_s=1.0, resource=GPU, ids=(id_,)) for id_ in ids(of, range(500)))

    found = shown(view(served(of), allocations=many, pods=(has(*ids(of, range(5000))),)))

    assert found["resources"][0]["count"] == 5000
    assert len(found["resources"][0]["devices"]) == MAX_UNITS
    assert len(found["journal"]) == MAX_JOURNAL


def test_a_state_that_nobody_keeps_current_is_said_to_be_stale() -> None:
    of = view(served(resource(1)), stale=("the daemon does not run",))

    assert shown(of)["stale"] == ["the daemon does not run"]
    assert scraped(of)["cdigen_kubelet_stale"] == 1
    assert scraped(view())["cdigen_kubelet_stale"] == 0


def test_metrics_count_devices_by_health_and_registrations() -> None:
    of = changed(resource(3, health="healthy"), 0, health="unhealthy")

    found = scraped(view(served(of, registrations=3), served(Resource(name="x.com/y", units=()), "waiting")))

    assert found[f'cdigen_kubelet_devices{{health="healthy",resource="{GPU}"}}'] == 2
    assert found[f'cdigen_kubelet_devices{{health="unhealthy",resource="{GPU}"}}'] == 1
    assert found[f'cdigen_kubelet_registered{{resource="{GPU}"}}'] == 1
    assert found['cdigen_kubelet_registered{resource="x.com/y"}'] == 0
    assert found[f'cdigen_kubelet_registrations_total{{resource="{GPU}"}}'] == 3


def test_metrics_tell_which_container_has_which_device() -> None:
    found = scraped(view(served(resource(2)), pods=(has("GPU-1"), has("x", of="example.com/fpga"))))

    row = f'container="main",device="GPU-1",namespace="ml",pod="train",resource="{GPU}"'
    assert {name: value for name, value in found.items() if "pod_device" in name} == {
        f"cdigen_kubelet_pod_device{{{row}}}": 1
    }
    assert found[f'cdigen_kubelet_allocated_devices{{resource="{GPU}"}}'] == 1


def memory(gpus: int, units: int) -> Resource:
    of = replicas(gpus, units)
    made = tuple(replace(unit, id=unit.id.replace("::", "-_-")) for unit in of.units)
    return Resource(name=MEMORY, units=made)


def test_units_of_memory_are_told_by_their_gpu_and_how_many_they_are() -> None:
    of = memory(2, 5_000)
    bad = (replace(unit, health="unhealthy") for unit in of.units[:5_001])
    sick = replace(of, units=(*bad, *of.units[5_001:]))
    first, second = (tuple(unit.id for unit in of.units[start : start + 300]) for start in (0, 5_000))
    given = Allocation(at_s=30.0, resource=MEMORY, ids=first[:100], count=300)
    pods = (
        PodDevices(namespace="ml", pod="train", container="main", resource=MEMORY, ids=first),
        PodDevices(namespace="ml", pod="old", container="main", resource=MEMORY, ids=second),
    )
    one = view(served(sick), allocations=(given,), pods=pods)

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


def test_series_of_pods_are_bounded() -> None:
    of = replicas(8, 625)

    found = scraped(view(served(of), pods=(has(*ids(of, range(5000))),)))

    assert len([name for name in found if "pod_device" in name]) == MAX_POD_SERIES


def test_answers_are_counted_by_resource_and_refusals_by_cause_from_zero_on() -> None:
    counts = Counts()
    of = view(served(resource(1)))
    before = scraped(of, counts)
    counts.add(GPU, Answer(names=()), 0.0008)
    counts.add(GPU, Refusal(cause="no_spec", reason="…"), 2.0)

    after = scraped(of, counts)

    refused = f'cdigen_kubelet_refused_total{{cause="no_spec",resource="{GPU}"}}'
    assert (before[refused], after[refused]) == (0, 1)
    assert after[f'cdigen_kubelet_allocations_total{{resource="{GPU}"}}'] == 1
    assert after['cdigen_kubelet_allocate_seconds_bucket{le="0.001"}'] == 1
    assert after["cdigen_kubelet_allocate_seconds_count"] == 2


def test_a_configuration_that_does_not_count_shows_in_status_and_metrics() -> None:
    bad = Finding(severity="error", rule=RULE, path="/etc/cdigen/config.yaml", message="…")
    of = view(problems=(bad,))

    assert shown(of)["problems"][0]["rule"] == RULE
    assert (scraped(of)["cdigen_config_valid"], scraped(view())["cdigen_config_valid"]) == (0, 1)


def test_labels_of_the_node_are_shown_and_counted_where_they_are_wanted() -> None:
    state = LabelState(file="/f/cdigen", state="written", labels=(("a.com/b", "1"),), expires_s=60.0)
    of = view(labels=state)
    validator("kubelet-status").validate(shown(of))
    assert shown(of)["labels"]["until"] == "1970-01-01T00:01:00.000Z"
    assert scraped(of)["cdigen_kubelet_labels"] == 1
    assert kubelet_text(shown(of), 30.0).splitlines()[1] == "  labels: 1 in /f/cdigen"
    failed = view(labels=replace(state, state="failed", reason="no space left"))
    validator("kubelet-status").validate(shown(failed))
    assert scraped(failed)["cdigen_kubelet_labels"] == 0
    assert kubelet_text(shown(failed), 30.0).splitlines()[1] == "  labels: no space left"
    assert not any("labels" in name for name in scraped(view()))


def test_shares_by_memory_are_shown_and_counted_where_there_are_some() -> None:
    state = SharesState(
        node="node1",
        node_problem="the API server does not let us write /api/v1/nodes/node1: forbidden",
        pods=3,
        served=2,
        waiting=1,
        outcomes={"promised": 4, "moved": 1, "exchanged": 2, "refused": 0},
        repaired=5,
    )
    of = view(shares=state)
    validator("kubelet-status").validate(shown(of))
    found = scraped(of)
    assert found['cdigen_kubelet_shares_well{what="pods"}'] == 1
    assert found['cdigen_kubelet_shares_well{what="node"}'] == 0
    assert found['cdigen_kubelet_shares_requests_total{outcome="exchanged"}'] == 2
    assert found['cdigen_kubelet_shares_containers{state="waiting"}'] == 1
    assert found["cdigen_kubelet_shares_repaired_total"] == 5
    lines = kubelet_text(shown(of), 30.0).splitlines()
    assert lines[1].startswith(
        "  shares of node node1: 3 pods ask, 2 containers served and 1 waiting; 4 as pro"
    )
    assert lines[2] == "  shares: the API server does not let us write /api/v1/nodes/node1: forbidden"
    assert shown(view())["shares"] is None
    assert not any("shares" in name for name in scraped(view()))
