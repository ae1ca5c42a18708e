"""The alert rules ask what the extender tells, and say what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cdigen.extender.metrics import RESULTS, VERBS, Counts, render
from cdigen.extender.status import Facts, Listed

REPOSITORY = Path(__file__).resolve().parents[2]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((REPOSITORY / "examples/monitoring/alerts-extender.yaml").read_text())[
        "groups"
    ]
    for rule in group["rules"]
]
FACTS = Facts(
    started_s=1.0,
    since_s=1.0,
    waits_for="",
    port=1,
    nodes=1,
    pods=2,
    total=8,
    used=3,
    binds={},
    lists=(Listed(name="pods", problem="", heard_s=1.5),),
)
OF_PROMETHEUS = {"instance", "job"}


def scraped() -> dict[str, set[str]]:
    """Return the names of all metrics, each with its labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(render(FACTS, Counts()).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_each_result_and_verb_is_there_from_the_beginning() -> None:
    text = render(FACTS, Counts()).decode()
    for result in RESULTS:
        assert f'cdigen_extender_binds_total{{result="{result}"}} 0.0' in text
    for verb in VERBS:
        assert f'verb="{verb}"' in text


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_only_for_what_there_is_and_says_what_to_do(rule: dict[str, Any]) -> None:
    there = scraped()
    names = set(re.findall(r"\bcdigen_\w+", rule["expr"]))
    assert names <= set(there)
    labels = {label for name in names for label in there[name]} | OF_PROMETHEUS
    used = re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", rule["expr"])
    used += [word for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for word in group.split(", ")]
    assert set(used) <= labels
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert {"summary", "description"} <= rule["annotations"].keys()
    said = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= labels


def test_each_alert_has_a_name_of_its_own() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)


def test_every_metric_is_documented() -> None:
    text = (REPOSITORY / "docs/sharing.md").read_text()
    ours = {name for name in scraped() if name.startswith("cdigen_extender_")}
    assert {name for name in ours if f"`{name}`" not in text} == set()
