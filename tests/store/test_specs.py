from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.store.traces import traces

from cdigen.model.errors import SpecError, StoreError
from cdigen.store import specs
from cdigen.store.records.owned_specs import read
from cdigen.store.specs import PublishedSpec

NAME = "nvidia.com-gpu.json"
KIND = "nvidia.com/gpu"
NOON = 1786449600.0  # 2026-08-11T12:00:00Z


def accept(_: bytes) -> None:
    pass


def publish(base: Path, content: bytes = b"one", **options: object) -> PublishedSpec:
    arguments = {"kind": KIND, "state_dir": f"{base}/state", "check": accept, "now": lambda: NOON, **options}
    return specs.publish(f"{base}/cdi", NAME, content, **arguments)  # type: ignore[arg-type]


def names(base: Path) -> list[str]:
    return sorted(os.listdir(base / "cdi"))


def recorded(base: Path) -> dict[str, int]:
    state, findings = read(f"{base}/state")
    assert findings == ()
    return {owned.path: len(owned.digests) for owned in state.specs}


def is_ours(base: Path) -> bool:
    path = base / "cdi" / NAME
    return read(f"{base}/state")[0].owns(str(path), path.read_bytes())


# Writing


def test_a_first_write_makes_the_directory_and_a_world_readable_file(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        published = publish(tmp_path)
    finally:
        os.umask(old)
    path = tmp_path / "cdi" / NAME
    assert published == PublishedSpec(path=str(path), result="written")
    assert path.read_bytes() == b"one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names(tmp_path) == [NAME]
    assert recorded(tmp_path) == {str(path): 1}


def test_new_content_replaces_a_file_of_cdigen(tmp_path: Path) -> None:
    publish(tmp_path)
    assert publish(tmp_path, b"two").result == "written"
    assert (tmp_path / "cdi" / NAME).read_bytes() == b"two"
    assert is_ours(tmp_path)
    assert len(recorded(tmp_path)) == 1


def test_unchanged_content_changes_no_file_no_directory_and_no_state(tmp_path: Path) -> None:
    publish(tmp_path)
    paths = (tmp_path / "cdi", tmp_path / "cdi" / NAME, tmp_path / "state/state.json")
    before = [(path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths]
    assert publish(tmp_path).result == "unchanged"
    assert [
        (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths
    ] == before


def test_a_file_with_a_wrong_mode_is_replaced_because_runtimes_do_not_notice_a_chmod(tmp_path: Path) -> None:
    publish(tmp_path)
    path = tmp_path / "cdi" / NAME
    before = path.stat().st_ino
    path.chmod(0o600)
    assert publish(tmp_path).result == "written"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.stat().st_ino != before


@pytest.mark.needs_root
def test_a_file_of_cdigen_whose_owner_is_another_user_is_replaced(tmp_path: Path) -> None:
    publish(tmp_path)
    path = tmp_path / "cdi" / NAME
    os.chown(path, 65534, 65534)
    assert publish(tmp_path).result == "written"
    assert path.stat().st_uid == os.geteuid()


def test_a_removed_file_is_written_again(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "cdi" / NAME).unlink()
    assert publish(tmp_path).result == "written"


def test_the_check_gets_the_bytes_on_the_disk_and_a_refusal_changes_nothing(tmp_path: Path) -> None:
    publish(tmp_path)
    contents: list[bytes] = []

    def refuse(content: bytes) -> None:
        contents.append(content)
        raise SpecError("no")

    with pytest.raises(SpecError):
        publish(tmp_path, b"two", check=refuse)
    with pytest.raises(SpecError):
        publish(tmp_path, b"one", check=refuse)
    assert contents == [b"two", b"one"]
    assert (tmp_path / "cdi" / NAME).read_bytes() == b"one"
    assert names(tmp_path) == [NAME]
    assert is_ours(tmp_path)


def test_a_file_that_another_program_changes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    publish(tmp_path)
    path = tmp_path / "cdi" / NAME
    with pytest.raises(StoreError, match="meanwhile"):
        publish(tmp_path, b"two", check=lambda _: path.write_bytes(b"foreign"))
    assert path.read_bytes() == b"foreign"
    assert names(tmp_path) == [NAME]


@pytest.mark.parametrize("name", ["a.txt", "../a.json", "", "a.json.tmp", "a.yml"])
def test_a_file_name_that_runtimes_do_not_load_raises_value_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        specs.publish(str(tmp_path), name, b"", kind=KIND, state_dir=f"{tmp_path}/state", check=accept)


def test_a_name_of_255_bytes_is_written_and_a_longer_name_is_an_error(tmp_path: Path) -> None:
    for length, good in ((255, True), (256, False)):
        name = "n" * (length - 5) + ".json"
        if good:
            assert (
                specs.publish(
                    f"{tmp_path}/cdi", name, b"", kind=KIND, state_dir=f"{tmp_path}/state", check=accept
                ).result
                == "written"
            )
            continue
        with pytest.raises(StoreError, match="File name too long"):
            specs.publish(
                f"{tmp_path}/cdi", name, b"", kind=KIND, state_dir=f"{tmp_path}/state", check=accept
            )


def test_a_file_of_cdigen_is_recognised_through_a_link_to_its_directory(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "alias").symlink_to(".")
    arguments = {"kind": KIND, "state_dir": f"{tmp_path}/state", "check": accept}
    published = specs.publish(f"{tmp_path}/alias/cdi", NAME, b"two", **arguments)  # type: ignore[arg-type]
    assert published == PublishedSpec(path=f"{tmp_path}/alias/cdi/{NAME}", result="written")


# Foreign files.


def put_foreign(base: Path, what: str) -> None:
    path = base / "cdi" / NAME
    path.parent.mkdir()
    match what:
        case "file":
            path.write_bytes(b"foreign")
        case "symlink":
            path.symlink_to("/etc/passwd")
        case "dangling symlink":
            path.symlink_to("/nowhere")
        case "directory":
            (path / "below").mkdir(parents=True)
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryDirectory() as short:
                server.bind(f"{short}/s")
                os.rename(f"{short}/s", path)


FOREIGN = ("file", "symlink", "dangling symlink", "directory", "fifo", "socket")


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_file_with_the_name_of_the_spec_is_refused_with_the_remedy(
    tmp_path: Path, what: str
) -> None:
    put_foreign(tmp_path, what)
    passwd = traces(Path("/etc/passwd"))
    before = traces(tmp_path / "cdi" / NAME)
    with pytest.raises(SpecError) as caught:
        publish(tmp_path)
    assert caught.value.exit_code == 4
    assert f"{tmp_path}/cdi/{NAME}" in caught.value.message
    assert "--replace-foreign" in caught.value.hint
    assert traces(tmp_path / "cdi" / NAME) == before
    assert traces(Path("/etc/passwd")) == passwd
    assert names(tmp_path) == [NAME]
    assert recorded(tmp_path) == {}


@pytest.mark.parametrize("what", FOREIGN)
def test_replace_foreign_moves_a_foreign_file_of_any_type_aside(tmp_path: Path, what: str) -> None:
    put_foreign(tmp_path, what)
    before = os.lstat(tmp_path / "cdi" / NAME)
    published = publish(tmp_path, replace_foreign=True)
    aside = f"{tmp_path}/cdi/{NAME}.foreign-20260811T120000Z"
    assert published.set_aside == (aside,)
    assert os.lstat(aside).st_ino == before.st_ino
    assert not aside.endswith((".json", ".yaml"))
    assert (tmp_path / "cdi" / NAME).read_bytes() == b"one"
    assert is_ours(tmp_path)


def test_foreign_files_that_are_moved_aside_within_a_second_get_different_names(tmp_path: Path) -> None:
    put_foreign(tmp_path, "file")
    publish(tmp_path, replace_foreign=True)
    (tmp_path / "cdi" / NAME).write_bytes(b"foreign again")
    published = publish(tmp_path, replace_foreign=True)
    assert published.set_aside == (f"{tmp_path}/cdi/{NAME}.foreign-20260811T120000Z-2",)
    assert (tmp_path / f"cdi/{NAME}.foreign-20260811T120000Z").read_bytes() == b"foreign"


def test_a_file_of_cdigen_is_foreign_after_an_edit(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "cdi" / NAME).write_bytes(b"edited by hand")
    with pytest.raises(SpecError):
        publish(tmp_path, b"two")
    assert (tmp_path / "cdi" / NAME).read_bytes() == b"edited by hand"


def test_a_foreign_file_stays_if_the_check_refuses_the_new_content(tmp_path: Path) -> None:
    put_foreign(tmp_path, "file")

    def refuse(_: bytes) -> None:
        raise SpecError("no")

    with pytest.raises(SpecError, match="no"):
        publish(tmp_path, replace_foreign=True, check=refuse)
    assert (tmp_path / "cdi" / NAME).read_bytes() == b"foreign"
    assert names(tmp_path) == [NAME]


def test_a_foreign_file_with_the_same_bytes_is_kept_and_recorded(tmp_path: Path) -> None:
    put_foreign(tmp_path, "file")
    (tmp_path / "cdi" / NAME).chmod(0o644)
    assert publish(tmp_path, b"foreign").result == "unchanged"
    assert publish(tmp_path, b"two").result == "written"


def test_other_foreign_files_are_moved_aside_together_with_the_write(tmp_path: Path) -> None:
    put_foreign(tmp_path, "file")
    (tmp_path / "cdi/nvidia.yaml").write_bytes(b"nvidia-ctk's")
    published = publish(tmp_path, replace_foreign=True, also_set_aside=("nvidia.yaml", "gone.json", NAME))
    stamp = "foreign-20260811T120000Z"
    assert published.set_aside == (f"{tmp_path}/cdi/{NAME}.{stamp}", f"{tmp_path}/cdi/nvidia.yaml.{stamp}")
    assert names(tmp_path) == [NAME, f"{NAME}.{stamp}", f"nvidia.yaml.{stamp}"]


def test_other_foreign_files_are_moved_aside_even_if_the_spec_is_unchanged(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "cdi/nvidia.yaml").write_bytes(b"nvidia-ctk's")
    published = publish(tmp_path, also_set_aside=("nvidia.yaml",))
    assert published.result == "unchanged"
    assert published.set_aside == (f"{tmp_path}/cdi/nvidia.yaml.foreign-20260811T120000Z",)


def test_foreign_files_are_moved_back_if_one_of_them_cannot_be_moved_aside(tmp_path: Path) -> None:
    put_foreign(tmp_path, "file")
    long = "n" * 245 + ".yaml"
    (tmp_path / "cdi" / long).write_bytes(b"its name has no room for a suffix")
    with pytest.raises(StoreError, match="too long"):
        publish(tmp_path, replace_foreign=True, also_set_aside=(long,))
    assert names(tmp_path) == sorted([NAME, long])
    assert (tmp_path / "cdi" / NAME).read_bytes() == b"foreign"


# The state file


def test_without_the_state_file_all_spec_files_are_foreign(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "state/state.json").unlink()
    with pytest.raises(SpecError):
        publish(tmp_path, b"two")
    assert publish(tmp_path).result == "unchanged"
    assert publish(tmp_path, b"two").result == "written"


def test_a_damaged_state_file_is_reported_and_the_spec_is_written(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "state/state.json").write_bytes(b"\0" * 100)
    published = publish(tmp_path)
    assert published.result == "unchanged"
    assert [(finding.severity, finding.rule) for finding in published.findings] == [
        ("warning", "state-damaged")
    ]
    assert (tmp_path / "state/state.json.damaged").read_bytes() == b"\0" * 100
    assert is_ours(tmp_path)
    assert publish(tmp_path).findings == ()


def test_the_refusal_of_a_foreign_file_names_the_damaged_state_file(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "state/state.json").write_bytes(b"")
    with pytest.raises(SpecError, match=r"cdigen did not write this file .*state\.json is damaged"):
        publish(tmp_path, b"two")
    assert (tmp_path / "cdi" / NAME).read_bytes() == b"one"


def test_after_a_kill_between_record_and_rename_the_file_is_still_a_file_of_cdigen(tmp_path: Path) -> None:
    publish(tmp_path)
    state = json.loads((tmp_path / "state/state.json").read_text())
    entry = state["specs"][f"{tmp_path}/cdi/{NAME}"]
    entry["sha256"].append("0" * 64)
    (tmp_path / "state/state.json").write_text(json.dumps(state))
    assert is_ours(tmp_path)
    assert publish(tmp_path, b"two").result == "written"
    assert recorded(tmp_path) == {f"{tmp_path}/cdi/{NAME}": 1}


# Withdrawing


def test_withdraw_removes_a_file_of_cdigen_once(tmp_path: Path) -> None:
    publish(tmp_path)
    assert specs.withdraw(f"{tmp_path}/cdi", NAME, state_dir=f"{tmp_path}/state") == "removed"
    assert names(tmp_path) == []
    assert recorded(tmp_path) == {}
    assert specs.withdraw(f"{tmp_path}/cdi", NAME, state_dir=f"{tmp_path}/state") == "absent"


@pytest.mark.parametrize("what", FOREIGN)
def test_withdraw_keeps_a_foreign_file(tmp_path: Path, what: str) -> None:
    put_foreign(tmp_path, what)
    (tmp_path / "state").mkdir()
    assert specs.withdraw(f"{tmp_path}/cdi", NAME, state_dir=f"{tmp_path}/state") == "absent"
    assert names(tmp_path) == [NAME]


def test_withdraw_keeps_a_file_of_cdigen_after_an_edit(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "cdi" / NAME).write_bytes(b"edited by hand")
    assert specs.withdraw(f"{tmp_path}/cdi", NAME, state_dir=f"{tmp_path}/state") == "foreign"
    assert names(tmp_path) == [NAME]


def test_withdraw_makes_no_directories(tmp_path: Path) -> None:
    assert specs.withdraw(f"{tmp_path}/cdi", NAME, state_dir=f"{tmp_path}/state") == "absent"
    assert list(tmp_path.iterdir()) == []


# What is recorded


def test_recorded_returns_the_files_of_a_directory_through_any_link(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in ("cdi", "link/cdi"):
        (owned,), findings = specs.recorded(f"{tmp_path}/{folder}", state_dir=f"{tmp_path}/state")
        assert (owned.name, owned.kind, findings) == (NAME, KIND, ())
    assert specs.recorded(f"{tmp_path}/other", state_dir=f"{tmp_path}/state") == ((), ())
    assert specs.recorded(f"{tmp_path}/cdi", state_dir=f"{tmp_path}/none") == ((), ())


# Start-up


def test_the_store_imports_no_slow_modules() -> None:
    code = (
        "import sys, dataclasses; before = set(sys.modules); import cdigen.store.specs; "
        "print(*sorted(name.partition('.')[0] for name in set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) <= {"__future__", "_json", "cdigen", "errno", "fcntl", "json"}
