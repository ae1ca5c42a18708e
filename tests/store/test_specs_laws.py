from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cdigen.model.errors import SpecError
from cdigen.store import specs
from cdigen.store.specs import PublishedSpec

NAME = "nvidia.com-gpu.json"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def publish(base: Path, content: bytes, *, replace_foreign: bool = False) -> PublishedSpec:
    return specs.publish(
        f"{base}/cdi",
        NAME,
        content,
        kind="nvidia.com/gpu",
        state_dir=f"{base}/state",
        check=lambda _: None,
        replace_foreign=replace_foreign,
    )


def names(base: Path) -> list[str]:
    return sorted(os.listdir(base / "cdi"))


@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_publishing_the_same_content_again_changes_nothing(first: bytes, second: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        base = Path(folder)
        publish(base, first)
        publish(base, second)
        before = (names(base), (base / "cdi" / NAME).stat().st_ino, (base / "state/state.json").read_bytes())
        assert publish(base, second) == PublishedSpec(path=str(base / "cdi" / NAME), result="unchanged")
        after = (names(base), (base / "cdi" / NAME).stat().st_ino, (base / "state/state.json").read_bytes())
        assert before == after
        assert (base / "cdi" / NAME).read_bytes() == second


class History(RuleBasedStateMachine):
    """After any sequence of events, no foreign content is lost, and cdigen's content is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        self.base = Path(self.folder.name)
        (self.base / "cdi").mkdir()
        self.path = self.base / "cdi" / NAME
        self.foreign: set[bytes] = set()
        self.ours: bytes | None = None

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(content=st.sampled_from([b"one", b"two"]), replace=st.booleans())
    def publish(self, content: bytes, replace: bool) -> None:  # noqa: FBT001  hypothesis draws it
        there = self.path.read_bytes() if self.path.exists() else None
        refused = there not in (None, self.ours, content) and not replace
        try:
            publish(self.base, content, replace_foreign=replace)
        except SpecError:
            assert refused
        else:
            assert not refused
            assert self.path.read_bytes() == content
            self.ours = content
            if there == content:
                self.foreign.discard(content)  # a file with the same bytes is recorded as cdigen's file

    @rule(number=st.integers(0, 9))
    def another_program_writes(self, number: int) -> None:
        content = f"foreign {number} {len(self.foreign)}".encode()
        if self.path.exists() and self.path.read_bytes() in self.foreign:
            self.foreign.discard(self.path.read_bytes())
        self.path.write_bytes(content)
        self.foreign.add(content)

    @rule()
    def withdraw(self) -> None:
        ours = self.path.exists() and self.path.read_bytes() == self.ours
        removal = specs.withdraw(f"{self.base}/cdi", NAME, state_dir=f"{self.base}/state")
        assert (removal == "removed") is ours
        assert not ours or not self.path.exists()

    @rule()
    def the_state_is_lost(self) -> None:
        (self.base / "state/state.json").unlink(missing_ok=True)
        if self.ours is not None and self.path.exists() and self.path.read_bytes() == self.ours:
            self.foreign.add(self.ours)
        self.ours = None

    @invariant()
    def no_foreign_content_is_lost_and_no_temporary_file_stays(self) -> None:
        files = list((self.base / "cdi").iterdir())
        assert self.foreign <= {path.read_bytes() for path in files}
        assert all(path.name.startswith(NAME) for path in files)


History.TestCase.settings = settings(stateful_step_count=12)
test_no_history_loses_foreign_content = History.TestCase
