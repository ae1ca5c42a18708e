"""The layout of a view: the name of the view, and the host's files that the view may contain.

``view_layout`` reads the status of each source without opening the source. Therefore, cdigen finds an
existing view fast.
"""

from __future__ import annotations

import errno
import os
import stat

from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.model.findings import Finding
from cdigen.model.view import ends, fault
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.view import ViewFile, ViewLink, ViewPlan

CAPABILITIES = "security.capability"

_DIGITS = 16
# Nix and Guix set the time of every file to 1, and OSTree to 0. These times do not show a change of the file.
_REAL_TIME_NS = 2 * 10**9


@frozen
class ViewSource:
    """A file that the view may contain: its path in the view, and the properties of the host's file.

    ``real`` is the canonical path within the root.
    """

    path: str
    real: str
    size: int
    mtime_ns: int
    mode: int

    @property
    def copy_mode(self) -> int:
        """The mode of a copy, without setuid, setgid and sticky. Only the owner has write permission."""
        return self.mode & 0o755


@frozen
class ViewLayout:
    """The name and content of a new view, and the files of the plan that are left out, with findings."""

    name: str
    files: tuple[ViewSource, ...]
    links: tuple[ViewLink, ...]
    left_out: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def view_layout(plan: ViewPlan, root: Root) -> ViewLayout:
    """Return the layout of PLAN for the present files of ROOT.

    The function leaves out a file that could give privileges (see ``unfit``), and the links to such a file.
    The result has a finding for each such file. The digest in the name of the view is computed from the path,
    size, mode and mtime of each file. Therefore, the function reads no file. The digest does not use inode or
    ctime, because a hard link or a restored backup changes them. Raises StoreError if the plan or a source is
    invalid.
    """
    if problem := fault(plan):
        raise StoreError(f"the view cannot be made: {problem}", hint="rename the file, or use layout 'files'")
    files: list[ViewSource] = []
    findings: list[Finding] = []
    for file in plan.files:
        source, problem = _examine(file, root)
        if problem:
            findings.append(_left_out(file, problem))
        else:
            files.append(source)
    if not files:
        why = f": {findings[0].message}" if findings else ""
        raise StoreError(f"the view cannot be made: it would contain no file{why}")
    links = _links(plan, files)
    kept = {source.path for source in files} | {link.path for link in links}
    return ViewLayout(
        name=f"{plan.vendor}-{_digest(plan, files, links)}",
        files=tuple(files),
        links=links,
        left_out=tuple(path for path in plan.paths() if path not in kept),
        findings=tuple(findings),
    )


def _links(plan: ViewPlan, files: list[ViewSource]) -> tuple[ViewLink, ...]:
    """Return the links of PLAN whose target is one of FILES."""
    if len(files) == len(plan.files):
        return plan.links
    present = {source.path for source in files}
    targets = ends(plan)
    return tuple(link for link in plan.links if targets[link.path] in present)


def unfit(status: os.stat_result, file: int | str) -> str:
    """Return the reason why a view must not contain FILE (a path or a descriptor) with STATUS, or "".

    All files of a view may be executed, because a view is a single mount. A hard link has the owner, mode and
    capabilities of its source. Therefore, a view must not contain a file that gives privileges or that users
    other than root may change.
    """
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        return "is not a regular file"
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return "is setuid or setgid"
    if status.st_uid not in {0, os.geteuid()}:
        return f"belongs to uid {status.st_uid}, not to root"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "is writable by users other than its owner"
    if _has_capabilities(file):
        return "has file capabilities"
    return ""


def _examine(file: ViewFile, root: Root) -> tuple[ViewSource, str]:
    try:
        real = root.resolve(file.source)
        outer = root.outer_path(real)
        status = os.lstat(outer)
        problem = unfit(status, outer)
    except OSError as error:
        raise StoreError(
            f"cannot examine {shown(file.source)} for the view: {reason(error)}",
            hint="run the command again; if that does not help, run 'cdigen inspect'",
        ) from error
    source = ViewSource(
        path=file.path,
        real=real,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        mode=stat.S_IMODE(status.st_mode),
    )
    return source, problem


def _has_capabilities(file: int | str) -> bool:
    try:
        return bool(os.getxattr(file, CAPABILITIES, follow_symlinks=isinstance(file, int)))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return False  # the file has no capabilities, or the file system does not support them
        raise


def _left_out(file: ViewFile, problem: str) -> Finding:
    return Finding(
        severity="warning",
        rule="view-left-out",
        path=file.source,
        message=f"{shown(file.source)} {problem}: the file is left out of the view",
        hint="restore the owner and mode that the package of the file sets",
    )


def _digest(plan: ViewPlan, files: list[ViewSource], links: tuple[ViewLink, ...]) -> str:
    import hashlib  # noqa: PLC0415 - it loads OpenSSL (5 ms), and not every layout needs a view

    lines = [*map(_line, files), *(f"link\t{link.path}\t{link.target}" for link in links)]
    text = "\n".join((f"{plan.vendor}\t{plan.version}", *sorted(lines)))
    return hashlib.sha256(os.fsencode(text), usedforsecurity=False).hexdigest()[:_DIGITS]


def _line(source: ViewSource) -> str:
    # If the time does not show changes, the digest contains the path. In the store of Nix, Guix or OSTree, a
    # file with new content has a new path.
    origin = "" if source.mtime_ns >= _REAL_TIME_NS else source.real
    return f"file\t{source.path}\t{source.size}\t{source.mtime_ns}\t{source.mode:o}\t{origin}"
