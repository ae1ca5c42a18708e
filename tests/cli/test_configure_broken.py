"""``cdigen configure`` with files that no runtime can parse: an error of one line, and no change."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.specs import put

MAIN = "etc/containerd/config.toml"
DROP_IN = "etc/containerd/conf.d/50-other.toml"


@pytest.mark.parametrize("version", ['"2"', "[2]", "{a = 1}", "2.5", "1979-05-27"])
def test_a_version_that_is_not_a_number_in_containerds_file_is_refused(
    cdigen: Run, tmp_path: Path, version: str
) -> None:
    put(tmp_path / MAIN, f"version = {version}\n")
    done = cdigen("configure", "containerd", "--root", tmp_path)
    assert done.failed(2, "config.toml", "line 1", "version must be a number")
    assert (tmp_path / MAIN).read_text() == f"version = {version}\n"


def test_an_invalid_version_in_an_imported_file_is_refused_with_the_file_name(
    cdigen: Run, tmp_path: Path
) -> None:
    put(tmp_path / MAIN, 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n')
    put(tmp_path / DROP_IN, 'version = "x"\n')
    done = cdigen("configure", "containerd", "--root", tmp_path)
    assert done.failed(2, "50-other.toml", "line 1", "version must be a number")


@pytest.mark.parametrize(
    ("runtime", "path"),
    [
        ("containerd", MAIN),
        ("crio", "etc/crio/crio.conf.d/99-cdigen.conf"),
        ("podman", "etc/containers/containers.conf.d/99-cdigen.conf"),
    ],
)
def test_a_number_of_thousands_of_digits_is_refused_with_the_name_of_its_file(
    cdigen: Run, tmp_path: Path, runtime: str, path: str
) -> None:
    put(tmp_path / path, f"version = {'1' * 5000}\n")
    done = cdigen("configure", runtime, "--root", tmp_path)
    assert done.failed(2, path.rpartition("/")[2], "4300 digits")
