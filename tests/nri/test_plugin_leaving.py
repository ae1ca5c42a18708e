"""`cdigen nri` that is stopped: which containers the runtime refuses for that, by how NRI drops plugins."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from support.nri.adaptation import CREATE, VALIDATE, Adaptation
from support.nri.plugin import INJECTS_08, INJECTS_10, INJECTS_12, VISIBLE, Host, Plugin, given, host, plugin
from support.nri.runtime import Rejected
from support.waiting import PATIENCE_S, limited, until

from cdigen.nri import status

GPU = f"{VISIBLE}=0"
# Longer than a plugin takes to leave, whatever the runtime does meanwhile (cdigen.frontend.signals).
LEFT_WITHIN_S = 1.7


@pytest.fixture(params=[INJECTS_12], ids=["NRI 0.12"])
def runtime(running: Plugin, request: pytest.FixtureRequest) -> Adaptation:
    """Return a runtime of the parameter's version with which the plugin is registered."""
    made = Adaptation(running.host, **request.param)
    made.register()
    running.serves()
    return made


@pytest.mark.parametrize("runtime", [INJECTS_10, INJECTS_12], ids=["NRI 0.10", "NRI 0.12"], indirect=True)
def test_the_next_container_after_a_stop_is_created(runtime: Adaptation, running: Plugin) -> None:
    assert given(runtime.create(GPU)) == ["nvidia.com/gpu=0"]
    running.process.send_signal(signal.SIGTERM)
    last = runtime.register()
    assert runtime.names == ["20-cdigen-leaving"]
    assert running.process.wait(PATIENCE_S) == 0
    assert until(lambda: last.is_closed)
    assert runtime.create() is None
    assert not last.events & (CREATE | VALIDATE)
    assert runtime.names == []
    assert not running.lines("not withdrawn")


def test_until_the_runtime_has_forgotten_it_containers_get_their_devices(
    runtime: Adaptation, running: Plugin
) -> None:
    running.process.send_signal(signal.SIGTERM)
    last = runtime.begin()
    last.start()
    assert given(runtime.create(GPU)) == ["nvidia.com/gpu=0"]
    assert not given(runtime.create())
    runtime.end(last)
    assert running.process.wait(PATIENCE_S) == 0
    assert runtime.create(GPU) is None


def test_a_successor_gives_devices_at_once() -> None:
    with host() as here:
        runtime = Adaptation(here)
        for _ in range(3):
            with plugin(here) as running:
                runtime.register()
                running.serves()
                assert given(runtime.create(GPU)) == ["nvidia.com/gpu=0"]
                running.process.send_signal(signal.SIGTERM)
                runtime.register()
                assert running.process.wait(PATIENCE_S) == 0


@limited(LEFT_WITHIN_S)
def test_a_runtime_that_takes_no_other_plugin_is_left_all_the_same_and_the_log_says_what_that_costs(
    runtime: Adaptation, running: Plugin, within_s: float
) -> None:
    begun_s = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - begun_s < within_s
    (line,) = running.lines("not withdrawn")
    assert "0.9 s" in line["reason"]
    with pytest.raises(Rejected, match="ttrpc: closed"):
        runtime.create()
    assert runtime.create() is None


def test_a_runtime_that_refuses_the_other_plugin_is_left_all_the_same(
    runtime: Adaptation, running: Plugin
) -> None:
    running.process.send_signal(signal.SIGTERM)
    runtime.begin().refuse_registration("invalid plugin name")
    assert running.process.wait(PATIENCE_S) == 0
    (line,) = running.lines("not withdrawn")
    assert "invalid plugin name" in line["reason"]


@pytest.mark.parametrize("runtime", [INJECTS_08], ids=["NRI 0.8"], indirect=True)
def test_a_runtime_that_asks_no_validators_is_left_at_once(runtime: Adaptation, running: Plugin) -> None:
    assert running.stop() == 0
    assert runtime.create() is None
    assert not running.lines("not withdrawn")


def test_who_is_refused_while_it_leaves_is_in_its_log(
    runtime: Adaptation, here: Host, running: Plugin
) -> None:
    running.process.send_signal(signal.SIGTERM)
    last = runtime.begin()
    last.start()
    # The host has changed: what it has now, a plugin that leaves does not read any more.
    here.write_spec(("0", "1", "2", "all"))
    with pytest.raises(Rejected, match="the plugin is being stopped"):
        runtime.create(f"{VISIBLE}=2")
    done = threading.Thread(target=runtime.end, args=(last,))
    done.start()
    assert running.process.wait(PATIENCE_S) == 0
    done.join(PATIENCE_S)
    (line,) = running.lines("refused")
    assert "the plugin is being stopped" in line["reason"]


def test_who_is_killed_leaves_a_file_that_is_not_believed(here: Host, running: Plugin) -> None:
    Adaptation(here).register()
    running.sees(lambda: running.state == "registered")
    running.stop(signal.SIGKILL)
    assert running.state == "registered"
    found = status.read(str(here.run_dir))
    assert found is not None
    assert found["state"] == status.ENDED
    assert f"process {running.process.pid} wrote it, but no process holds" in found["reason"]
