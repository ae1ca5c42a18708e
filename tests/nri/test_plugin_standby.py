"""`cdigen nri --standby` registers beside another instance, with a runtime that calls validators."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.nri.adaptation import Adaptation
from support.nri.plugin import (
    INJECTED_ANNOTATION,
    INJECTED_INTO_ANNOTATION,
    INJECTS_10,
    INJECTS_12,
    VISIBLE,
    cdi_devices,
    host,
    plugin,
    put,
)
from support.nri.runtime import Rejected
from support.waiting import PATIENCE_S, pause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.nri.plugin import Host, Plugin
    from support.nri.runtime import Runtime

GPU = f"{VISIBLE}=0"
GPU0 = ["nvidia.com/gpu=0"]


def becomes_active(plugin: Plugin) -> None:
    """Wait until PLUGIN writes its status to the run directory, and serves HTTP there."""
    plugin.sees(lambda: plugin.state == "registered")
    plugin.serves()


@contextmanager
def first_of(here: Host, *options: str, **flavour: object) -> Iterator[tuple[Plugin, Adaptation, Runtime]]:
    """Run the active instance; yield the instance, a runtime of FLAVOUR, and the instance's registration."""
    with plugin(here, *options) as first:
        runtime = Adaptation(here, **flavour)
        registered = runtime.register()
        first.serves()
        yield first, runtime, registered


@contextmanager
def beside(here: Host, runtime: Adaptation, *options: str) -> Iterator[tuple[Plugin, Runtime]]:
    """Run a standby instance that also registers with RUNTIME; yield the instance and the registration."""
    with plugin(here, "--standby", *options) as second:
        registered = runtime.register()
        second.sees(lambda: second.lines("started"))
        yield second, registered


@pytest.mark.parametrize("flavour", [INJECTS_10, INJECTS_12], ids=["NRI 0.10", "NRI 0.12"])
def test_during_a_handover_a_plugin_is_always_registered(flavour: dict[str, object]) -> None:
    with (
        host() as here,
        first_of(here, **flavour) as (first, runtime, _),
        plugin(here, "--standby") as second,
    ):
        runtime.register()
        assert cdi_devices(runtime.create(GPU)) == GPU0
        first.process.send_signal(signal.SIGTERM)
        runtime.register()
        assert first.process.wait(PATIENCE_S) == 0
        assert runtime.names == ["20-cdigen", "20-cdigen-leaving"]
        assert cdi_devices(runtime.create(GPU)) == GPU0
        assert runtime.create() is None or not runtime.create().ListFields()
        becomes_active(second)
        assert len(second.lines("standby")) == 1
        assert second.lines("active")
        assert not second.lines("uninjected_container")


def test_a_standby_instance_does_not_wait_for_the_lock_of_an_ending_instance() -> None:
    with host() as here:
        lock = here.run_dir / "lock"
        here.run_dir.mkdir()
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with plugin(here, "--standby") as second:
                opened = Path(f"/proc/{second.process.pid}/fd")
                second.sees(lambda: lock.resolve() in [fd.resolve() for fd in opened.iterdir()])
                pause(0.25)
                held.close()
                Adaptation(here).register()
                becomes_active(second)
                assert second.lines("standby")


def test_after_a_kill_of_the_active_instance_no_container_starts_without_its_gpu() -> None:
    with host() as here, first_of(here) as (first, runtime, _), plugin(here, "--standby") as second:
        runtime.register()
        first.stop(signal.SIGKILL)
        # NRI keeps the closed validator until the end of a call.
        with pytest.raises(Rejected, match="ttrpc: closed"):
            runtime.create(GPU)
        assert cdi_devices(runtime.create(GPU)) == GPU0
        becomes_active(second)


def test_each_container_is_counted_once_by_the_instance_that_injected_it() -> None:
    with host() as here, first_of(here) as (first, runtime, _), beside(here, runtime) as (second, _):
        for env in ([GPU], [GPU], []):
            runtime.create(*env)
        assert first.metric('cdigen_nri_containers_total{outcome="inject"}') == 2
        assert first.metric('cdigen_nri_containers_total{outcome="nothing"}') == 1
        assert first.metric('cdigen_nri_validations_total{result="passed"}') == 3
        first.process.send_signal(signal.SIGTERM)
        runtime.register()
        becomes_active(second)
        runtime.create(GPU, id_="c2")
        second.sees(lambda: second.metric('cdigen_nri_containers_total{outcome="inject"}') == 1)
        assert second.metric('cdigen_nri_containers_total{outcome="served"}') == 0
        assert second.metric('cdigen_nri_containers_total{outcome="nothing"}') == 0
        assert second.metric('cdigen_nri_validations_total{result="passed"}') == 1
        second.sees(lambda: {row["id"] for row in second.status["injected_containers"]} == {"c1", "c2"})
        assert len(second.lines("served")) == 2


