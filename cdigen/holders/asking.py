"""``Asking``: questions that may take long or for ever, each in a thread of its own, asked on demand.

An answer is good for all for FRESH_S. While one is late no second thread asks the same, and whoever wants to
know has the last answer for STALE_S.
"""

from __future__ import annotations

import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Question = Callable[[], object]

FRESH_S = 5.0
STALE_S = 15.0
# So many may wait at once; whoever comes then has to take what is known.
MAX_WAITING = 1


class Asking:
    """Asks questions, by their names. A question never raises."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Guards what follows; notified when there is an answer.
        self._changed = threading.Condition()
        self._sessions: dict[str, _Session] = {}
        self._waiting = 0

    def begin(self, questions: Mapping[str, Question]) -> None:
        """Ask those of QUESTIONS of which there is no fresh answer; forget all others."""
        with self._changed:
            for name in [name for name in self._sessions if name not in questions]:
                if not self._sessions[name].is_open:
                    del self._sessions[name]
            for name, question in questions.items():
                self._begin(name, question)

    def answers(self, wait_s: float) -> dict[str, object]:
        """Return the answers that there are after WAIT_S at the most, by the names of the questions."""
        with self._changed:
            if self._waiting < MAX_WAITING:
                self._waiting += 1
                try:
                    self._changed.wait_for(
                        lambda: not any(each.is_open for each in self._sessions.values()), wait_s
                    )
                finally:
                    self._waiting -= 1
            now = self._clock()
            return {
                name: each.answer
                for name, each in self._sessions.items()
                if each.ended_s is not None and now - each.ended_s <= STALE_S
            }

    def _begin(self, name: str, question: Question) -> None:
        session = self._sessions.setdefault(name, _Session())
        if session.is_open or (session.ended_s is not None and self._clock() - session.ended_s < FRESH_S):
            return
        session.is_open = True
        thread = threading.Thread(
            target=self._run, args=(session, question), name=f"holders-{name}"[:15], daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no thread to be had: the last answer counts until it is too old
            session.is_open = False

    def _run(self, session: _Session, question: Question) -> None:
        try:
            answer = question()
            ended_s: float | None = self._clock()
        except Exception:  # noqa: BLE001 - a defect of ours is an answer that does not come
            answer, ended_s = None, None
        with self._changed:
            session.is_open, session.answer, session.ended_s = False, answer, ended_s
            self._changed.notify_all()


class _Session:
    """A question: whether it is being asked (``is_open``), its last ``answer``, and since when."""

    def __init__(self) -> None:
        self.is_open = False
        self.answer: object = None
        self.ended_s: float | None = None
