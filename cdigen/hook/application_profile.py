"""Write the EGL application profile, which limits EGL to the container's GPUs: ``update``.

The driver's EGL counts the GPUs of the host, not of the container, unless a profile has a mask of the
minors that it may see. Sources: NVIDIA's driver README, "Application Profiles", EGLVisibleDGPUDevices;
file name and content as libnvidia-container (nvc_mount.c, update_app_profile) and nvidia-container-toolkit
1.20 (update-application-profile) write them, so that either replaces the other's.
"""

from __future__ import annotations

import posix
from _stat import S_ISCHR

from cdigen.hook.container import MissingPathError, open_folder, read_file, write_file
from cdigen.hook.image_paths import open_image_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.hook.container import ContainerRoot

FOLDER = "/etc/nvidia/nvidia-application-profiles-rc.d"
NAME = "10-container.conf"
# The mask has a bit for each minor up to this one; GPUs' nodes are named by their minor.
MINORS = 64
_MAX_PROFILE = 65536
_TEXT = (
    '{{"profiles":[{{"name":"_container_","settings":["EGLVisibleDGPUDevices",0x{:x}]}}],'
    '"rules":[{{"pattern":[],"profile":"_container_"}}]}}'
)


def update(container: ContainerRoot) -> None:
    """Write the profile for the GPUs whose nodes the container has; nothing where it has none.

    ContainerPathError: the profile stays as it is.
    """
    mask = gpu_mask(container)
    if not mask:
        return
    after = _TEXT.format(mask).encode()
    where = f"{FOLDER}/{NAME}"
    # /etc itself is not made: an image without it runs no EGL.
    folder = open_folder(container, FOLDER, make_below="/etc")
    try:
        if read_file(container, folder, NAME, where, _MAX_PROFILE) != after:
            write_file(folder, NAME, after, where)
    finally:
        posix.close(folder)


def gpu_mask(container: ContainerRoot) -> int:
    """Return a mask with bit N set where /dev has a GPU of minor N; 64 and more have no bit."""
    mask = 0
    try:
        dev = open_image_path(container, "/dev")
    except MissingPathError:
        return 0
    try:
        for number in range(MINORS):
            try:
                status = posix.stat(f"nvidia{number}", dir_fd=dev, follow_symlinks=False)
            except OSError:
                continue
            minor = posix.minor(status.st_rdev)
            if S_ISCHR(status.st_mode) and minor < MINORS:
                mask |= 1 << minor
    finally:
        posix.close(dev)
    return mask
