"""A privileged container is one by what its runtime made of it, which nobody else can."""

from __future__ import annotations

import pytest
from support.nri.host import container

from cdigen.nri.decision.privileged import is_privileged
from cdigen.nri.pods import ContainerMount
from cdigen.value import replace

SYS = ContainerMount(
    destination="/sys", source="sysfs", type="sysfs", options=("nosuid", "noexec", "nodev", "rw")
)


def test_a_cgroup_that_allows_all_devices_is_a_privileged_containers() -> None:
    assert is_privileged(replace(container(), may_use_all_devices=True))


@pytest.mark.parametrize("options", [SYS.options, ("nosuid", "noexec", "nodev", "rw", "rslave"), ()])
def test_a_sysfs_that_can_be_written_to_is_a_privileged_containers(options: tuple[str, ...]) -> None:
    """A handler may be `privileged_without_host_devices`."""
    assert is_privileged(replace(container(), mounts=(replace(SYS, options=options),)))


@pytest.mark.parametrize(
    "mount",
    [
        replace(SYS, options=("nosuid", "noexec", "nodev", "ro")),
        replace(SYS, type="bind", source="/sys", options=("rbind", "rprivate", "rw")),
        replace(SYS, destination="/mnt"),
    ],
)
def test_other_mounts_say_nothing(mount: ContainerMount) -> None:
    assert not is_privileged(replace(container(), mounts=(mount,)))


def test_what_an_author_of_pods_can_have_makes_nobody_privileged() -> None:
    """Host paths of nodes are mounts, and annotations anybody's."""
    nodes = ("/dev/kmsg", "/dev/mem", "/dev/port", "/dev/loop-control")
    here = container(devices=nodes, mounts=nodes)
    assert not is_privileged(replace(here, annotations={"io.kubernetes.cri-o.PrivilegedRuntime": "true"}))
