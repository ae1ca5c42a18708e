"""docs/nri.md and the alert rules say what the code does."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cdigen.nri.decision.compat import abilities
from cdigen.nri.decision.decide import NOTES
from cdigen.nri.decision.refusal import CAUSES
from cdigen.nri.metrics import NriCollector
from cdigen.nri.shared_state import NriMetrics
from cdigen.nri.status import PluginStatus
from cdigen.runtimes.releases import NRI

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / "docs/nri.md").read_text()
ALERTS = REPOSITORY / "examples/monitoring/alerts-nri.yaml"


def scraped() -> dict[str, set[str]]:
    """Return the names of all metrics of ours, each with its labels."""
    board = PluginStatus(NriMetrics())
    board.abilities = abilities("containerd", "2.1.9")
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(NriCollector(board).render().decode()):
        for sample in family.samples:
            if sample.name.startswith(("cdigen_nri_", "cdigen_config_")):
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def table(head: str) -> str:
    """Return the rows of the table that begins with HEAD."""
    return TEXT.partition(f"\n{head}")[2].partition("\n\n")[0]


def named(head: str) -> set[str]:
    """Return what the first column of a table has in back quotes."""
    firsts = [row.split("|")[1] for row in table(head).splitlines() if row.startswith("| ")]
    return {name for first in firsts for name in re.findall(r"`([^`]+)`", first)}


def test_all_metrics_are_documented_with_their_labels() -> None:
    rows = re.findall(r"^\| `(cdigen_(?:nri|config)_\w+)` \|([^|]*)\|", TEXT, re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    there = {
        name.removesuffix("_bucket"): labels - {"le"}
        for name, labels in scraped().items()
        if not name.endswith(("_count", "_sum", "_created"))
    }
    assert documented == there


def test_all_causes_are_documented() -> None:
    assert named("| cause of a refusal") == set(CAUSES)
    assert named("| cause of a note") == set(NOTES)


@pytest.mark.parametrize("runtime", [*NRI])
def test_the_table_of_runtimes_is_that_of_the_code(runtime: str) -> None:
    titles = {"containerd": "containerd", "cri-o": "CRI-O", "docker": "Docker"}
    rows = re.findall(rf"^\| {titles[runtime]} ([0-9.]+)(?: to ([0-9.]+))?(.*)$", TEXT, re.MULTILINE)
    assert rows
    for first, last, rest in rows:
        words = {"injects": "injected", "drops": "dropped", "refuses": "refused"}
        for version in filter(None, (first, last)):
            able = abilities(runtime, version)
            assert words[able.cdi] in rest, version
            if runtime != "docker":
                assert able.validates is rest.endswith("| yes |"), version


def test_alerts_ask_only_for_metrics_and_labels_that_exist() -> None:
    there = scraped()
    for rule in rules():
        expression = rule["expr"]
        names = set(re.findall(r"\bcdigen_\w+", expression))
        assert names <= set(there), expression
        context = {label for name in names for label in there[name]} | {"instance", "job"}
        used = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"", expression)
        used += [word for group in re.findall(r"by \(([^)]*)\)", expression) for word in group.split(", ")]
        assert set(used) <= context, expression


def test_causes_that_alerts_name_exist() -> None:
    named_causes = re.findall(r'cause!?="(\w+)"', ALERTS.read_text())
    assert set(named_causes) <= {*CAUSES, *NOTES}


def test_every_alert_of_the_plugin_says_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description"} <= rule["annotations"].keys(), rule["alert"]


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(ALERTS.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]
