"""Invalid files at the path of a library, and their effect on other libraries."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts import driver_files
from support.hosts.driver_files import AARCH64, I386, V535, V550, link, put, write_library
from support.hosts.nvidia import (
    DRIVER,
    discover,
    empty_root,
    install,
    make_any_instead,
    make_instead,
    places,
    refusal,
)

from cdigen.model.findings import Finding
from cdigen.vendors.nvidia.files.libraries import LibrarySearch, find_libraries, library_files, library_probes

SYSTEM = "usr/lib/x86_64-linux-gnu"
STEMS = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
SONAMES = {f"{stem}.so.1" for stem in STEMS}


def file(root: Path, stem: str, version: str = V550) -> Path:
    return root / SYSTEM / f"{stem}.so.{version}"


def install_few(root: Path) -> None:
    """Write a driver with three libraries. The first two libraries are required."""
    for stem in STEMS:
        write_library(file(root, stem), f"{stem}.so.1")
        link(root / SYSTEM / f"{stem}.so.1", f"{stem}.so.{V550}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host with a driver that has three libraries. The first two libraries are required."""
    install_few(tmp_path)
    return tmp_path


def search(root: Path, *folders: str) -> LibrarySearch:
    return find_libraries(places(root, libraries=folders), DRIVER)


def found(root: Path, *folders: str) -> dict[str, str]:
    files = library_files(search(root, *folders))
    return {name: file.host_path for file in files for name in file.names}


def findings(root: Path) -> list[Finding]:
    gathered = search(root).findings
    assert all(finding.line().isprintable() for finding in gathered)
    return gathered


def why_not(root: Path, stem: str) -> str:
    (reason,) = [thing.reason for thing in library_probes(search(root)) if thing.name == stem]
    return reason


def test_the_libraries_of_a_complete_driver_are_found(root: Path) -> None:
    assert found(root).keys() == {*SONAMES, "libcuda.so"}
    assert findings(root) == []


NO_LIBRARIES = {
    "text": b"This is a text and no library.\n",
    "empty": b"",
    "ELF magic only": b"\x7fELF",
    "linker script": b"/* GNU ld script */\nINPUT(libcuda.so.1)\n",
}


