"""``LabelFile`` writes the file of node labels for Node Feature Discovery (NFD) and keeps it up to date.

NFD's customization guide, "Local feature source", describes the format. Lines ``name=value`` become labels of
the node until the time in ``# +expiry-time=``. NFD ignores a file of more than 64 KiB, and a file whose name
begins with a dot.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store import tempfiles
from cdigen.store.directory import open_existing
from cdigen.store.snapshot import NO_FILE, identity, take_snapshot
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cdigen.store.directory import Directory
    from cdigen.vendors.labels import Label

FOLDER = "/etc/kubernetes/node-feature-discovery/features.d"
MAX_BYTES = 64 << 10
# This number of the longest labels fits into MAX_BYTES. 16 GPUs that differ in every property have 200
# labels.
MAX_LABELS = 400
# The first line marks a file of cdigen.
_MARK = "# Written by cdigen kubelet, which replaces it at every change:"
_HEAD = f"{_MARK} 'kubelet: {{labels}}' in its configuration.\n"
# Labels exist for at most this time after the end of this process, so a restart removes no labels. NFD reads
# the file once a minute.
LASTS_S = 900
# The file is written again this time before the labels expire, because the process may be paused.
RENEW_S = 600
# The interval of attempts after an error. No event occurs when a full disk has space again.
_AGAIN_S = 5.0
_WHAT = "the folder of node labels"
_OWN = f"set 'kubelet: {{labels}}' to a file of cdigen, such as {FOLDER}/cdigen"
WRITTEN, WAITING, FAILED = "written", "waiting", "failed"


@frozen
class LabelState:
    """The state of the label file ``file``.

    ``state`` is WRITTEN, WAITING or FAILED, with a ``reason``. NFD uses ``labels`` until the Unix time
    ``expires_s``. ``left_out`` is the number of labels that do not fit.
    """

    file: str
    state: str
    reason: str = ""
    hint: str = ""
    labels: tuple[Label, ...] = ()
    expires_s: float = 0
    left_out: int = 0


class LabelFile:
    """Writes labels to a file for NFD.

    LOG is called after changes, with a level (``info``, ``warning``), a message and a hint. A file of another
    program stays unchanged. A missing folder is not made, because NFD makes the folder. CLOCK returns the
    Unix time.
    """

    def __init__(
        self, log: Callable[[str, str, str], object], clock: Callable[[], float] = time.time
    ) -> None:
        self._log = log
        self._clock = clock
        self._logged: str | None = None
        self._state: LabelState | None = None
        self._tried_s = 0.0
        # The identity of the file after the last write.
        self._identity: tuple[int, ...] | None = None

    def update(self, path: str, labels: Sequence[Label] | None) -> LabelState | None:
        """Write LABELS to the file PATH if the file is not up to date, and return its state; raise nothing.

        If LABELS is None, the labels are unknown, and the former labels stay. If PATH is "", there is no file
        and the result is None. If PATH has changed or is "", the former file of cdigen is removed.
        """
        before = self._state
        if before is not None and before.file != path:
            self._remove(before)
            before = self._state = self._logged = None
        if not path:
            return None
        if labels is None:
            if before is None:
                reason = "the devices of this node are not known yet"
                return LabelState(file=path, state=WAITING, reason=reason)
            kept, left_out = before.labels, before.left_out
        else:
            kept = bounded(labels)
            left_out = len(labels) - len(kept)
        if before is None or not self._is_current(before, kept):
            self._state = self._write(path, kept, left_out)
            self._tried_s = self._clock()
            self._log_change(self._state)
        return self._state

    def _is_current(self, state: LabelState, labels: tuple[Label, ...]) -> bool:
        """Return whether the file needs no write now.

        The file needs no write if it has LABELS and is valid for long enough. After a failed write, the
        result is True for _AGAIN_S.
        """
        if state.state == FAILED and abs(self._clock() - self._tried_s) < _AGAIN_S:
            return True
        if state.state != WRITTEN or state.labels != labels:
            return False
        # The clock may have been set forward or back since the last write.
        if not RENEW_S < state.expires_s - self._clock() <= LASTS_S:
            return False
        try:
            with open_existing(os.path.dirname(state.file), what=_WHAT) as directory:
                return (
                    directory is not None
                    and identity(directory, os.path.basename(state.file)) == self._identity
                )
        except (StoreError, OSError):
            return False

    def _write(self, path: str, labels: tuple[Label, ...], left_out: int) -> LabelState:
        folder, name = os.path.split(path)
        expires_s = float(int(self._clock()) + LASTS_S)
        state = LabelState(file=path, state=WRITTEN, labels=labels, expires_s=expires_s, left_out=left_out)
        if not name or name.startswith("."):
            reason = "its name begins with a dot" if name else "it is a folder"
            return _failed(state, f"NFD does not read {shown(path)}: {reason}", _OWN)
        try:
            with open_existing(folder, what=_WHAT) as directory:
                if directory is None:
                    text = f"{shown(path)}: the worker of Node Feature Discovery has not made the folder"
                    return replace(state, state=WAITING, reason=text, expires_s=0)
                _require_ours(directory, name)
                tempfiles.sweep(directory)
                tempfiles.replace_file(directory, name, content(labels, expires_s))
                self._identity = identity(directory, name)
        except StoreError as error:
            return _failed(state, error.message, error.hint)
        except OSError as error:
            return _failed(state, f"{shown(path)}: cannot read the file status: {error.strerror}", "")
        return state

    def _remove(self, state: LabelState) -> None:
        """Remove the file of STATE if it is still a file of cdigen; after an error, its labels expire."""
        folder, name = os.path.split(state.file)
        try:
            with open_existing(folder, what=_WHAT) as directory:
                if directory is not None:
                    _require_ours(directory, name)
                    os.unlink(name, dir_fd=directory.fd)
        except (StoreError, OSError):
            return

    def _log_change(self, state: LabelState) -> None:
        text = state.reason
        if state.left_out:
            text = f"{shown(state.file)}: {state.left_out} more labels do not fit"
        if text != self._logged:
            level = "info" if state.state == WAITING or not text else "warning"
            written = f"{shown(state.file)} is written, with {len(state.labels)} labels"
            self._log(level, text or written, state.hint)
        self._logged = text


def _require_ours(directory: Directory, name: str) -> None:
    """Raise StoreError if NAME in DIRECTORY exists but is not a file of cdigen."""
    found = take_snapshot(directory, name, limit=MAX_BYTES)
    if found == NO_FILE or (found.content is not None and is_ours(found.content)):
        return
    kind = "another program's file" if found.content is not None else found.description
    raise StoreError(
        f"{shown(directory.file(name))} is {kind} and stays unchanged, so this node has no labels of cdigen",
        hint=f"{_OWN}, or remove that file",
    )


def _failed(state: LabelState, reason: str, hint: str) -> LabelState:
    return replace(state, state=FAILED, reason=reason, hint=hint, expires_s=0)


def content(labels: Sequence[Label], expires_s: float) -> bytes:
    """Return the content of a file with LABELS, valid until the Unix time EXPIRES_S."""
    until = datetime.fromtimestamp(int(expires_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = "".join(f"{name}={value}\n" for name, value in labels)
    return f"{_HEAD}# +expiry-time={until}\n{lines}".encode("ascii")


def bounded(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Return at most MAX_LABELS of LABELS; labels with a count for each value are left out first."""
    # Labels with a count for each value have more dots in their names.
    first = sorted(labels, key=lambda label: (label[0].count("."), label))[:MAX_LABELS]
    kept = {name for name, _ in first}
    return tuple(label for label in labels if label[0] in kept)


def is_ours(data: bytes) -> bool:
    """Return whether DATA is the content of a file of cdigen."""
    return data.startswith(_MARK.encode("ascii"))
