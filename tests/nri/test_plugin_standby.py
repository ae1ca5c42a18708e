"""`cdigen nri --standby`: registered beside another instance, on a runtime that asks validators as well."""

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
from support.nri.plugin import INJECTS_10, INJECTS_12, MARK, SEAL, VISIBLE, given, host, plugin, put
from support.nri.runtime import Rejected
from support.waiting import PATIENCE_S, pause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.nri.plugin import Host, Plugin
    from support.nri.runtime import Runtime

GPU = f"{VISIBLE}=0"
GPU0 = ["nvidia.com/gpu=0"]


def has_taken_over(plugin: Plugin) -> None:
    """Wait until PLUGIN has the run directory, and answers there."""
    plugin.sees(lambda: plugin.state == "registered")
    plugin.serves()


@contextmanager
def first_of(here: Host, *options: str, **flavour: object) -> Iterator[tuple[Plugin, Adaptation, Runtime]]:
    """Run an instance that serves; gives it, the runtime of FLAVOUR, and its registration there."""
    with plugin(here, *options) as first:
        runtime = Adaptation(here, **flavour)
        registered = runtime.register()
        first.serves()
        yield first, runtime, registered


@contextmanager
def beside(here: Host, runtime: Adaptation, *options: str) -> Iterator[tuple[Plugin, Runtime]]:
    """Run an instance that stands by until the context ends, and RUNTIME has it registered as well."""
    with plugin(here, "--standby", *options) as second:
        registered = runtime.register()
        second.sees(lambda: second.lines("started"))
        yield second, registered


@pytest.mark.parametrize("flavour", [INJECTS_10, INJECTS_12], ids=["NRI 0.10", "NRI 0.12"])
def test_a_hand_over_has_no_moment_without_a_plugin(flavour: dict[str, object]) -> None:
    with (
        host() as here,
        first_of(here, **flavour) as (first, runtime, _),
        plugin(here, "--standby") as second,
    ):
        runtime.register()
        assert given(runtime.create(GPU)) == GPU0
        first.process.send_signal(signal.SIGTERM)
        runtime.register()
        assert first.process.wait(PATIENCE_S) == 0
        assert runtime.names == ["20-cdigen", "20-cdigen-leaving"]
        assert given(runtime.create(GPU)) == GPU0
        assert runtime.create() is None or not runtime.create().ListFields()
        has_taken_over(second)
        assert [line["event"] for line in second.lines() if "s by" in line["event"]] == ["stands by"]
        assert second.lines("takes over")
        assert not second.lines("missed")


def test_it_registers_at_once_beside_an_instance_that_ends_soon() -> None:
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
                has_taken_over(second)
                assert second.lines("stands by")


def test_of_an_instance_that_was_killed_the_runtime_asks_once_more_and_no_container_lacks_its_gpu() -> None:
    with host() as here, first_of(here) as (first, runtime, _), plugin(here, "--standby") as second:
        runtime.register()
        first.stop(signal.SIGKILL)
        # NRI's own: it keeps the validator until a call is over.
        with pytest.raises(Rejected, match="ttrpc: closed"):
            runtime.create(GPU)
        assert given(runtime.create(GPU)) == GPU0
        has_taken_over(second)


def test_each_container_is_counted_once_and_by_who_has_given_it_its_devices() -> None:
    with host() as here, first_of(here) as (first, runtime, _), beside(here, runtime) as (second, _):
        for env in ([GPU], [GPU], []):
            runtime.create(*env)
        assert first.metric('cdigen_nri_containers_total{outcome="inject"}') == 2
        assert first.metric('cdigen_nri_containers_total{outcome="nothing"}') == 1
        assert first.metric('cdigen_nri_validations_total{verdict="passed"}') == 3
        first.process.send_signal(signal.SIGTERM)
        runtime.register()
        has_taken_over(second)
        runtime.create(GPU, id_="c2")
        second.sees(lambda: second.metric('cdigen_nri_containers_total{outcome="inject"}') == 1)
        assert second.metric('cdigen_nri_containers_total{outcome="served"}') == 0
        assert second.metric('cdigen_nri_containers_total{outcome="nothing"}') == 0
        assert second.metric('cdigen_nri_validations_total{verdict="passed"}') == 1
        second.sees(lambda: {row["id"] for row in second.status["holders"]} == {"c1", "c2"})
        assert len(second.lines("served")) == 2


