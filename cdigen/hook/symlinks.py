"""``make_link``: creates a symbolic link that software expects in a library folder (libcuda.so)."""

from __future__ import annotations

import posix

from cdigen.hook.container import MissingPathError, open_folder, path_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.hook.container import ContainerRoot


def make_link(container: ContainerRoot, target: str, link: str) -> None:
    """Create a symbolic link with the text TARGET at LINK, an absolute path in the container.

    An existing file at LINK stays, because the file comes from the image or the user. The function does not
    create missing folders, because no program of the image searches them for libraries. Raise
    ContainerPathError if the hook must not write to the folder, or if the system refuses the link.
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
