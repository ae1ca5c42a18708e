"""Lines of a Tegra board's CSV lists, and the files in the lines; no content causes a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.driver_files import AARCH64, link, put, write_library
from support.hosts.nvidia import empty_root, make_any_instead, places
from support.hosts.nvidia_platforms import (
    LISTS,
    OWN,
    SYSTEM,
    board,
    finding_keys,
    library,
    mounts,
    only_document,
    only_files,
)
from support.law_examples import examples

from cdigen.host.root import Root
from cdigen.vendors.nvidia.platforms import csv_lines, tegra

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.inventory import Inventory


def discover(root: Path) -> Inventory:
    return tegra.discover(places(root))


def mounted(root: Path) -> dict[str, str]:
    return mounts(only_document(root, discover(root)))


# The syntax of the lines.


def entries(text: str) -> list[tuple[str, str]]:
    found, findings = csv_lines.parse(text, "l.csv")
    assert findings == ()
    return [(entry.kind, entry.path) for entry in found]


@pytest.mark.parametrize(
    ("line", "kind", "path"),
    [
        ("dev, /dev/nvmap", "dev", "/dev/nvmap"),
        ("dir,/usr/src", "dir", "/usr/src"),
        ("  lib ,\t/usr/lib/a.so \r", "lib", "/usr/lib/a.so"),
        ("sym, /a,with,commas", "sym", "/a,with,commas"),
        ("lib, //lib/./firmware//x/", "lib", "/lib/firmware/x"),
        ("dev, /dev/dri/card*", "dev", "/dev/dri/card*"),
    ],
)
def test_a_line_has_a_type_and_a_path(line: str, kind: str, path: str) -> None:
    assert entries(line) == [(kind, path)]


def test_comments_and_blank_lines_are_skipped_and_lines_are_counted() -> None:
    found, _ = csv_lines.parse("# list\n\n  # more\r\n\t\nlib, /a\n", "l.csv")
    assert [entry.where for entry in found] == ["l.csv:5"]


@pytest.mark.parametrize(
    "line",
    [
        "lib",
        ",",
        "lib,",
        "file, /a",
        "LIB, /a",
        ", /a",
        "lib, a/b",
        "dev, nvhost-gpu",
        "lib, /a/../b",
        "lib, /..",
        "dir, /",
        "dir, //./",
        "lib, /a\0b",
        "lib, /a\x1bb",
        "lib, /" + "a" * 5000,
        "lib /a",
        "\x7fELF\2\1\1",
    ],
)
def test_an_invalid_line_is_a_finding_with_its_number_and_other_lines_are_used(line: str) -> None:
    found, (finding,) = csv_lines.parse(f"lib, /a\n{line}\nlib, /b\n", "l.csv")
    assert [entry.path for entry in found] == ["/a", "/b"]
    assert (finding.severity, finding.rule, finding.path) == ("warning", "csv-line-unknown", "l.csv:2")
    assert finding.message.isprintable()
    assert len(finding.message) < 300


def test_a_file_of_another_format_has_a_limited_number_of_findings() -> None:
    found, findings = csv_lines.parse("rubbish\n" * 5000, "l.csv")
    assert found == ()
    assert len(findings) == csv_lines.MAX_FINDINGS + 1
    assert "4980 more" in findings[-1].message


# The files of the lines.


@pytest.mark.parametrize("kind", ["FIFO", "folder", "block device", "regular file"])
def test_a_dev_line_without_a_character_device_is_left_out(root: Path, kind: str) -> None:
    board(root, devices="dev, /dev/nvmap\ndev, /dev/other\n")
    make_any_instead(root / "dev/other", kind)
    inventory = discover(root)
    assert ("warning", "csv-path-unusable", "/dev/other") in finding_keys(inventory)
    assert [each.path for each in inventory.groups[0].devices[0].nodes] == ["/dev/nvmap"]


@pytest.mark.parametrize("kind", ["FIFO", "folder", "block device", "character device", "regular file"])
def test_a_lib_line_with_an_unusable_file_is_left_out(root: Path, kind: str) -> None:
    board(root, "lib, /usr/share/nvidia/table\n")
    (root / "usr/share/nvidia").mkdir(parents=True)
    make_any_instead(root / "usr/share/nvidia/table", kind)
    inventory = discover(root)
    assert only_files(inventory) == ()
    assert ("warning", "csv-path-unusable", "/usr/share/nvidia/table") in finding_keys(inventory)


def test_a_dir_line_with_the_path_of_a_file_is_left_out(root: Path) -> None:
    board(root, "dir, /usr/src/tensorrt\n")
    put(root / "usr/src/tensorrt", b"x")
    inventory = discover(root)
    assert only_files(inventory) == ()
    assert ("warning", "csv-path-unusable", "/usr/src/tensorrt") in finding_keys(inventory)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"/* GNU ld script */"])
def test_an_invalid_library_is_left_out(root: Path, content: bytes) -> None:
    board(root, "lib, /usr/lib/libnvos.so\n")
    put(root / "usr/lib/libnvos.so", content)
    inventory = discover(root)
    assert only_files(inventory) == ()
    assert ("warning", "library-unusable", "/usr/lib/libnvos.so") in finding_keys(inventory)


@pytest.mark.parametrize("soname", ["", "../../etc/x", "a\nb", "."])
def test_a_library_without_a_usable_soname_has_only_the_path_of_its_line(root: Path, soname: str) -> None:
    board(root, "lib, /opt/libnvos.so\n")
    library(root, "/opt/libnvos.so", soname)
    (file,) = only_files(discover(root))
    assert (file.names, file.targets) == ((), ("/opt/libnvos.so",))


@pytest.mark.usefixtures("real_nodes")
def test_no_line_uses_a_file_outside_the_root(tmp_path: Path) -> None:
    root = tmp_path / "host"
    board(
        root,
        "sym, /opt/passwd\nsym, /opt/up\ndir, /opt/all\nlib, /opt/*\n",
        "dev, /dev/nvmap\ndev, /dev/out\n",
    )
    put(tmp_path / "secret", b"x")
    for name, target in (("passwd", "/secret"), ("up", "../../../secret"), ("all", "/..")):
        link(root / "opt" / name, target)
    link(root / "dev/out", "/../../dev/null")
    inventory = discover(root)
    assert only_files(inventory) == ()
    assert [each.path for each in inventory.groups[0].devices[0].nodes] == ["/dev/nvmap"]


def test_the_path_of_a_line_has_precedence_over_another_librarys_soname(root: Path) -> None:
    board(root, f"lib, {OWN}/libdrm.so.2\nlib, {SYSTEM}/libdrm.so.2\n")
    library(root, f"{OWN}/libdrm.so.2", "libdrm.so.2")
    write_library(root / f".{SYSTEM}/libdrm.so.2", "libdrm.so.2", machine=AARCH64)
    assert mounted(root)[f"{SYSTEM}/libdrm.so.2"] == f"{SYSTEM}/libdrm.so.2"


def test_a_file_in_several_lines_is_one_file_with_all_targets(root: Path) -> None:
    board(root, "lib, /opt/libnvos.so.1\nsym, /opt/libnvos.so\nlib, /opt/libnvos.so.1\n")
    library(root, "/opt/libnvos.so.1", "libnvos.so.1")
    link(root / "opt/libnvos.so", "libnvos.so.1")
    (file,) = only_files(discover(root))
    assert (file.targets, file.names) == (("/opt/libnvos.so.1", "/opt/libnvos.so"), ("libnvos.so.1",))


def test_a_pattern_may_be_in_any_part_of_a_path(tmp_path: Path) -> None:
    for path in ("a1/x", "a1/y", "a2/x", "b/x"):
        put(tmp_path / path)
    root = Root(str(tmp_path))
    assert tegra.expand(root, "/a*/x") == ["/a1/x", "/a2/x"]
    assert tegra.expand(root, "/a[12]/?") == ["/a1/x", "/a1/y", "/a2/x"]
    assert tegra.expand(root, "/none*/x") == []
    assert tegra.expand(root, "/plain") == ["/plain"]


def test_the_number_of_matches_of_a_pattern_is_limited(tmp_path: Path) -> None:
    for number in range(tegra.MAX_MATCHES + 5):
        put(tmp_path / str(number))
    assert len(tegra.expand(Root(str(tmp_path)), "/*")) == tegra.MAX_MATCHES


KINDS = st.sampled_from(["dev", "dir", "lib", "sym", "file", "", "#"])
PARTS = st.sampled_from(
    ["dev", "opt", "nvmap", "lib*", "*", "libnvos.so", "up", "..", "", ".", "[", "[!a", "?"]
)
PATHS = st.lists(PARTS, max_size=4).map(lambda parts: "/" + "/".join(parts))
LINES = st.one_of(st.tuples(KINDS, PATHS | st.text(max_size=8)).map(", ".join), st.text(max_size=20))


@pytest.mark.usefixtures("real_nodes")
@examples(4)
@given(st.lists(LINES, max_size=12).map("\n".join) | st.binary(max_size=200))
def test_no_list_causes_a_traceback_or_adds_a_file_outside_the_root(content: str | bytes) -> None:
    with empty_root() as top:
        root = top / "host"
        board(root)
        library(root, "/opt/libnvos.so", "libnvos.so")
        link(root / "opt/up", "../../..")
        raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        put(root / LISTS / "drivers.csv", raw)
        inventory = discover(root)
        assert all(finding.message.isprintable() for finding in inventory.findings)
        assert all((root / file.host_path.lstrip("/")).exists() for file in only_files(inventory))
        only_document(root, inventory)
