"""Whether a container is privileged, by what its runtime has made of that: ``is_privileged``. Pure.

NRI, up to 0.12, has neither a field for it nor the capabilities. What runtimes do to privileged containers
alone shows in what they tell of each, and no author of a pod can ask for it in another way:

- the cgroup allows all devices: one rule of no type and no numbers. containerd: WithAllDevicesAllowed
  (container_create.go), unless the runtime handler is ``privileged_without_host_devices``; CRI-O:
  specAddHostDevicesIfPrivileged (internal/factory/container/device.go), with the same exception. Devices of
  kubelet, of CDI and of an author's annotations have rules with their numbers;
- /sys is a sysfs that can be written to. containerd: WithPrivileged (WithWriteableSysfs); CRI-O:
  addSysfsMounts (server/container_create.go). It is read-only for all others, and what an author mounts
  there, such as the host's /sys, is a bind mount.

So it is in containerd 1.7 and 2.0 to 2.3, and in CRI-O 1.26 to 1.36. Not evidence: nodes such as /dev/kmsg,
which a device plugin may pass; host paths in place of nodes, which are mounts; annotations, of which a pod's
author may write any (``io.kubernetes.cri-o.PrivilegedRuntime`` as well: CRI-O shows plugins the pod's own);
the seccomp profile, which an unprivileged container may lack, too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.pods import Container

_SYS = "/sys"


def is_privileged(container: Container) -> bool:
    """Return whether CONTAINER is privileged; false where its runtime does not show it."""
    return container.may_use_all_devices or any(
        mount.destination == _SYS and mount.type == "sysfs" and "ro" not in mount.options
        for mount in container.mounts
    )
