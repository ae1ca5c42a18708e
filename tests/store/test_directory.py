from __future__ import annotations

import os
import stat
from contextlib import contextmanager

import pytest

from cdigen.model.errors import ConfigError, StoreError
from cdigen.store.directory import clean_path, open_existing, open_or_create

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def refusal(path: Path | str, **options: str) -> StoreError:
    with pytest.raises(StoreError) as caught, open_or_create(str(path), **options):
        pass
    assert "\n" not in caught.value.message
    return caught.value


def test_missing_components_are_made_with_mode_0755_for_any_umask(tmp_path: Path) -> None:
    with umask(0o077), open_or_create(f"{tmp_path}/var/run/cdi") as directory:
        assert os.fstat(directory.fd).st_ino == (tmp_path / "var/run/cdi").stat().st_ino
    for path in ("var", "var/run", "var/run/cdi"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o755


def test_an_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "cdi").mkdir(mode=0o700)
    with open_or_create(f"{tmp_path}/cdi"):
        pass
    assert stat.S_IMODE((tmp_path / "cdi").stat().st_mode) == 0o700


def test_a_symlink_in_the_path_is_followed_and_the_record_has_the_resolved_path(
    tmp_path: Path,
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    with open_or_create(f"{tmp_path}/var/run/cdi") as directory:
        assert directory.file("x.json") == f"{tmp_path}/var/run/cdi/x.json"
        assert directory.record("x.json") == f"{tmp_path}/run/cdi/x.json"
    assert (tmp_path / "run/cdi").is_dir()


def test_a_spec_directory_that_is_a_symlink_is_refused_with_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "cdi").symlink_to("real")
    error = refusal(tmp_path / "cdi")
    assert f"spec directory {tmp_path}/cdi: is a symlink (to real)" in error.message
    assert "runtimes do not follow" in error.message
    assert error.hint
    assert error.exit_code == 5


def test_the_refusal_of_a_state_directory_that_is_a_symlink_names_no_runtimes(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "state").symlink_to("real")
    error = refusal(tmp_path / "state", what="state directory")
    assert error.message.startswith("state directory ")
    assert "runtimes" not in error.message


@pytest.mark.parametrize("target", ["nowhere", "loop"])
def test_a_parent_that_is_a_dangling_or_looping_symlink_is_named(tmp_path: Path, target: str) -> None:
    (tmp_path / "loop").symlink_to(target)
    error = refusal(tmp_path / "loop/cdi")
    assert f"{tmp_path}/loop is a symlink to {target}" in error.message


def test_a_file_at_the_path_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("x")
    assert "is not a directory" in refusal(tmp_path / "cdi").message


def test_the_error_names_a_file_at_the_path_of_a_parent(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    error = refusal(tmp_path / "run/cdi")
    assert f"{tmp_path}/run/cdi" in error.message
    assert f"{tmp_path}/run is not a directory" in error.message


def test_a_name_that_is_too_long_is_reported_in_one_line(tmp_path: Path) -> None:
    assert "File name too long" in refusal(tmp_path / ("x" * 300)).message


def test_a_path_with_a_newline_and_bad_bytes_is_escaped_in_the_message(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\nb\xff")
    (tmp_path / name).write_text("x")
    error = refusal(tmp_path / name)
    assert "a\\nb\\udcff" in error.message
    error.message.encode()


@pytest.mark.parametrize("path", ["etc/cdi", "", "/etc/\0cdi"])
def test_a_path_that_is_not_absolute_is_a_usage_error(path: str) -> None:
    with pytest.raises(ConfigError, match="absolute"), open_or_create(path):
        pass


def test_paths_are_cleaned_lexically_as_in_the_cdi_libraries() -> None:
    assert clean_path("//etc//cdi/./x/../") == "/etc/cdi"
    assert clean_path("/..") == "/"


def test_open_existing_yields_none_for_a_missing_directory_and_makes_no_folder(tmp_path: Path) -> None:
    with open_existing(f"{tmp_path}/var/cdi") as directory:
        assert directory is None
    assert list(tmp_path.iterdir()) == []


def test_no_descriptor_stays_open_after_success_or_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    before = os.listdir("/proc/self/fd")
    with open_or_create(f"{tmp_path}/a/b"), open_existing(f"{tmp_path}/a"), open_existing(f"{tmp_path}/none"):
        pass
    refusal(tmp_path / "file")
    refusal(tmp_path / "file/below")
    assert os.listdir("/proc/self/fd") == before
