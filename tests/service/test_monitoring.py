"""The dashboard and the alert rules in examples/monitoring query existing metrics of each service."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.command.statuses import FACTS, board, served
from support.kubelet.resources import GPU
from support.paths import REPOSITORY
from support.values.cycle_reports import CHANGED, STARTED_S, STARTING
from support.values.unhealthy_gpus import FELL, example, with_causes

from cdigen.daemon.cycle.report import next_status
from cdigen.daemon.metrics.daemon import DaemonMetrics
from cdigen.daemon.stats import VendorStats
from cdigen.extender import status as extender
from cdigen.kubelet import metrics as kubelet
from cdigen.kubelet.allocation import container_response
from cdigen.kubelet.allocation.journal import AllocationJournal
from cdigen.kubelet.gpu_memory.node_writer import GpuMemoryState
from cdigen.model.profile import DEFAULT
from cdigen.model.stats import DeviceStats
from cdigen.nri import metrics as nri
from cdigen.nri.decision.decide import IGNORED_REQUEST_CAUSES
from cdigen.nri.decision.request.refusal import REFUSAL_CAUSES
from cdigen.pipeline.device_names import known_devices
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Callable

MONITORING = REPOSITORY / "examples/monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
# Labels that Prometheus adds to each scraped series.
OF_PROMETHEUS = {"instance", "job"}


def daemon_metrics() -> bytes:
    """Return the metrics of a daemon with an unhealthy device and all stats of a GPU."""
    metrics = DaemonMetrics(("files", "uevents", "timer"), clock=lambda: STARTED_S + 60)
    metrics.count(CHANGED)
    metrics.show(next_status(STARTING, CHANGED, {"files": ""}))
    metrics.show_devices(known_devices(with_causes(example(), 3, FELL), (DEFAULT,)))
    busy = DeviceStats(
        address="0000:1b:00.0",
        memory_total=2,
        memory_used=1,
        utilization=50,
        temperature=60,
        power=300,
        power_limit=700,
    )
    return metrics.render((VendorStats(vendor="nvidia", devices=(busy,), at_s=STARTED_S),))


def nri_metrics() -> bytes:
    return nri.render(board())


def kubelet_metrics() -> bytes:
    """Return the metrics of `cdigen kubelet` with a container, a refusal and shared GPUs."""
    journal = AllocationJournal()
    refusal = container_response.AllocationRefusal(cause=container_response.CAUSES[0], reason="")
    journal.record(GPU, (), refusal, 0.001)
    view = replace(served(), shared_memory=GpuMemoryState(node="node1"), refused=journal.refused)
    return kubelet.render(view, journal.durations)


def extender_metrics() -> bytes:
    return extender.render(FACTS, extender.ExtenderCounts())


@dataclass(frozen=True, kw_only=True)
class MonitoredService:
    """A service: its metrics, its file of alert rules, and the prefix of the names of its metrics."""

    render: Callable[[], bytes]
    file: str
    prefix: str

    def labels(self) -> dict[str, set[str]]:
        """Return the names of all samples, each with its labels."""
        found: dict[str, set[str]] = {}
        for family in text_string_to_metric_families(self.render().decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        return found

    def rules(self) -> list[dict[str, Any]]:
        document = yaml.safe_load((MONITORING / self.file).read_text())
        return [rule for group in document["groups"] for rule in group["rules"]]

    def alerts(self) -> list[str]:
        return [rule["expr"] for rule in self.rules()]


SERVICES = {
    "daemon": MonitoredService(render=daemon_metrics, file="alerts.yaml", prefix="cdigen_"),
    "nri": MonitoredService(render=nri_metrics, file="alerts-nri.yaml", prefix="cdigen_nri_"),
    "kubelet": MonitoredService(render=kubelet_metrics, file="alerts-kubelet.yaml", prefix="cdigen_kubelet_"),
    "extender": MonitoredService(
        render=extender_metrics, file="alerts-extender.yaml", prefix="cdigen_extender_"
    ),
}


def on_dashboard(name: str) -> list[str]:
    """Return the dashboard's expressions for the service NAME (only daemon and kubelet have any)."""
    targets = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    of_kubelet = [target for target in targets if "cdigen_kubelet_" in target]
    queries = [entry["query"] for entry in DASHBOARD["templating"]["list"] if entry["type"] == "query"]
    of_daemon = [*(target for target in targets if target not in of_kubelet), *queries]
    return {"daemon": of_daemon, "kubelet": of_kubelet}.get(name, [])


