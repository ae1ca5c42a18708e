"""Evidence that a container is privileged."""

from __future__ import annotations

import pytest
from support.nri.host import container

from cdigen.nri.decision.limits.existing_devices import is_privileged
from cdigen.nri.pods import ContainerMount
from cdigen.value import replace

SYS = ContainerMount(
    destination="/sys", source="sysfs", type="sysfs", options=("nosuid", "noexec", "nodev", "rw")
)


def test_a_cgroup_that_permits_all_devices_is_evidence() -> None:
    assert is_privileged(replace(container(), may_use_all_devices=True))


@pytest.mark.parametrize("options", [SYS.options, ("nosuid", "noexec", "nodev", "rw", "rslave"), ()])
def test_a_writable_sysfs_is_evidence(options: tuple[str, ...]) -> None:
    """A writable sysfs is the only evidence if a handler has the option `privileged_without_host_devices`."""
    assert is_privileged(replace(container(), mounts=(replace(SYS, options=options),)))


@pytest.mark.parametrize(
    "mount",
    [
        replace(SYS, options=("nosuid", "noexec", "nodev", "ro")),
        replace(SYS, type="bind", source="/sys", options=("rbind", "rprivate", "rw")),
        replace(SYS, destination="/mnt"),
    ],
)
def test_other_mounts_are_no_evidence(mount: ContainerMount) -> None:
    assert not is_privileged(replace(container(), mounts=(mount,)))


def test_settings_of_a_pods_author_do_not_make_a_container_privileged() -> None:
    """The author of a pod can mount host paths such as /dev/kmsg, and writes the annotations of the pod."""
    nodes = ("/dev/kmsg", "/dev/mem", "/dev/port", "/dev/loop-control")
    here = container(devices=nodes, mounts=nodes)
    assert not is_privileged(replace(here, annotations={"io.kubernetes.cri-o.PrivilegedRuntime": "true"}))
