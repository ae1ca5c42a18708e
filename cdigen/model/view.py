"""The plan of a driver view, which is one directory with all driver files for a container.

A view has the folders of ``/usr/local/nvidia`` (``bin``, ``lib``, ``lib64``). A container mounts the whole
view at the kind's ``view_target``. ``ViewPlan`` lists the content of the view, and ``cdigen.store.views``
builds the view.
"""

from __future__ import annotations

import posixpath

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# CUDA images have the bin and lib64 folders of DEFAULT_TARGET in PATH and LD_LIBRARY_PATH, because
# nvidia-docker 1.0 mounted DEFAULT_TARGET. Only DEFAULT_KIND uses DEFAULT_TARGET. The view of any other kind
# is mounted in OTHER_TARGETS, under the name of the kind.
DEFAULT_KIND = "nvidia.com/gpu"
DEFAULT_TARGET = "/usr/local/nvidia"
OTHER_TARGETS = "/usr/local/cdigen"

_VENDOR = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


@frozen
class ViewFile:
    """A file of a view: its path in the view (``lib64/libcuda.so.1.1``) and its source path on the host."""

    path: str
    source: str


@frozen
class ViewLink:
    """A symlink to a file of the same view: its path in the view and its relative target."""

    path: str
    target: str


@frozen
class ViewPlan:
    """The content of a view with the files of one driver version of one vendor, in any order."""

    vendor: str
    version: str
    files: tuple[ViewFile, ...]
    links: tuple[ViewLink, ...] = ()

    def paths(self) -> tuple[str, ...]:
        """Return the paths of all files and links."""
        return (*[file.path for file in self.files], *[link.path for link in self.links])


def view_target(kind: str) -> str:
    """Return the mount point of the view of KIND; each kind has a different mount point."""
    return DEFAULT_TARGET if kind == DEFAULT_KIND else f"{OTHER_TARGETS}/{kind}"


def volume_name(kind: str) -> str:
    """Return the name of the volume with the files of KIND, as in nvidia-docker 1.0 (``nvidia_driver``)."""
    vendor, _, device_class = kind.partition("/")
    owner = vendor.removesuffix(".com")
    return f"{owner}_driver" if device_class == "gpu" else f"{owner}_{device_class}_driver"


def fault(plan: ViewPlan) -> str:
    """Return the reason why PLAN cannot be built in a directory, or an empty text if PLAN is valid.

    Paths must be relative and plain, and each link must lead to a file of the view. The names come from the
    host's files. Both the host and cdigen can be the cause of a fault.
    """
    if not plan.vendor or not _VENDOR.issuperset(plan.vendor):
        return f"the vendor {plan.vendor!a} does not consist of lower-case letters and digits"
    paths = plan.paths()
    return (
        _first(_path_fault(path) for path in paths)
        or _overlap(paths)
        or _first(_source_fault(file) for file in plan.files)
        or _first(_link_fault(link) for link in plan.links)
        or _dangling(plan)
    )


def ends(plan: ViewPlan) -> dict[str, str]:
    """Return the target of each link of PLAN after all links are followed; "" for a circular link."""
    targets = {link.path: destination(link) for link in plan.links}
    return {path: _end(path, targets) for path in targets}


def destination(link: ViewLink) -> str:
    """Return the path in the view to which LINK leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))


def _end(path: str, targets: dict[str, str]) -> str:
    for _ in targets:
        path = targets[path]
        if path not in targets:
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
    distinct: set[str] = set()
    for path in paths:
        if path in distinct:
            return f"{path} is a duplicate"
        distinct.add(path)
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
    # ".." is valid only at the start. If NAME is a link, the kernel resolves NAME/.. from the link's target.
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