def test_an_instance_that_reconnects_second_skips_injected_containers() -> None:
    with host() as here, first_of(here) as (first, before, _), beside(here, before) as (second, _):
        # The runtime restarts, and the standby instance reconnects first.
        runtime = Adaptation(here)
        before.drop(before.plugins[1])
        runtime.register()
        before.drop(before.plugins[0])
        runtime.register()
        assert cdi_devices(runtime.create(GPU)) == GPU0
        second.sees(lambda: second.lines("injected"))
        first.sees(lambda: first.lines("served"))
        first.sees(lambda: [row["id"] for row in first.status["injected_containers"]] == ["c1"])
        assert first.metric('cdigen_nri_containers_total{outcome="inject"}') == 0


def test_a_standby_instance_injects_while_the_active_instance_hangs() -> None:
    with host() as here, first_of(here) as (first, runtime, hung), beside(here, runtime):
        first.process.send_signal(signal.SIGSTOP)
        # After 2 s the runtime closes the connection, and treats the missing response as an empty response.
        hung.is_closed = True
        with pytest.raises(Rejected, match="ttrpc: closed"):
            runtime.create(GPU)
        assert cdi_devices(runtime.create(GPU)) == GPU0


def allow(here: Host, folder: str, *namespaces: str) -> str:
    """Write a configuration with a rule for NAMESPACES, and return the option for it."""
    path = here.root / folder
    put(path, json.dumps({"nri": {"allow": [{"namespaces": list(namespaces), "kinds": ["*"]}]}}))
    return f"--config={path}"


def test_each_validator_accepts_devices_that_the_other_instance_permits() -> None:
    with (
        host() as here,
        first_of(here, allow(here, "first.yaml", "ml")) as (first, runtime, _),
        beside(here, runtime, allow(here, "second.yaml", "batch")) as (second, _),
    ):
        assert cdi_devices(runtime.create(GPU)) == GPU0
        assert cdi_devices(runtime.create(GPU, namespace="batch")) == GPU0
        assert runtime.create(GPU, namespace="other") is not None
        second.sees(lambda: second.lines("injected"))
        first.sees(lambda: len(first.lines("injected")) == 1)
        assert not first.lines("rejected") + second.lines("rejected")


def test_a_validator_detects_that_devices_of_the_other_instance_were_removed() -> None:
    with host() as here, first_of(here) as (_, runtime, injecting), beside(here, runtime) as (_, validating):
        request = runtime.request(GPU)
        adjustment = injecting.create(*request)
        assert set(adjustment.annotations) == {INJECTED_ANNOTATION, INJECTED_INTO_ANNOTATION}
        assert validating.validate(*request, adjustment) == ""
        del adjustment.cdi_devices[:]
        assert validating.validate(*request, adjustment).endswith(
            "would start without nvidia.com/gpu=0, which another instance of cdigen has injected"
        )
        # A marker of another container is invalid, so the requested device is missing.
        adjustment.annotations[INJECTED_INTO_ANNOTATION] = "c0/1"
        assert "would start without nvidia.com/gpu=0" in validating.validate(*request, adjustment)


@pytest.mark.usefixtures("real_nodes")
def test_a_validator_accepts_nodes_of_the_other_instance_in_place_of_cdi_devices() -> None:
    with host() as here:
        here.configure(unsupported_cdi="raw")
        (here.root / "dev").mkdir()
        os.mknod(here.root / "dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        # The handling of CDI devices by this runtime is unknown, and the runtime calls validators.
        with (
            first_of(here, name="another", version="1.0") as (_, runtime, injecting),
            beside(here, runtime) as (_, validating),
        ):
            request = runtime.request(GPU)
            adjustment = injecting.create(*request)
            assert INJECTED_INTO_ANNOTATION in adjustment.annotations
            assert [node.path for node in adjustment.linux.devices] == ["/dev/0"]
            assert validating.validate(*request, adjustment) == ""
            # The instance that injected the nodes detects their removal.
            del adjustment.linux.devices[:]
            assert injecting.validate(*request, adjustment).endswith("would start without /dev/0")


def test_with_an_invalid_configuration_a_standby_instance_ends_only_beside_another_instance() -> None:
    with host() as here, first_of(here) as (_, runtime, _):
        here.configure(text="nri: {allow: 7}")
        with plugin(here, "--standby") as second:
            assert second.process.wait(PATIENCE_S) == 2
            assert "nri" in second.text
        assert cdi_devices(runtime.create(GPU)) == GPU0
    with host() as here:
        here.configure(text="nri: {allow: 7}")
        with plugin(here, "--standby") as alone:
            runtime = Adaptation(here)
            runtime.register()
            with pytest.raises(Rejected, match="cdigen"):
                runtime.create(GPU)
            alone.serves()
