"""`cdigen nri` deregisters when it stops. Without a deregistration, a runtime refuses the next container."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from support.nri.adaptation import CREATE, VALIDATE, Adaptation
from support.nri.plugin import (
    INJECTS_08,
    INJECTS_10,
    INJECTS_12,
    VISIBLE,
    Host,
    Plugin,
    cdi_devices,
    host,
    plugin,
)
from support.nri.runtime import Rejected
from support.waiting import PATIENCE_S, limited, until

from cdigen.nri.status import PARTS
from cdigen.service.status import ENDED, read_service

GPU = f"{VISIBLE}=0"
# The limit for the stop of a plugin, for any behaviour of the runtime (cdigen.service.process.signals).
LEFT_WITHIN_S = 1.7


@pytest.fixture(params=[INJECTS_12], ids=["NRI 0.12"])
def runtime(running: Plugin, request: pytest.FixtureRequest) -> Adaptation:
    """Return a runtime with the NRI version of the parameter. The plugin is registered with this runtime."""
    made = Adaptation(running.host, **request.param)
    made.register()
    running.serves()
    return made


@pytest.mark.parametrize("runtime", [INJECTS_10, INJECTS_12], ids=["NRI 0.10", "NRI 0.12"], indirect=True)
def test_the_next_container_after_a_stop_is_created(runtime: Adaptation, running: Plugin) -> None:
    assert cdi_devices(runtime.create(GPU)) == ["nvidia.com/gpu=0"]
    running.process.send_signal(signal.SIGTERM)
    last = runtime.register()
    assert runtime.names == ["20-cdigen-leaving"]
    assert running.process.wait(PATIENCE_S) == 0
    assert until(lambda: last.is_closed)
    assert runtime.create() is None
    assert not last.events & (CREATE | VALIDATE)
    assert runtime.names == []
    assert not running.lines("deregistration_failed")


def test_containers_get_their_devices_until_the_deregistration(runtime: Adaptation, running: Plugin) -> None:
    running.process.send_signal(signal.SIGTERM)
    last = runtime.begin()
    last.start()
    assert cdi_devices(runtime.create(GPU)) == ["nvidia.com/gpu=0"]
    assert not cdi_devices(runtime.create())
    runtime.end(last)
    assert running.process.wait(PATIENCE_S) == 0
    assert runtime.create(GPU) is None


def test_a_plugin_that_starts_after_a_stop_injects_at_once() -> None:
    with host() as here:
        runtime = Adaptation(here)
        for _ in range(3):
            with plugin(here) as running:
                runtime.register()
                running.serves()
                assert cdi_devices(runtime.create(GPU)) == ["nvidia.com/gpu=0"]
                running.process.send_signal(signal.SIGTERM)
                runtime.register()
                assert running.process.wait(PATIENCE_S) == 0


@limited(LEFT_WITHIN_S)
def test_the_plugin_ends_without_a_deregistration_and_logs_the_consequence(
    runtime: Adaptation, running: Plugin, within_s: float
) -> None:
    start_s = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - start_s < within_s
    (line,) = running.lines("deregistration_failed")
    assert "0.9 s" in line["reason"]
    with pytest.raises(Rejected, match="ttrpc: closed"):
        runtime.create()
    assert runtime.create() is None


def test_the_plugin_ends_after_a_refused_deregistration(runtime: Adaptation, running: Plugin) -> None:
    running.process.send_signal(signal.SIGTERM)
    runtime.begin().refuse_registration("invalid plugin name")
    assert running.process.wait(PATIENCE_S) == 0
    (line,) = running.lines("deregistration_failed")
    assert "invalid plugin name" in line["reason"]


@pytest.mark.parametrize("runtime", [INJECTS_08], ids=["NRI 0.8"], indirect=True)
def test_the_plugin_ends_at_once_if_the_runtime_has_no_validators(
    runtime: Adaptation, running: Plugin
) -> None:
    assert running.stop() == 0
    assert runtime.create() is None
    assert not running.lines("deregistration_failed")


def test_a_container_that_is_refused_during_the_stop_is_logged(
    runtime: Adaptation, here: Host, running: Plugin
) -> None:
    running.process.send_signal(signal.SIGTERM)
    last = runtime.begin()
    last.start()
    # A stopping plugin does not read the changes of the host.
    here.write_spec(("0", "1", "2", "all"))
    with pytest.raises(Rejected, match="the plugin is stopping"):
        runtime.create(f"{VISIBLE}=2")
    done = threading.Thread(target=runtime.end, args=(last,))
    done.start()
    assert running.process.wait(PATIENCE_S) == 0
    done.join(PATIENCE_S)
    (line,) = running.lines("refused")
    assert "the plugin is stopping" in line["reason"]


def test_the_state_of_a_killed_plugin_is_read_as_ended(here: Host, running: Plugin) -> None:
    Adaptation(here).register()
    running.sees(lambda: running.state == "registered")
    running.stop(signal.SIGKILL)
    assert running.state == "registered"
    found = read_service(str(here.run_dir), PARTS)
    assert found is not None
    assert found["state"] == ENDED
    assert f"process {running.process.pid} wrote the status, but no process holds" in found["reason"]
