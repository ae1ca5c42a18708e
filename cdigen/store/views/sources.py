"""Lay out a view: which of the host's files may enter it, and its name, derived from them.

``view_layout`` reads every source's status without opening it, so that an existing view is found fast.
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
# Nix and Guix give every file the time 1, OSTree 0: there a time has no meaning.
_TELLING_NS = 2 * 10**9


@frozen
class ViewSource:
    """A file that may enter the view: its path in it, and the host's file as it was when examined.

    ``real`` is the canonical path within the root.
    """

    path: str
    real: str
    size: int
    mtime_ns: int
    mode: int

    @property
    def copy_mode(self) -> int:
        """The mode of a copy: no setuid, setgid, sticky; only the owner writes."""
        return self.mode & 0o755


@frozen
class ViewLayout:
    """The content of a view to be made, its name, and which files of the plan are left out and why."""

    name: str
    files: tuple[ViewSource, ...]
    links: tuple[ViewLink, ...]
    left_out: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def view_layout(plan: ViewPlan, root: Root) -> ViewLayout:
    """Return the layout of PLAN for the present files of ROOT.

    A file that would give more than its bytes is left out, with a finding, and so are the links to it (see
    ``unfit``). The name is a digest of the view's content: of files the path, size, mode and mtime, so that
    no content is read; not their inode or ctime, which a hard link or a restored backup changes. StoreError:
    the plan or a source is invalid.
    """
    if problem := fault(plan):
        raise StoreError(f"no view can be made: {problem}", hint="rename the file, or use layout 'files'")
    files: list[ViewSource] = []
    findings: list[Finding] = []
    for file in plan.files:
        source, against = _look(file, root)
        if against:
            findings.append(_left_out(file, against))
        else:
            files.append(source)
    if not files:
        why = f": {findings[0].message}" if findings else ""
        raise StoreError(f"no view can be made: no file may enter it{why}")
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
    taken = {source.path for source in files}
    arrivals = ends(plan)
    return tuple(link for link in plan.links if arrivals[link.path] in taken)


def unfit(status: os.stat_result, file: int | str) -> str:
    """Return why FILE (a path or a descriptor) with STATUS must not enter a view; "" if it may.

    A view is one mount with everything in it executable, and a hard link shares the owner, mode and
    capabilities of its source: files that give privileges, or that others than root may change, stay out.
    """
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        return "is not a regular file"
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return "is setuid or setgid"
    if status.st_uid not in {0, os.geteuid()}:
        return f"belongs to uid {status.st_uid}, not to root"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "is writable by others than its owner"
    if _has_capabilities(file):
        return "has file capabilities"
    return ""


def _look(file: ViewFile, root: Root) -> tuple[ViewSource, str]:
    try:
        real = root.resolve(file.source)
        outer = root.outer_path(real)
        status = os.lstat(outer)
        against = unfit(status, outer)
    except OSError as error:
        raise StoreError(
            f"cannot look at {shown(file.source)} for the view: {reason(error)}",
            hint="run the command again; see 'cdigen inspect' where that does not help",
        ) from error
    source = ViewSource(
        path=file.path,
        real=real,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        mode=stat.S_IMODE(status.st_mode),
    )
    return source, against


def _has_capabilities(file: int | str) -> bool:
    try:
        if isinstance(file, int):
            return bool(os.getxattr(file, CAPABILITIES))
        return bool(os.getxattr(file, CAPABILITIES, follow_symlinks=False))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return False  # it has none, or its file system has none
        raise


def _left_out(file: ViewFile, against: str) -> Finding:
    return Finding(
        severity="warning",
        rule="view-left-out",
        path=file.source,
        message=f"{shown(file.source)} {against}, so it is left out of the view",
        hint="give it the owner and mode that its package gives it",
    )


def _digest(plan: ViewPlan, files: list[ViewSource], links: tuple[ViewLink, ...]) -> str:
    import hashlib  # noqa: PLC0415 - it loads OpenSSL (5 ms), and not every layout needs a view

    lines = [*map(_line, files), *(f"link\t{link.path}\t{link.target}" for link in links)]
    text = "\n".join((f"{plan.vendor}\t{plan.version}", *sorted(lines)))
    return hashlib.sha256(os.fsencode(text), usedforsecurity=False).hexdigest()[:_DIGITS]


def _line(source: ViewSource) -> str:
    # If times have no meaning, the path is used: a store's path changes with the content.
    origin = "" if source.mtime_ns >= _TELLING_NS else source.real
    return f"file\t{source.path}\t{source.size}\t{source.mtime_ns}\t{source.mode:o}\t{origin}"
