"""The list of the containers to which the plugin added devices."""

from cdigen.nri.injected_containers import (
    MAX_CONTAINERS,
    MAX_DEVICES,
    InjectedContainer,
    InjectedContainers,
    devices_in_marker,
)
from cdigen.nri.pods import ContainerName


def injected(number: int, at_s: float | None = 1.0) -> InjectedContainer:
    name = ContainerName(namespace="ml", pod=f"pod-{number}", container="main")
    return InjectedContainer(id=f"c{number}", name=name, devices=("nvidia.com/gpu=0",), at_s=at_s)


def test_above_the_limit_the_oldest_containers_are_dropped() -> None:
    containers = InjectedContainers()
    for number in range(MAX_CONTAINERS + 3):
        containers.add(injected(number))
    assert [containers.containers()[0].id, containers.containers()[-1].id, len(containers.containers())] == [
        "c3",
        f"c{MAX_CONTAINERS + 2}",
        MAX_CONTAINERS,
    ]
    containers.add_existing(injected(number) for number in range(10_000))
    assert len(containers.containers()) == MAX_CONTAINERS


def test_existing_containers_do_not_replace_known_containers() -> None:
    containers = InjectedContainers()
    containers.add(injected(1))
    containers.add_existing([injected(1, None), injected(2, None)])
    assert [one.at_s for one in containers.containers()] == [1.0, None]
    assert (containers.remove("c1"), containers.remove("c1")) == (True, False)
    containers.clear()
    assert containers.containers() == ()


def test_the_devices_in_a_marker_are_limited_in_number_and_length() -> None:
    assert devices_in_marker("a.com/b=0,a.com/b=1") == ("a.com/b=0", "a.com/b=1")
    assert len(devices_in_marker(",".join(["x"] * 1_000_000))) == MAX_DEVICES
    assert len(devices_in_marker("x" * 1_000_000)[0]) < 5000
