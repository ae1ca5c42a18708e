"""Make the symlinks that some software expects beside the driver's libraries, such as libcuda.so."""

from __future__ import annotations

import posix

from cdigen.hook.container import MissingPathError, open_folder, path_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.hook.container import ContainerRoot


def make_link(container: ContainerRoot, target: str, link: str) -> None:
    """Make LINK, absolute in the container, a link with the text TARGET.

    An existing file of that name is the image's or the user's choice and stays; missing folders are not made,
    as no program looks for libraries there. ContainerPathError: the folder is not a place
    to write.
    """
    path, _, name = link.rpartition("/")
    try:
        folder = open_folder(container, path)
    except MissingPathError:
        return
    try:
        posix.symlink(target, name, dir_fd=folder)
    except FileExistsError:
        return
    except OSError as error:
        raise path_error(link, error) from error
    finally:
        posix.close(folder)
