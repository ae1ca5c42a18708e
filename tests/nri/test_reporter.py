"""The reporter writes log lines for events of the link to the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.nri.host import POD, container

from cdigen.config import NriConfig, Settings
from cdigen.nri import events
from cdigen.nri.decision.decide import IgnoredRequest
from cdigen.nri.decision.result.compat import abilities
from cdigen.nri.decision.result.injection import InjectionResult
from cdigen.nri.plugin_config import Endpoint, NriPluginConfig
from cdigen.nri.pods import container_name
from cdigen.nri.reporter import Reporter
from cdigen.nri.shared_state import NriMetrics
from cdigen.nri.status import PluginStatus
from cdigen.nri.wire.messages import RuntimeInfo
from cdigen.service.host_state import HostSources
from cdigen.service.process.buffered_log import BufferedLogger

if TYPE_CHECKING:
    from pathlib import Path


class Lines:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **facts: self.rows.append((level, event, facts))


class Reported:
    """A reporter, and its log lines."""

    def __init__(self, plugins: Path, **nri: Any) -> None:
        self.lines = Lines()
        log = BufferedLogger()
        log.hand_over(self.lines)
        made = setup(plugins, Settings(nri=NriConfig(**nri)))
        self._reporter = Reporter(PluginStatus(NriMetrics()), log, lambda: made)

    def take(self, event: events.Event) -> None:
        self._reporter.take(event, None)

    def of(self, event: str) -> list[tuple[str, dict[str, Any]]]:
        return [(level, facts) for level, name, facts in self.lines.rows if name == event]


def setup(plugins: Path, settings: Settings) -> NriPluginConfig:
    sources = HostSources(host="/", specs="/", spec_dirs=(), runs="/", run_dir="/run/cdigen")
    fields: dict[str, Any] = {
        "settings": settings,
        "endpoint": Endpoint(path="/nri.sock"),
        "name": "cdigen",
        "index": "20",
        "run_dir": "/run/cdigen-nri",
        "sources": sources,
        "watched": (),
        "plugin_dir": str(plugins),
    }
    return NriPluginConfig(**fields)


@pytest.fixture
def reported(tmp_path: Path) -> Reported:
    return Reported(tmp_path)


CONFIGURATION = RuntimeInfo(
    config="",
    runtime="containerd",
    version="2.3.4",
    nri_version="v0.12.0",
    request_timeout_ms=2000,
)
CONFIGURED = events.RuntimeConfigured(runtime=CONFIGURATION, abilities=abilities("containerd", "2.3.4"))
OTHERS = events.PluginsChanged(plugins=("10-nvidia-ctk-installer", "20-cdigen"))


def test_nvidias_plugin_is_reported_once_per_connection(reported: Reported) -> None:
    reported.take(CONFIGURED)
    reported.take(OTHERS)
    reported.take(OTHERS)
    ((level, facts),) = reported.of("plugin_conflict")
    assert level == "warning"
    assert "10-nvidia-ctk-installer, which is registered as well" in facts["message"]
    assert "remove nvidia from 'nri: annotations'" in facts["hint"]
    reported.take(CONFIGURED)
    reported.take(OTHERS)
    assert len(reported.of("plugin_conflict")) == 2


def test_a_plugin_with_other_annotations_is_not_reported(tmp_path: Path) -> None:
    reported = Reported(tmp_path, annotations=("cdigen",))
    reported.take(OTHERS)
    assert reported.of("plugin_conflict") == []
    assert reported.of("plugins") == [("info", {"names": list(OTHERS.plugins)})]


def test_a_conflicting_plugin_with_a_file_and_a_registration_is_reported_once(
    reported: Reported, tmp_path: Path
) -> None:
    (tmp_path / "10-device-injector").touch()
    reported.take(CONFIGURED)
    reported.take(events.PluginsChanged(plugins=("10-device-injector",)))
    ((_, facts),) = reported.of("plugin_conflict")
    assert f"is in {tmp_path}" in facts["message"]


@pytest.mark.parametrize("outcome", ["served", "inject"])
def test_nodes_without_the_drivers_files_are_reported(reported: Reported, outcome: Any) -> None:
    ignored = IgnoredRequest(cause="nodes_without_driver", text="nodes of GPUs are there")
    for ignored_requests in ((), (ignored,)):
        made = InjectionResult(outcome=outcome, ignored_requests=ignored_requests)
        reported.take(
            events.ContainerDecided(name=container_name(POD, container()), result=made, duration_s=0.001)
        )
    ((level, facts),) = reported.of("driver_files_missing")
    assert (level, facts["ignored_requests"]) == ("warning", ["nodes of GPUs are there"])
    assert "cdi-cri" in facts["hint"]
