"""The file with the node's labels as it is kept: ``LabelFile``."""

from __future__ import annotations

import os
import time

from cdigen.host.root import shown
from cdigen.kubelet.labels import feature_file
from cdigen.model.errors import StoreError
from cdigen.store import tempfiles
from cdigen.store.directory import open_existing
from cdigen.store.snapshot import NO_FILE, identity, take_snapshot
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cdigen.kubelet.labels.words import Label
    from cdigen.store.directory import Directory

# Labels outlive this process by so much at most: a restart takes none away. NFD looks once a minute.
LASTS_S = 900
# So long before that the file is written anew; a process may be stopped for a while.
RENEW_S = 600
# A full disk says nothing when it has room again.
_AGAIN_S = 5.0
_WHAT = "the folder of node labels"
_OWN = f"name a file of its own in 'kubelet: {{labels}}', such as {feature_file.FOLDER}/cdigen"
WRITTEN, WAITING, FAILED = "written", "waiting", "failed"


@frozen
class LabelState:
    """How ``labels`` stand in ``file``: ``state`` is WRITTEN, WAITING or FAILED, for a ``reason``.

    They count until the Unix time ``expires_s``. ``left_out`` more have no room.
    """

    file: str
    state: str
    reason: str = ""
    hint: str = ""
    labels: tuple[Label, ...] = ()
    expires_s: float = 0
    left_out: int = 0


class LabelFile:
    """Keeps the labels in a file of Node Feature Discovery, if one is named; SAY is told what is new.

    It says a level (``info``, ``warning``), a message, a hint. A file of another program is left as it is,
    and a folder that is not there is NFD's to make. CLOCK tells the Unix time.
    """

    def __init__(
        self, say: Callable[[str, str, str], object], clock: Callable[[], float] = time.time
    ) -> None:
        self._say = say
        self._clock = clock
        self._said: str | None = None
        self._state: LabelState | None = None
        self._tried_s = 0.0
        # What the file was after it was written.
        self._identity: tuple[int, ...] | None = None

    def keep(self, path: str, labels: Sequence[Label] | None) -> LabelState | None:
        """Let the file PATH have LABELS, and return how it stands; nothing is raised.

        None as LABELS: nobody knows them now, and those from before go on. An empty PATH: no file; what was
        ours is removed, as it is where there is another path than before.
        """
        before = self._state
        if before is not None and before.file != path:
            self._remove(before)
            before = self._state = self._said = None
        if not path:
            return None
        if labels is None:
            if before is None:
                reason = "it is not known yet what this node offers"
                return LabelState(file=path, state=WAITING, reason=reason)
            kept, left_out = before.labels, before.left_out
        else:
            kept = feature_file.bounded(labels)
            left_out = len(labels) - len(kept)
        if before is None or not self._is_good(before, kept):
            self._state = self._write(path, kept, left_out)
            self._tried_s = self._clock()
            self._tell(self._state)
        return self._state

    def _is_good(self, state: LabelState, labels: tuple[Label, ...]) -> bool:
        """Return whether STATE is what the disk has, of LABELS, for long enough, or it failed just now."""
        if state.state == FAILED and abs(self._clock() - self._tried_s) < _AGAIN_S:
            return True
        if state.state != WRITTEN or state.labels != labels:
            return False
        # A clock that was set may have made it too late, or too early.
        if not RENEW_S < state.expires_s - self._clock() <= LASTS_S:
            return False
        try:
            with open_existing(os.path.dirname(state.file), what=_WHAT) as place:
                return place is not None and identity(place, os.path.basename(state.file)) == self._identity
        except (StoreError, OSError):
            return False

    def _write(self, path: str, labels: tuple[Label, ...], left_out: int) -> LabelState:
        folder, name = os.path.split(path)
        expires_s = float(int(self._clock()) + LASTS_S)
        state = LabelState(file=path, state=WRITTEN, labels=labels, expires_s=expires_s, left_out=left_out)
        if not name or name.startswith("."):
            why = "its name begins with a dot" if name else "it is a folder"
            return _failed(state, f"NFD does not read {shown(path)}: {why}", _OWN)
        try:
            with open_existing(folder, what=_WHAT) as place:
                if place is None:
                    return _waiting(state)
                _require_ours(place, name)
                tempfiles.sweep(place)
                tempfiles.replace_file(place, name, feature_file.content(labels, expires_s))
                self._identity = identity(place, name)
        except StoreError as error:
            return _failed(state, error.message, error.hint)
        except OSError as error:
            return _failed(state, f"cannot look at {shown(path)}: {error.strerror}", "")
        return state

    def _remove(self, state: LabelState) -> None:
        """Remove the file of STATE, if it is still ours; where that fails its time runs out."""
        folder, name = os.path.split(state.file)
        try:
            with open_existing(folder, what=_WHAT) as place:
                if place is not None:
                    _require_ours(place, name)
                    os.unlink(name, dir_fd=place.fd)
        except (StoreError, OSError):
            return

    def _tell(self, state: LabelState) -> None:
        """Say how it stands, where that is news."""
        text = state.reason
        if state.left_out:
            text = f"{shown(state.file)} has no room for {state.left_out} more labels"
        if text != self._said:
            level = "info" if state.state == WAITING or not text else "warning"
            written = f"{shown(state.file)} is written, with {len(state.labels)} labels"
            self._say(level, text or written, state.hint)
        self._said = text


def _require_ours(place: Directory, name: str) -> None:
    """Raise StoreError unless NAME in PLACE is free, or a file of ours."""
    found = take_snapshot(place, name, limit=feature_file.MAX_BYTES)
    if found == NO_FILE or (found.content is not None and feature_file.is_ours(found.content)):
        return
    what = "another program's" if found.content is not None else found.description
    raise StoreError(
        f"{shown(place.file(name))} is {what}, and is left as it is: this node has no labels of ours",
        hint=f"{_OWN}, or remove that one",
    )


def _waiting(state: LabelState) -> LabelState:
    text = f"the folder of {shown(state.file)} is not there: Node Feature Discovery's worker has not made it"
    return replace(state, state=WAITING, reason=text, expires_s=0)


def _failed(state: LabelState, reason: str, hint: str) -> LabelState:
    return replace(state, state=FAILED, reason=reason, hint=hint, expires_s=0)
