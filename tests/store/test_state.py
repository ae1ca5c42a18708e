from __future__ import annotations

import json
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.store.directory import open_or_create
from cdigen.store.records import owned_specs
from cdigen.store.records.owned_specs import OwnedSpec, State
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

OWNED = OwnedSpec(
    path="/etc/cdi/a.json",
    kind="nvidia.com/gpu",
    digests=(owned_specs.digest(b"a"), owned_specs.digest(b"b")),
)


def test_a_written_state_is_read_back(tmp_path: Path) -> None:
    state = State(specs=(OWNED, OwnedSpec(path=os.fsdecode(b"/etc/cdi/\xff.json"), kind="a.b/c", digests=())))
    with open_or_create(str(tmp_path)) as directory:
        owned_specs.write(directory, state)
    assert owned_specs.read(str(tmp_path)) == (state, ())
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
    assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == 0o644


def test_a_reader_with_another_root_of_the_host_converts_the_paths(tmp_path: Path) -> None:
    """A pod with the host at /host can read the state file of the host's service, and vice versa."""
    host, pod = tmp_path / "host", tmp_path / "pod/sees"
    owned = replace(OWNED, path=f"{host}/run/cdi/a.json")
    other = replace(OWNED, path="/srv/cdi/b.json")
    with open_or_create(f"{host}/var/lib/cdigen") as directory:
        owned_specs.write(directory, State(specs=(owned, other)))
    pod.parent.mkdir()
    host.rename(pod)
    moved = replace(OWNED, path=f"{pod}/run/cdi/a.json")
    assert set(owned_specs.read(f"{pod}/var/lib/cdigen")[0].specs) == {moved, other}
    with open_or_create(f"{pod}/var/lib/cdigen") as directory:
        owned_specs.write(directory, State(specs=(moved,)))
    pod.rename(host)
    assert owned_specs.read(f"{host}/var/lib/cdigen") == (State(specs=(owned,)), ())


@pytest.mark.parametrize(
    ("writer", "reader", "path", "converted"),
    [
        ("/var/lib/cdigen", "/host/var/lib/cdigen", "/run/cdi/a", "/host/run/cdi/a"),
        ("/host/var/lib/cdigen", "/var/lib/cdigen", "/host/run/cdi/a", "/run/cdi/a"),
        ("/host/var/lib/cdigen", "/var/lib/cdigen", "/hostess/a", "/hostess/a"),
        ("/a/var/lib/cdigen", "/b/var/lib/cdigen", "/a/run/cdi/a", "/b/run/cdi/a"),
        ("/srv/state", "/var/lib/cdigen", "/run/cdi/a", "/run/cdi/a"),
    ],
)
def test_paths_are_converted_by_the_path_of_the_state_directory(
    writer: str, reader: str, path: str, converted: str
) -> None:
    entry = {"kind": "nvidia.com/gpu", "driver": "", "digests": ()}
    found = {"home": writer, "specs": {path: entry}}
    assert [owned.path for owned in owned_specs._state(found, reader).specs] == [converted]


def test_without_the_directory_or_the_file_the_state_is_empty(tmp_path: Path) -> None:
    assert owned_specs.read(f"{tmp_path}/none") == (State(), ())
    assert owned_specs.read(str(tmp_path)) == (State(), ())
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_a_file_of_cdigen_if_its_digest_is_recorded() -> None:
    state = State(specs=(OWNED,))
    assert state.owns("/etc/cdi/a.json", b"a")
    assert state.owns("/etc/cdi/a.json", b"b")
    assert not state.owns("/etc/cdi/a.json", b"c")
    assert not state.owns("/etc/cdi/b.json", b"a")
    assert not state.owns("/etc/cdi/a.json", None)


def test_recording_replaces_and_forgetting_removes_one_path() -> None:
    other = OwnedSpec(path="/etc/cdi/0.json", kind="a.b/c", digests=())
    state = State().recording(OWNED).recording(other)
    assert [owned.path for owned in state.specs] == ["/etc/cdi/0.json", "/etc/cdi/a.json"]
    changed = OwnedSpec(path=OWNED.path, kind="x.y/z", digests=())
    assert state.recording(changed).of(OWNED.path) == changed
    assert state.forgetting(OWNED.path) == State(specs=(other,))


DAMAGE = [
    b"",
    b"{",
    b"\xff\xfe\x00",
    b"[]",
    b"null",
    b"{}",
    b'{"schema": 2, "home": "/s", "specs": {}}',
    b'{"schema": 1, "specs": {}}',
    b'{"schema": 1, "home": "/s", "specs": []}',
    b'{"schema": 1, "home": "/s", "specs": {"/a": {"kind": "x/y", "sha256": []}}}',
    b'{"schema": 1, "home": "/s", "specs": {"/a": {"kind": "x/y", "driver": ""}}}',
    b'{"schema": 1, "home": "/s", "specs": {"/a": {"kind": "x/y", "driver": "", "sha256": "00"}}}',
    b'{"schema": 1, "home": "/s", "specs": {"/a": {"kind": 1, "driver": "", "sha256": []}}}',
    b'{"schema": 1, "home": "/s", "specs": {"/a": []}}',
    b'{"schema": 1' + b"0" * 5000 + b"}",
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_state_file_is_moved_aside_and_the_state_is_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    state, findings = owned_specs.read(str(tmp_path))
    assert (state, [finding.rule for finding in findings]) == (State(), ["state-damaged"])
    assert (tmp_path / "state.json").read_bytes() == content
    with open_or_create(str(tmp_path)) as directory:
        state, findings = owned_specs.read_for_update(directory)
    assert state == State()
    assert findings[0].severity == "warning"
    assert "\n" not in findings[0].message
    assert not (tmp_path / "state.json").exists()
    assert (tmp_path / "state.json.damaged").read_bytes() == content


@pytest.mark.parametrize("kind", ["directory", "fifo", "symlink"])
def test_a_state_file_that_is_not_regular_is_moved_aside(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.json"
    if kind == "directory":
        (path / "below").mkdir(parents=True)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/etc/passwd")
    (tmp_path / "state.json.damaged").write_text("an older one")
    with open_or_create(str(tmp_path)) as directory:
        state, findings = owned_specs.read_for_update(directory)
    assert state == State()
    assert kind in findings[0].message
    assert (tmp_path / "state.json.damaged").read_text() == "an older one"
    assert os.path.lexists(tmp_path / "state.json.damaged-2")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["kind", "driver", "sha256", "0" * 64]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["schema", "home", "specs", "kind", "driver", "sha256", "/a"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(document=JSON)
def test_any_document_is_read_as_a_state_or_as_damage(
    tmp_path_factory: pytest.TempPathFactory, document: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-document"
    path.mkdir(exist_ok=True)
    (path / "state.json").write_text(json.dumps(document))
    state, findings = owned_specs.read(str(path))
    assert len(findings) <= 1
    assert state == State() or not findings


def test_within_returns_only_files_directly_in_the_folder() -> None:
    paths = ("/etc/cdi/a.json", "/etc/cdi/b/c.json", "/etc/cdi2/d.json")
    state = State(specs=tuple(OwnedSpec(path=path, kind="a.b/c", digests=()) for path in paths))
    assert [owned.path for owned in state.within("/etc/cdi")] == ["/etc/cdi/a.json"]
