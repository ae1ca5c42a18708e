"""Plan a driver view: one directory with a driver's files, laid out as in the container.

A view is laid out like ``/usr/local/nvidia`` (``bin``, ``lib``, ``lib64``) and is mounted as a whole, each
kind's at ``view_target``. ``ViewPlan`` lists its content; ``cdigen.store.views`` makes it.
"""

from __future__ import annotations

import posixpath

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# CUDA images name its bin and lib64 in PATH and LD_LIBRARY_PATH (nvidia-docker 1.0 mounted it), so only one
# kind uses it. The other kinds' views are below a folder of cdigen's, named by kind.
DEFAULT_KIND = "nvidia.com/gpu"
DEFAULT_TARGET = "/usr/local/nvidia"
OTHER_TARGETS = "/usr/local/cdigen"

_VENDOR = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


@frozen
class ViewFile:
    """A file of the view: its path in it (``lib64/libcuda.so.1.1``), and its source's path on the host."""

    path: str
    source: str


@frozen
class ViewLink:
    """A symlink of the view to a file of the view: its path in it, and its relative target."""

    path: str
    target: str


@frozen
class ViewPlan:
    """The content of a view of VENDOR's driver VERSION, in any order."""

    vendor: str
    version: str
    files: tuple[ViewFile, ...]
    links: tuple[ViewLink, ...] = ()

    def paths(self) -> tuple[str, ...]:
        """Return the paths of all files and links."""
        return (*[file.path for file in self.files], *[link.path for link in self.links])


def view_target(kind: str) -> str:
    """Return the mount point of the view of KIND; each kind has its own."""
    return DEFAULT_TARGET if kind == DEFAULT_KIND else f"{OTHER_TARGETS}/{kind}"


def volume_name(kind: str) -> str:
    """Return the name of the stable path to the files of KIND; of NVIDIA's GPUs it is nvidia-docker 1.0's."""
    vendor, _, device_class = kind.partition("/")
    owner = vendor.removesuffix(".com")
    return f"{owner}_driver" if device_class == "gpu" else f"{owner}_{device_class}_driver"


def fault(plan: ViewPlan) -> str:
    """Return why PLAN cannot be laid out in a directory, or an empty text if it can.

    All names stay within the view: paths are relative and plain, a link leads to a file of the view. Names
    come from the host's files, so a fault may be the host's or ours.
    """
    if not plan.vendor or not _VENDOR.issuperset(plan.vendor):
        return f"the vendor {plan.vendor!a} is not a word of lower-case letters and digits"
    paths = plan.paths()
    return (
        _first(_path_fault(path) for path in paths)
        or _overlap(paths)
        or _first(_source_fault(file) for file in plan.files)
        or _first(_link_fault(link) for link in plan.links)
        or _dangling(plan)
    )


def ends(plan: ViewPlan) -> dict[str, str]:
    """Return the final target of each link of PLAN, links to links followed; "" for a circular one."""
    onward = {link.path: destination(link) for link in plan.links}
    return {path: _end(path, onward) for path in onward}


def destination(link: ViewLink) -> str:
    """Return the path in the view that the text of LINK names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))


def _end(path: str, onward: dict[str, str]) -> str:
    for _ in onward:
        path = onward[path]
        if path not in onward:
            return path
    return ""


def _first(faults: Iterable[str]) -> str:
    return next((text for text in faults if text), "")


def _path_fault(path: str) -> str:
    if _is_plain(path):
        return ""
    return f"{path!a} is not a plain relative path"


def _is_plain(path: str) -> bool:
    return path.isprintable() and all(part not in {"", ".", ".."} for part in path.split("/"))


def _overlap(paths: tuple[str, ...]) -> str:
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            return f"{path} is there twice"
        seen.add(path)
    folders: set[str] = set()
    for path in paths:
        folder = path
        while (folder := folder.rpartition("/")[0]) and folder not in folders:
            folders.add(folder)
    return next((f"{path} is a file and a folder" for path in paths if path in folders), "")


def _source_fault(file: ViewFile) -> str:
    if file.source.startswith("/") and "\0" not in file.source:
        return ""
    return f"the source {file.source!a} of {file.path} is not an absolute path"


def _link_fault(link: ViewLink) -> str:
    # The kernel would resolve a ".." after a name from the target of that name.
    rest = link.target
    ups = 0
    while rest.startswith("../"):
        rest, ups = rest[3:], ups + 1
    if not _is_plain(rest):
        return f"the target {link.target!a} of {link.path} is not a plain relative path"
    if ups > link.path.count("/"):
        return f"the target {link.target} of {link.path} leads out of the view"
    return ""


def _dangling(plan: ViewPlan) -> str:
    files = {file.path for file in plan.files}
    for path, end in ends(plan).items():
        if end not in files:
            return f"the link {path} leads to no file of the view"
    return ""
