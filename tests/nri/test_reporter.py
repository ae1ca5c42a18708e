"""What is written of what the link tells, by the reporter alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.nri.host import POD, container

from cdigen.config import NriConfig, Settings
from cdigen.frontend.earlylog import EarlyLog
from cdigen.frontend.host_state import HostSources
from cdigen.nri import events
from cdigen.nri.decision.answer import Answer
from cdigen.nri.decision.compat import abilities
from cdigen.nri.decision.decide import Note
from cdigen.nri.plugin_config import Endpoint, PluginConfig
from cdigen.nri.pods import container_name
from cdigen.nri.reporter import Reporter
from cdigen.nri.shared_state import NriMetrics
from cdigen.nri.status import PluginStatus
from cdigen.nri.wire.messages import RuntimeInfo

if TYPE_CHECKING:
    from pathlib import Path


class Lines:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **facts: self.rows.append((level, event, facts))


class Told:
    """A reporter, and what it has written."""

    def __init__(self, plugins: Path, **nri: Any) -> None:
        self.lines = Lines()
        log = EarlyLog()
        log.hand_over(self.lines)
        made = setup(plugins, Settings(nri=NriConfig(**nri)))
        self._reporter = Reporter(PluginStatus(NriMetrics()), log, lambda: made)

    def take(self, told: events.Event) -> None:
        self._reporter.take(told, None)

    def of(self, event: str) -> list[tuple[str, dict[str, Any]]]:
        return [(level, facts) for level, name, facts in self.lines.rows if name == event]


def setup(plugins: Path, settings: Settings) -> PluginConfig:
    sources = HostSources(host="/", specs="/", spec_dirs=(), runs="/", run_dir="/run/cdigen")
    given: dict[str, Any] = {
        "settings": settings,
        "endpoint": Endpoint(path="/nri.sock"),
        "name": "cdigen",
        "index": "20",
        "run_dir": "/run/cdigen-nri",
        "sources": sources,
        "watched": (),
        "plugin_dir": str(plugins),
    }
    return PluginConfig(**given)


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


CONFIGURATION = RuntimeInfo(
    config="",
    runtime="containerd",
    version="2.3.4",
    nri_version="v0.12.0",
    request_timeout_ms=2000,
)
INTRODUCED = events.RuntimeConfigured(runtime=CONFIGURATION, abilities=abilities("containerd", "2.3.4"))
OTHERS = events.PluginsChanged(plugins=("10-nvidia-ctk-installer", "20-cdigen"))


def test_nvidias_own_plugin_is_warned_of_once_while_the_runtime_is_there(told: Told) -> None:
    told.take(INTRODUCED)
    told.take(OTHERS)
    told.take(OTHERS)
    ((level, facts),) = told.of("other injector")
    assert level == "warning"
    assert "10-nvidia-ctk-installer, which is registered as well" in facts["message"]
    assert "take nvidia out of 'nri: annotations'" in facts["hint"]
    told.take(INTRODUCED)
    told.take(OTHERS)
    assert len(told.of("other injector")) == 2


def test_a_plugin_whose_annotations_are_not_read_here_is_none_to_warn_of(tmp_path: Path) -> None:
    told = Told(tmp_path, annotations=("cdigen",))
    told.take(OTHERS)
    assert told.of("other injector") == []
    assert told.of("plugins") == [("info", {"names": list(OTHERS.plugins)})]


def test_an_injector_is_warned_of_once_by_its_file_and_its_name(told: Told, tmp_path: Path) -> None:
    (tmp_path / "10-device-injector").touch()
    told.take(INTRODUCED)
    told.take(events.PluginsChanged(plugins=("10-device-injector",)))
    ((_, facts),) = told.of("other injector")
    assert f"lies in {tmp_path}" in facts["message"]


@pytest.mark.parametrize("outcome", ["served", "inject"])
def test_nodes_without_the_driver_are_warned_of(told: Told, outcome: Any) -> None:
    note = Note(cause="nodes_without_driver", text="nodes of GPUs are there")
    for notes in ((), (note,)):
        made = Answer(outcome=outcome, notes=notes)
        told.take(
            events.ContainerDecided(name=container_name(POD, container()), answer=made, duration_s=0.001)
        )
    ((level, facts),) = told.of("no driver")
    assert (level, facts["notes"]) == ("warning", ["nodes of GPUs are there"])
    assert "cdi-cri" in facts["hint"]