@pytest.mark.parametrize("content", NO_LIBRARIES.values(), ids=NO_LIBRARIES.keys())
def test_a_file_that_is_not_a_library_is_reported_with_its_path_and_left_out(
    root: Path, content: bytes
) -> None:
    file(root, "libnvidia-ptxjitcompiler").write_bytes(content)
    assert found(root).keys() == {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"}
    (finding,) = findings(root)
    assert (finding.severity, finding.rule) == ("warning", "library-unusable")
    assert finding.path == f"/{SYSTEM}/libnvidia-ptxjitcompiler.so.{V550}"


@pytest.mark.parametrize("stem", ["libcuda", "libnvidia-ml"])
def test_a_required_library_that_is_a_text_file_is_an_error(root: Path, stem: str) -> None:
    file(root, stem).write_text("no library\n")
    (finding,) = findings(root)
    assert (finding.severity, finding.rule) == ("error", "library-unusable")


@pytest.mark.usefixtures("real_nodes")
def test_a_text_file_named_libcuda_is_the_error_driver_broken(tmp_path: Path) -> None:
    install(tmp_path, driver_files.ubuntu)
    file(tmp_path, "libcuda").write_text("no library\n")
    error = refusal(tmp_path)
    assert error.kind == "driver-broken"
    assert f"/{SYSTEM}/libcuda.so.{V550}" in error.message


@pytest.mark.usefixtures("real_nodes")
@pytest.mark.parametrize("kind", ["dangling link", "looping link", "FIFO", "folder", "character device"])
def test_a_file_of_another_type_at_an_optional_librarys_path_affects_only_that_library(
    tmp_path: Path, kind: str
) -> None:
    laid = install(tmp_path, driver_files.ubuntu)
    make_any_instead(file(tmp_path, "libnvidia-cfg"), kind)
    inventory = discover(tmp_path)
    names = {name for file in inventory.files for name in file.names}
    assert names == laid.libraries.keys() - {"libnvidia-cfg.so.1"}
    assert {(f.severity, f.rule) for f in inventory.findings} == {("warning", "library-unusable")}


@pytest.mark.parametrize("kind", ["dangling link", "looping link", "FIFO", "folder"])
def test_a_file_of_another_type_at_a_required_librarys_path_is_an_error(root: Path, kind: str) -> None:
    make_instead(file(root, "libcuda"), kind)
    assert {finding.severity for finding in findings(root)} == {"error"}


def test_a_truncated_library_is_left_out(root: Path) -> None:
    path = file(root, "libnvidia-ptxjitcompiler")
    whole = path.read_bytes()
    for length in range(0, len(whole), 5):
        path.write_bytes(whole[:length])
        assert "libnvidia-ptxjitcompiler.so.1" not in found(root), length


@pytest.mark.parametrize("target", ["/opt/driver/{}", "../../../../../../../../opt/driver/{}"])
def test_a_link_out_of_the_root_is_resolved_in_the_root(root: Path, target: str) -> None:
    name = f"libcuda.so.{V550}"
    (root / "opt/driver").mkdir(parents=True)
    file(root, "libcuda").rename(root / "opt/driver" / name)
    link(file(root, "libcuda"), target.format(name))
    assert found(root)["libcuda.so.1"] == f"/opt/driver/{name}"


def test_a_library_outside_of_the_root_is_never_used(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside" / f"libcuda.so.{V550}"
    install_few(root)
    write_library(outside, "libcuda.so.1")
    link(file(root, "libcuda"), str(outside))
    assert "libcuda.so.1" not in found(root)
    assert "No such file" in why_not(root, "libcuda")


def test_a_name_without_a_version_is_accepted_if_the_content_has_the_version(root: Path) -> None:
    path = root / SYSTEM / "libGLX_nvidia.so.0"
    write_library(path, "libGLX_nvidia.so.0", contains=bytes(1 << 20) + V550.encode())
    assert found(root)["libGLX_nvidia.so.0"] == f"/{SYSTEM}/libGLX_nvidia.so.0"


def test_a_name_without_a_version_is_rejected_if_the_content_has_another_version(root: Path) -> None:
    write_library(root / SYSTEM / "libGLX_nvidia.so.0", "libGLX_nvidia.so.0", contains=V535.encode())
    assert "libGLX_nvidia.so.0" not in found(root)
    assert f"does not contain {V550}" in why_not(root, "libGLX_nvidia")


def test_a_version_that_crosses_the_border_of_two_reads_is_found(root: Path) -> None:
    path = root / SYSTEM / "libGLX_nvidia.so.0"
    write_library(path, "libGLX_nvidia.so.0")
    padding = (1 << 20) - path.stat().st_size - 4
    write_library(path, "libGLX_nvidia.so.0", contains=bytes(padding) + V550.encode())
    assert "libGLX_nvidia.so.0" in found(root)


@pytest.mark.parametrize(("machine", "bits"), [(I386, 32), (AARCH64, 64), (62, 32)])
def test_a_library_for_another_machine_is_skipped_without_a_finding(
    root: Path, machine: int, bits: int
) -> None:
    write_library(file(root, "libnvidia-ptxjitcompiler"), "libptx.so.1", machine=machine, bits=bits)
    assert "libptx.so.1" not in found(root)
    assert findings(root) == []
    assert "is for another machine" in why_not(root, "libnvidia-ptxjitcompiler")


def test_a_library_for_another_machine_does_not_hide_the_library_for_this_machine(root: Path) -> None:
    write_library(root / f"opt/a/libcuda.so.{V550}", "libcuda.so.1", machine=I386, bits=32)
    assert found(root, "/opt/a", f"/{SYSTEM}")["libcuda.so.1"] == f"/{SYSTEM}/libcuda.so.{V550}"


def test_the_name_of_a_library_in_the_container_is_its_soname(root: Path) -> None:
    write_library(file(root, "libnvidia-opencl"), "libsurprise.so.7")
    assert found(root)["libsurprise.so.7"] == f"/{SYSTEM}/libnvidia-opencl.so.{V550}"


@pytest.mark.parametrize("soname", ["", "/usr/lib/libcuda.so.1", "../libcuda.so.1"])
def test_a_library_without_a_valid_soname_keeps_its_file_name(root: Path, soname: str) -> None:
    write_library(file(root, "libnvidia-opencl"), soname)
    assert f"libnvidia-opencl.so.{V550}" in found(root)


@pytest.mark.parametrize("soname", ["two\nlines", "\udcff", "\x1b[31m", ".", ".."])
def test_a_library_whose_soname_is_not_a_file_name_is_left_out(root: Path, soname: str) -> None:
    write_library(file(root, "libnvidia-opencl"), soname)
    assert found(root).keys() == {*SONAMES, "libcuda.so"}
    assert [finding.rule for finding in findings(root)] == ["library-unusable"]


def test_a_library_that_is_not_in_the_table_is_found_by_the_version_in_its_name(root: Path) -> None:
    write_library(file(root, "libnvidia-novelty"), "libnvidia-novelty.so.1")
    assert "libnvidia-novelty.so.1" in found(root)
    (searched,) = [row for row in library_probes(search(root)) if row.name == "libnvidia-novelty"]
    assert searched.capabilities == ()


def test_files_other_than_libraries_of_the_driver_are_not_read(root: Path) -> None:
    for name in ("libnvidia-container.so.1", "libc.so.6", "libcudart.so.12", "cuda.so.550.163.01"):
        put(root / SYSTEM / name, b"rubbish")
    assert findings(root) == []
    assert found(root).keys() == {*SONAMES, "libcuda.so"}


def test_a_missing_library_that_another_library_needs_is_reported(root: Path) -> None:
    write_library(file(root, "libnvidia-encode"), "libnvidia-encode.so.1", ("libnvcuvid.so.1", "libc.so.6"))
    (finding,) = findings(root)
    assert (finding.severity, finding.rule) == ("warning", "library-incomplete")
    assert "libnvidia-encode.so.1 needs libnvcuvid.so.1" in finding.message


def test_a_needed_library_with_an_unprintable_name_is_reported_in_one_line(root: Path) -> None:
    write_library(file(root, "libnvidia-encode"), "libnvidia-encode.so.1", ("libnvidia-\n\udcff",))
    (finding,) = findings(root)
    assert "needs libnvidia-\\n\\udcff, which" in finding.message


def test_a_path_with_spaces_and_letters_of_any_script_is_supported(tmp_path: Path) -> None:
    for folder in ("/opt/my driver/lib64", "/opt/ドライバ/lib64"):
        write_library(tmp_path / folder.lstrip("/") / f"libcuda.so.{V550}", "libcuda.so.1")
        assert found(tmp_path, folder)["libcuda.so.1"] == f"{folder}/libcuda.so.{V550}"


@pytest.mark.parametrize("folder", ["/opt/two\nlines", "/opt/\udcff\udcfe", "/opt/\x1b[31m"])
def test_a_path_with_unprintable_characters_is_reported_in_one_line(root: Path, folder: str) -> None:
    odd = os.fsencode(root) + os.fsencode(folder)
    (root / "opt").mkdir()
    (root / SYSTEM).rename(os.fsdecode(odd))
    found_libraries = search(root, folder)
    assert found_libraries.found == {}
    assert {finding.rule for finding in found_libraries.findings} == {"library-unusable"}
    assert all(finding.line().isprintable() for finding in found_libraries.findings)


def test_a_link_with_an_unprintable_name_to_a_library_folder_is_supported(root: Path) -> None:
    write_library(file(root, "libcuda", V535), "libcuda.so.1")
    link(root / "odd\nname", f"/{SYSTEM}")
    found_libraries = search(root, "/odd\nname")
    assert found_libraries.found.keys() == SONAMES
    assert all(finding.line().isprintable() for finding in found_libraries.findings)


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x7fELF\x02\x01\x01"]))
def test_no_content_of_a_library_raises_an_exception(content: bytes, head: bytes) -> None:
    with empty_root() as root:
        install_few(root)
        put(file(root, "libnvidia-cfg"), head + content)
        assert found(root).keys() >= SONAMES


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_library_raises_no_exception(changes: list[tuple[int, int]]) -> None:
    with empty_root() as root:
        install_few(root)
        data = bytearray(file(root, "libcuda").read_bytes())
        for position, value in changes:
            data[position % len(data)] = value
        put(file(root, "libcuda"), bytes(data))
        assert found(root).keys() >= SONAMES - {"libcuda.so.1"}
        findings(root)