def test_an_instance_that_comes_back_behind_the_one_that_stands_by_leaves_its_containers_alone() -> None:
    with host() as here, first_of(here) as (first, before, _), beside(here, before) as (second, _):
        # The runtime is there again, and the one that stands by was faster.
        runtime = Adaptation(here)
        before.drop(before.plugins[1])
        runtime.register()
        before.drop(before.plugins[0])
        runtime.register()
        assert given(runtime.create(GPU)) == GPU0
        second.sees(lambda: second.lines("injected"))
        first.sees(lambda: first.lines("served"))
        first.sees(lambda: [row["id"] for row in first.status["holders"]] == ["c1"])
        assert first.metric('cdigen_nri_containers_total{outcome="inject"}') == 0


def test_an_instance_that_hangs_is_replaced_before_it_has_ended() -> None:
    with host() as here, first_of(here) as (first, runtime, hung), beside(here, runtime):
        first.process.send_signal(signal.SIGSTOP)
        # After 2 s the runtime closes the connection, and takes the answer for "nothing to change".
        hung.is_closed = True
        with pytest.raises(Rejected, match="ttrpc: closed"):
            runtime.create(GPU)
        assert given(runtime.create(GPU)) == GPU0


def allow(here: Host, folder: str, *namespaces: str) -> str:
    """Write another configuration, which lets NAMESPACES ask, and return the option that names it."""
    path = here.root / folder
    put(path, json.dumps({"nri": {"allow": [{"namespaces": list(namespaces), "kinds": ["*"]}]}}))
    return f"--config={path}"


def test_validators_accept_what_the_other_gives_by_its_own_configuration() -> None:
    with (
        host() as here,
        first_of(here, allow(here, "first.yaml", "ml")) as (first, runtime, _),
        beside(here, runtime, allow(here, "second.yaml", "batch")) as (second, _),
    ):
        assert given(runtime.create(GPU)) == GPU0
        assert given(runtime.create(GPU, namespace="batch")) == GPU0
        assert runtime.create(GPU, namespace="other") is not None
        second.sees(lambda: second.lines("injected"))
        first.sees(lambda: len(first.lines("injected")) == 1)
        assert not first.lines("rejected") + second.lines("rejected")


def test_devices_of_the_other_that_a_third_plugin_takes_away_are_missed() -> None:
    with host() as here, first_of(here) as (_, runtime, giving), beside(here, runtime) as (_, judging):
        asks = runtime.asks(GPU)
        adjustment = giving.create(*asks)
        assert set(adjustment.annotations) == {MARK, SEAL}
        assert judging.validate(*asks, adjustment) == ""
        del adjustment.cdi_devices[:]
        assert judging.validate(*asks, adjustment).endswith("it would start without")
        # Marks of another creation are not the other's: what it asks for is missing all the same.
        adjustment.annotations[SEAL] = "c0/1"
        assert "would start without nvidia.com/gpu=0" in judging.validate(*asks, adjustment)


@pytest.mark.usefixtures("real_nodes")
def test_a_validator_looks_for_no_cdi_devices_where_the_other_gives_nodes() -> None:
    with host() as here:
        here.configure(unsupported_cdi="raw")
        (here.root / "dev").mkdir()
        os.mknod(here.root / "dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        # Whether it injects CDI devices is not known, and it asks validators.
        with (
            first_of(here, name="another", version="1.0") as (_, runtime, giving),
            beside(here, runtime) as (_, judging),
        ):
            asks = runtime.asks(GPU)
            adjustment = giving.create(*asks)
            assert SEAL in adjustment.annotations
            assert [node.path for node in adjustment.linux.devices] == ["/dev/0"]
            assert judging.validate(*asks, adjustment) == ""
            # Who gave them misses them.
            del adjustment.linux.devices[:]
            assert giving.validate(*asks, adjustment).endswith("would start without /dev/0")


def test_a_wrong_configuration_does_not_take_the_place_of_a_good_one() -> None:
    with host() as here, first_of(here) as (_, runtime, _):
        here.configure(text="nri: {allow: 7}")
        with plugin(here, "--standby") as second:
            assert second.process.wait(PATIENCE_S) == 2
            assert "nri" in second.text
        assert given(runtime.create(GPU)) == GPU0
    with host() as here:
        here.configure(text="nri: {allow: 7}")
        with plugin(here, "--standby") as alone:
            runtime = Adaptation(here)
            runtime.register()
            with pytest.raises(Rejected, match="cdigen"):
                runtime.create(GPU)
            alone.serves()
