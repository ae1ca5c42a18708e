"""The alert rules and the dashboard ask what the process that serves the kubelet tells."""

import json
import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.kubelet.resources import GPU, resource

from cdigen.kubelet.answers import CAUSES, Refusal
from cdigen.kubelet.counts import Counts
from cdigen.kubelet.metrics import Collector
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.shares.state import SharesState
from cdigen.kubelet.status import Served, View

MONITORING = Path(__file__).resolve().parents[2] / "examples/monitoring"
ALERTS = MONITORING / "alerts-kubelet.yaml"


def scraped() -> dict[str, set[str]]:
    """Return the names of all metrics of the process, each with its labels."""
    counts = Counts()
    counts.add(GPU, Refusal(cause=CAUSES[0], reason=""), 0.001)
    pods = (PodDevices(namespace="ml", pod="train", container="main", resource=GPU, ids=("GPU-0",)),)
    one = Served(resource=resource(1), state="registered", since_s=20.0, registrations=1)
    shares = SharesState(node="node1")
    view = View(started_s=10.0, kubelet_dir="/var/lib/kubelet", served=(one,), pods=pods, shares=shares)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(Collector(lambda: view, counts).render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(ALERTS.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def shown() -> list[str]:
    """Return what the dashboard's row asks."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [expression for expression in expressions if "cdigen_kubelet_" in expression]


def test_alerts_and_dashboard_ask_only_for_metrics_and_labels_that_exist() -> None:
    there = scraped()
    for expression in (*(rule["expr"] for rule in rules()), *shown()):
        names = set(re.findall(r"\bcdigen_\w+", expression))
        assert names <= set(there), expression
        context = {label for name in names for label in there[name]} | {"instance", "job"}
        used = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"", expression)
        used += [word for group in re.findall(r"by \(([^)]*)\)", expression) for word in group.split(", ")]
        assert set(used) <= context, expression


def test_every_metric_of_the_process_is_on_the_dashboard() -> None:
    ours = {name for name in scraped() if name.startswith("cdigen_kubelet_")}
    asked = " ".join(shown())
    left = {name for name in ours if re.sub(r"_(?:bucket|count|sum|created)$", "", name) not in asked}
    assert left == set()


def test_every_alert_of_the_kubelet_says_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description"} <= rule["annotations"].keys(), rule["alert"]
        # A value or label that the expression does not leave would be empty.
        kept = re.match(r"(?:sum|count) by \(([^)]*)\)", rule["expr"])
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert kept is None or named <= {*kept[1].split(", ")}, rule["alert"]


def test_what_each_refusal_means_is_in_the_documentation() -> None:
    page = (MONITORING.parents[1] / "docs/kubernetes.md").read_text()
    assert [cause for cause in CAUSES if f"| `{cause}` |" not in page] == []


def test_panels_lie_side_by_side_and_have_numbers_of_their_own() -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
