"""Hostile configuration: any bytes, links, modes and sizes result in settings and findings."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.runtime_config import Tree, finding_keys
from support.law_examples import examples

from cdigen.runtimes.settings.config_files import MAX_TEXTS

FILES = {
    "podman": "/etc/containers/containers.conf",
    "docker": "/etc/docker/daemon.json",
    "containerd": "/etc/containerd/config.toml",
    "cri-o": "/etc/crio/crio.conf",
}
VALUES = st.recursive(
    st.sampled_from(
        ["1", "true", '"/a"', "[]", "[1]", '["/a"]', "{append=true}", "[{append=true}]", "1979-05-27"]
    ),
    lambda inner: st.builds("[{}, {}]".format, inner, inner),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "version", "imports", "disabled_plugins", "plugins", "engine", "engine.cdi_spec_dirs",
        "crio.runtime.cdi_spec_dirs", "crio.nri.enable_nri", "crio",
        'plugins."io.containerd.cri.v1.runtime"', 'plugins."io.containerd.grpc.v1.cri".cdi_spec_dirs',
        'plugins."io.containerd.cri.v1.runtime".enable_cdi',
        'plugins."io.containerd.nri.v1.nri".socket_path',
    ]
)  # fmt: skip


def read_all(tree: Tree) -> None:
    for runtime in FILES:
        found = tree.read(runtime, None)
        assert all(isinstance(path, str) for path in found.spec_dirs)
        assert all(finding.message.isprintable() for finding in found.findings)


@examples(4)
@given(content=st.binary(max_size=200))
def test_any_bytes_result_in_settings(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        for path in FILES.values():
            tree.put(path, content)
        read_all(tree)


@examples(4)
@given(pairs=st.lists(st.tuples(KEYS, VALUES), max_size=4))
def test_any_values_of_the_known_keys_result_in_settings(pairs: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        for path in FILES.values():
            tree.put(path, "".join(f"{key} = {value}\n" for key, value in pairs))
        tree.put(FILES["docker"], '{"cdi-spec-dirs": [{}], "features": {"cdi": []}, "nri-opts": 1}')
        read_all(tree)


@pytest.mark.wall_clock
@pytest.mark.parametrize("runtime", FILES)
@pytest.mark.parametrize(
    "content",
    [
        b"a = " + b"[" * 500_000,
        b"a." * 100_000,
        b"[" + b"'a' . " * 50_000,
        b"a = {" + b"a." * 100_000,
        b"a" + b".a" * 100_000 + b" = 1",
        b"x" * (1 << 20),
        b"x" * (2 << 20),
        b"'" * 500_000,
        b" " * 1_000_000 + b"x",
        b"1" * 10_000,
    ],
)
def test_a_deeply_nested_or_large_file_is_reported_quickly(
    tmp_path: Path, runtime: str, content: bytes
) -> None:
    tree = Tree(tmp_path)
    tree.put(FILES[runtime], content)
    begin = time.monotonic()
    found = tree.read(runtime, None)
    assert time.monotonic() - begin < 20
    assert [finding.severity for finding in found.findings] == ["error"]
    assert len(found.findings[0].message) < 400


@pytest.mark.parametrize("runtime", FILES)
@pytest.mark.parametrize("what", ["fifo", "folder", "dangling link", "link to itself", "link out"])
def test_a_path_without_a_regular_file_is_a_finding_or_ignored_and_does_not_block(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, runtime: str, what: str
) -> None:
    place = tmp_path / FILES[runtime].lstrip("/")
    place.parent.mkdir(parents=True)
    match what:
        case "fifo":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "dangling link":
            place.symlink_to("nowhere")
        case "link to itself":
            place.symlink_to(place.name)
        case "link out":
            outside = tmp_path_factory.mktemp("outside") / "x"
            outside.write_text("broken [")
            place.symlink_to(outside)
    found = Tree(tmp_path).read(runtime, None)
    is_found = what in {"fifo", "folder", "link to itself"}
    assert finding_keys(found) == ([("error", "config-unreadable", FILES[runtime])] if is_found else [])
    assert found.files == ()


@pytest.mark.wall_clock
def test_the_number_of_imported_files_is_limited(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.put(FILES["containerd"], 'version = 3\nimports = ["*", "../containerd/./*", "/etc/*/*/../*"]\n')
    for number in range(300):
        tree.put(f"/etc/containerd/{number}.toml", 'version = 3\nimports = ["*"]\n')
    begin = time.monotonic()
    assert len(tree.read("containerd", (2, 1, 9)).files) <= 200
    assert time.monotonic() - begin < 20


def test_a_file_name_with_control_characters_is_escaped_in_the_message(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    name = os.fsdecode(b"\xff\x1b.conf")
    tree.put(f"/etc/containers/containers.conf.d/{name}", "[")
    (found,) = tree.read("podman", None).findings
    assert found.message.isprintable()


def test_a_byte_order_mark_is_ignored_as_in_the_runtimes(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for path in FILES.values():
        tree.put(path, b"\xef\xbb\xbf" + (b"{}" if path.endswith(".json") else b"version = 2"))
    assert [finding_keys(tree.read(runtime, None)) for runtime in FILES] == [[]] * len(FILES)


def test_files_above_the_total_size_limit_are_findings(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for number in range(8):
        tree.put(f"/etc/containers/containers.conf.d/{number}.conf", b"#" * (600 << 10))
    found = tree.read("podman", None)
    assert len(found.files) == 3
    assert {finding.rule for finding in found.findings} == {"config-unreadable"}


def test_only_the_last_of_many_spec_directories_are_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    dirs = [f"/d{number}" for number in range(5000)]
    tree.put(FILES["podman"], f"[engine]\ncdi_spec_dirs = {dirs}\n".encode())
    tree.put(FILES["docker"], f'{{"cdi-spec-dirs": {dirs}}}'.replace("'", '"').encode())
    for runtime in ("podman", "docker"):
        found = tree.read(runtime, None)
        assert found.spec_dirs == tuple(dirs[-MAX_TEXTS:])
        (finding,) = found.findings
        assert (finding.severity, finding.rule) == ("warning", "config-too-long")
        assert f"has 5000 entries; cdigen reads only the last {MAX_TEXTS}" in finding.message


def test_the_limit_of_directories_applies_to_all_appending_drop_ins_together(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for number in range(4):
        dirs = ", ".join(f'"/{number}/{each}"' for each in range(100))
        text = f"[engine]\ncdi_spec_dirs = [{dirs}, {{append=true}}]\n"
        tree.put(f"/etc/containers/containers.conf.d/{number}.conf", text.encode())
    assert len(tree.read("podman", (5, 5, 0)).spec_dirs) == MAX_TEXTS
