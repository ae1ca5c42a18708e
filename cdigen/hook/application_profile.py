"""``update``: writes the EGL application profile, which limits EGL to the container's GPUs.

Without a profile, the driver's EGL lists all GPUs of the host. The profile contains a mask with one bit for
the minor number of each visible GPU. Source: NVIDIA's driver README, "Application Profiles",
EGLVisibleDGPUDevices. libnvidia-container (nvc_mount.c, update_app_profile) and nvidia-container-toolkit 1.20
(update-application-profile) write the same file with the same content. Therefore, each of the three tools
replaces the file of the others.
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
# The mask has one bit for each minor number below MINORS. The name of a GPU's device node ends with the minor
# number.
MINORS = 64
_MAX_PROFILE = 65536
_TEXT = (
    '{{"profiles":[{{"name":"_container_","settings":["EGLVisibleDGPUDevices",0x{:x}]}}],'
    '"rules":[{{"pattern":[],"profile":"_container_"}}]}}'
)


def update(container: ContainerRoot) -> None:
    """Write the profile for the GPUs whose device nodes the container has.

    If the container has no GPU, write nothing. Raise ContainerPathError if the profile cannot be written.
    """
    mask = gpu_mask(container)
    if not mask:
        return
    after = _TEXT.format(mask).encode()
    where = f"{FOLDER}/{NAME}"
    # The hook does not create /etc, because an image without /etc has no EGL.
    folder = open_folder(container, FOLDER, make_below="/etc")
    try:
        if read_file(container, folder, NAME, where, _MAX_PROFILE) != after:
            write_file(folder, NAME, after, where)
    finally:
        posix.close(folder)


def gpu_mask(container: ContainerRoot) -> int:
    """Return a mask in which bit N is set if /dev has the device node of a GPU with the minor number N.

    GPUs with a minor number of 64 or more have no bit.
    """
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