def used_labels(expression: str) -> set[str]:
    """Return the labels that EXPRESSION selects or groups by."""
    selected = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"", expression)
    grouped = [word for group in re.findall(r"by \(([^)]*)\)", expression) for word in group.split(", ")]
    return {*selected, *grouped}


every_service = pytest.mark.parametrize("name", SERVICES)


@every_service
def test_alerts_and_dashboard_query_existing_metrics_and_labels(name: str) -> None:
    labels = SERVICES[name].labels()
    for expression in (*SERVICES[name].alerts(), *on_dashboard(name)):
        names = set(re.findall(r"\b(?:cdigen|process)_\w+", expression))
        assert names <= labels.keys(), expression
        existing = {label for name in names for label in labels[name]} | OF_PROMETHEUS
        assert used_labels(expression) <= existing, expression


@every_service
def test_every_alert_has_a_name_a_severity_and_a_text(name: str) -> None:
    service = SERVICES[name]
    labels = service.labels()
    names = [rule["alert"] for rule in service.rules()]
    assert len(set(names)) == len(names)
    for rule in service.rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description"} <= rule["annotations"].keys(), rule["alert"]
        # A label that the expression drops would be empty in the text.
        grouped = re.match(r"(?:sum|count) by \(([^)]*)\)", rule["expr"])
        metrics = re.findall(r"\bcdigen_\w+", rule["expr"])
        kept = {*grouped[1].split(", ")} if grouped else {label for name in metrics for label in labels[name]}
        in_text = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert in_text <= kept | OF_PROMETHEUS, rule["alert"]


# Some metrics of the daemon are only in alerts, not in a panel.
@pytest.mark.parametrize(("name", "elsewhere"), [("daemon", SERVICES["daemon"].alerts()), ("kubelet", [])])
def test_every_metric_is_on_the_dashboard_or_in_an_alert(name: str, elsewhere: list[str]) -> None:
    service = SERVICES[name]
    queried = " ".join((*on_dashboard(name), *elsewhere))
    own = {metric for metric in service.labels() if metric.startswith(service.prefix)}
    families = {re.sub(r"_(?:bucket|count|sum|created)$", "", metric) for metric in own}
    assert {family for family in families if family not in queried} == set()


def test_all_metrics_of_the_nri_plugin_are_documented_with_their_labels() -> None:
    page = (REPOSITORY / "docs/reference/nri.md").read_text()
    rows = re.findall(r"^\| `(cdigen_(?:nri|config)_\w+)` \|([^|]*)\|", page, re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert documented == {
        name.removesuffix("_bucket"): labels - {"le"}
        for name, labels in SERVICES["nri"].labels().items()
        if name.startswith(("cdigen_nri_", "cdigen_config_"))
        and not name.endswith(("_count", "_sum", "_created"))
    }


def test_all_metrics_of_the_extender_are_documented() -> None:
    page = (REPOSITORY / "docs/reference/gpu-memory.md").read_text()
    own = {name for name in SERVICES["extender"].labels() if name.startswith("cdigen_extender_")}
    assert {name for name in own if f"`{name}`" not in page} == set()


def test_each_cause_of_a_refusal_by_the_device_plugin_is_documented() -> None:
    page = (REPOSITORY / "docs/reference/kubernetes.md").read_text()
    assert [cause for cause in container_response.CAUSES if f"| `{cause}` |" not in page] == []


def test_each_result_and_verb_of_the_extender_has_a_series_from_the_start() -> None:
    text = extender_metrics().decode()
    for result in extender.RESULTS:
        assert f'cdigen_extender_binds_total{{result="{result}"}} 0.0' in text
    for verb in extender.VERBS:
        assert f'verb="{verb}"' in text


def test_panels_do_not_overlap_and_have_distinct_ids() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_causes_in_alerts_of_the_nri_plugin_exist() -> None:
    text = (MONITORING / SERVICES["nri"].file).read_text()
    assert set(re.findall(r'cause!?="(\w+)"', text)) <= {*REFUSAL_CAUSES, *IGNORED_REQUEST_CAUSES}
