from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from support.store.mounts import fill, read_only, tmpfs
from support.store.users import by

from cdigen.model.errors import StoreError
from cdigen.store import specs
from cdigen.store.records.owned_specs import read

NAME = "nvidia.com-gpu.json"
NOBODY = 65534


def accept(_: bytes) -> None:
    pass


def publish(directory: Path | str, state_dir: Path | str, content: bytes) -> specs.PublishedSpec:
    return specs.publish(
        str(directory), NAME, content, kind="nvidia.com/gpu", state_dir=str(state_dir), check=accept
    )


def refusal(directory: Path | str, state_dir: Path | str, content: bytes) -> StoreError:
    with pytest.raises(StoreError) as caught:
        publish(directory, state_dir, content)
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.usefixtures("own_mounts")
def test_a_full_disk_leaves_the_old_spec_complete_and_no_temporary_files(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "cdi", "size=16k") as directory:
        publish(directory, tmp_path / "state", b"old" * 1000)
        error = refusal(directory, tmp_path / "state", b"new" * 10_000)
        assert f"{directory}/{NAME}" in error.message
        assert "No space left on device" in error.message
        assert "df" in error.hint
        assert os.listdir(directory) == [NAME]
        assert (directory / NAME).read_bytes() == b"old" * 1000
        state, _ = read(f"{tmp_path}/state")
        assert state.owns(f"{directory}/{NAME}", b"old" * 1000)
        assert publish(directory, tmp_path / "state", b"less" * 1000).result == "written"


@pytest.mark.usefixtures("own_mounts")
def test_a_disk_without_free_inodes_is_reported_as_a_full_disk(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "cdi", "size=1m,nr_inodes=2") as directory:
        publish(directory, tmp_path / "state", b"old")
        assert "No space left on device" in refusal(directory, tmp_path / "state", b"new").message
        assert (directory / NAME).read_bytes() == b"old"


@pytest.mark.usefixtures("own_mounts")
def test_a_writer_frees_the_space_of_the_temporary_files_of_an_ended_writer(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "cdi", "size=16k") as directory:
        (directory / ".cdigen-x.json.1.00000000.tmp").write_bytes(b"x" * 16384)
        assert publish(directory, tmp_path / "state", b"new").result == "written"


@pytest.mark.usefixtures("own_mounts")
def test_a_full_disk_of_the_state_directory_leaves_the_old_spec(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "state", "size=16k") as state_dir:
        publish(tmp_path / "cdi", state_dir, b"old")
        fill(state_dir / "more")
        error = refusal(tmp_path / "cdi", state_dir, b"new")
        assert f"{state_dir}/state.json" in error.message
        assert os.listdir(tmp_path / "cdi") == [NAME]
        assert (tmp_path / "cdi" / NAME).read_bytes() == b"old"
        (state_dir / "more").unlink()
        assert publish(tmp_path / "cdi", state_dir, b"new").result == "written"


@pytest.mark.usefixtures("own_mounts")
def test_an_unchanged_spec_with_an_unwritable_state_file_is_only_a_warning(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "state", "size=16k") as state_dir:
        publish(tmp_path / "cdi", state_dir, b"old")
        (state_dir / "state.json").unlink()
        fill(state_dir / "more")
        published = publish(tmp_path / "cdi", state_dir, b"old")
        assert published.result == "unchanged"
        assert [(finding.severity, finding.rule) for finding in published.findings] == [
            ("warning", "state-not-written")
        ]


@pytest.mark.usefixtures("own_mounts")
def test_a_full_disk_of_the_state_directory_does_not_prevent_a_withdrawal(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "state", "size=16k") as state_dir:
        publish(tmp_path / "cdi", state_dir, b"old")
        fill(state_dir / "more")
        assert specs.withdraw(f"{tmp_path}/cdi", NAME, state_dir=str(state_dir)) == "removed"
        assert os.listdir(tmp_path / "cdi") == []


@pytest.mark.usefixtures("own_mounts")
def test_the_error_names_a_read_only_spec_directory(tmp_path: Path) -> None:
    publish(tmp_path / "cdi", tmp_path / "state", b"old")
    with read_only(tmp_path / "cdi"):
        error = refusal(tmp_path / "cdi", tmp_path / "state", b"new")
        assert f"{tmp_path}/cdi/{NAME}: Read-only file system" in error.message
        assert "writable" in error.hint
        assert publish(tmp_path / "cdi", tmp_path / "state", b"old").result == "unchanged"
        with pytest.raises(StoreError, match="Read-only"):
            specs.withdraw(f"{tmp_path}/cdi", NAME, state_dir=f"{tmp_path}/state")
    assert (tmp_path / "cdi" / NAME).read_bytes() == b"old"


@pytest.mark.usefixtures("own_mounts")
def test_the_error_names_a_missing_directory_on_a_read_only_file_system(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    with read_only(tmp_path / "etc"):
        error = refusal(tmp_path / "etc/a/cdi", tmp_path / "state", b"new")
    assert f"cannot make spec directory {tmp_path}/etc/a/cdi: {tmp_path}/etc/a: Read-only" in error.message


@pytest.mark.usefixtures("own_mounts")
def test_the_error_names_a_read_only_state_directory(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with read_only(tmp_path / "state"):
        error = refusal(tmp_path / "cdi", tmp_path / "state", b"new")
    assert f"cannot open {tmp_path}/state/lock: Read-only file system" in error.message
    assert not (tmp_path / "cdi").exists()


@pytest.mark.needs_root
def test_a_missing_permission_is_reported_with_the_path() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        (base / "cdi").mkdir()
        (base / "closed").mkdir(mode=0o700)
        (base / "state").mkdir()
        os.chown(base / "state", NOBODY, NOBODY)
        message = by(NOBODY, lambda: publish(base / "cdi", base / "state", b"new"))
        assert message.startswith(f"cannot write {base}/cdi/{NAME}: Permission denied; run")
        message = by(NOBODY, lambda: publish(base / "closed/cdi", base / "state", b"new"))
        assert message.startswith("cannot open spec directory")
        assert "Permission denied" in message
        message = by(NOBODY, lambda: publish(base / "new/cdi", base / "state", b"new"))
        assert message.startswith(f"cannot make spec directory {base}/new/cdi: {base}/new: Permission")
        message = by(NOBODY, lambda: publish(base / "cdi", base / "mine", b"new"))
        assert message.startswith(f"cannot make state directory {base}/mine: Permission denied")
        assert os.listdir(base / "cdi") == []


@pytest.mark.needs_root
def test_a_file_that_the_user_may_not_replace_is_unchanged() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        publish(base / "cdi", base / "state", b"old")
        (base / "cdi").chmod(0o1777)  # all users may write here, but not rename over a file of another user
        for path in (base / "state", *(base / "state").iterdir()):
            os.chown(path, NOBODY, NOBODY)
        message = by(NOBODY, lambda: publish(base / "cdi", base / "state", b"new"))
        assert message.startswith(f"cannot write {base}/cdi/{NAME}: Operation not permitted; run")
        assert (base / "cdi" / NAME).read_bytes() == b"old"
        assert os.listdir(base / "cdi") == [NAME]
