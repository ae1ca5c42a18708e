"""``is_privileged``: a pure function that detects privileged containers.

NRI up to 0.12 does not report the privileged flag or the capabilities of a container. Runtimes change
privileged containers in two ways that plugins can detect. The author of a pod cannot request these changes
for other containers.

- The cgroup permits all devices by one rule without type and numbers. containerd does this in
  WithAllDevicesAllowed (container_create.go), unless the runtime handler has the option
  ``privileged_without_host_devices``. CRI-O does this in specAddHostDevicesIfPrivileged
  (internal/factory/container/device.go), with the same exception. The rules for devices from the kubelet,
  CDI and annotations contain the device numbers.
- /sys is a writable sysfs. containerd does this in WithPrivileged (WithWriteableSysfs), and CRI-O in
  addSysfsMounts (server/container_create.go). In other containers, /sys is read-only. A mount at /sys by the
  author of the pod, such as the host's /sys, is a bind mount.

These facts are true for containerd 1.7 and 2.0 to 2.3, and for CRI-O 1.26 to 1.36. cdigen does not use other
signs:

- a device plugin can pass nodes such as /dev/kmsg;
- a host path such as /dev/kmsg in a container is a mount, not a device node;
- the author of a pod writes its annotations. This includes ``io.kubernetes.cri-o.PrivilegedRuntime``, because
  CRI-O passes the pod's own value to plugins;
- an unprivileged container can also have no seccomp profile.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.pods import Container

_SYS = "/sys"


def is_privileged(container: Container) -> bool:
    """Return whether CONTAINER is privileged.

    The result is also false if a privileged container has none of the two changes.
    """
    return container.may_use_all_devices or any(
        mount.destination == _SYS and mount.type == "sysfs" and "ro" not in mount.options
        for mount in container.mounts
    )
