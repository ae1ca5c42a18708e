"""Manifests of EGL, Vulkan and OpenCL. In a container, a library also gets the path in its manifest."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.driver_files import link, put
from support.hosts.nvidia import empty_root

from cdigen.host.root import Root
from cdigen.model.findings import Finding
from cdigen.model.inventory import DriverFile
from cdigen.vendors.nvidia.files.manifests import MAX_MANIFEST, with_named_paths

LIBRARY = "/nix/store/abc/lib/libEGL_nvidia.so.550.163.01"
NAMED = "/nix/store/abc/lib/libEGL_nvidia.so.0"
MANIFEST = "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"


def lay(root: Path, content: bytes, manifest: str = MANIFEST) -> None:
    put(root / LIBRARY.lstrip("/"))
    link(root / NAMED.lstrip("/"), "libEGL_nvidia.so.550.163.01")
    put(root / manifest.lstrip("/"), content)


def read(root: Path, manifest: str = MANIFEST) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Return the container paths of the library, and the findings."""
    files = (
        DriverFile(kind="library", host_path=LIBRARY, capabilities=(), names=("libEGL_nvidia.so.0",)),
        DriverFile(kind="config", host_path=manifest, capabilities=(), targets=(manifest,)),
    )
    (library, config), findings = with_named_paths(Root(str(root)), files)
    assert config == files[1]
    assert library.names == files[0].names
    return library.targets, findings


def icd(path: object) -> bytes:
    return json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": path}}).encode()


@pytest.mark.parametrize(
    "document",
    [
        {"ICD": {"library_path": NAMED}},
        {"layer": {"library_path": NAMED}},
        {"layers": [{"library_path": "libother.so"}, {"library_path": NAMED}]},
    ],
    ids=["ICD", "layer", "layers"],
)
def test_a_path_in_a_json_manifest_becomes_a_container_path_of_the_library(
    tmp_path: Path, document: dict[str, object]
) -> None:
    lay(tmp_path, json.dumps(document).encode())
    assert read(tmp_path) == ((NAMED,), ())


def test_a_path_in_an_opencl_manifest_becomes_a_container_path_of_the_library(tmp_path: Path) -> None:
    manifest = "/etc/OpenCL/vendors/nvidia.icd"
    lay(tmp_path, f"{NAMED}\n".encode(), manifest)
    assert read(tmp_path, manifest) == ((NAMED,), ())


def test_a_manifest_with_a_soname_adds_no_path(tmp_path: Path) -> None:
    lay(tmp_path, icd("libEGL_nvidia.so.0"))
    assert read(tmp_path) == ((), ())


@pytest.mark.parametrize("path", [f"/{NAMED}", NAMED.replace("/lib/", "/lib/../lib/./"), f"/nix/..{NAMED}"])
def test_a_path_with_dots_and_double_slashes_is_normalized(tmp_path: Path, path: str) -> None:
    lay(tmp_path, icd(path))
    assert read(tmp_path) == ((NAMED,), ())


@pytest.mark.parametrize(
    "path",
    [
        "/usr/lib/libEGL_mesa.so.0",
        "/etc/passwd",
        "/",
        "",
        "/a\nb",
        "/\ud800",
        "/" + "a" * 5000,
        7,
        None,
        [NAMED],
    ],
)
def test_a_path_of_another_file_is_ignored(tmp_path: Path, path: object) -> None:
    lay(tmp_path, icd(path))
    assert read(tmp_path) == ((), ())


@pytest.mark.parametrize("document", [b"[]", b"7", b'"text"', b"null", b"{}", b'{"ICD": 1, "layers": {}}'])
def test_json_of_another_structure_is_ignored(tmp_path: Path, document: bytes) -> None:
    lay(tmp_path, document)
    assert read(tmp_path) == ((), ())


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[" * 50_000, b" " * (MAX_MANIFEST + 1)],
    ids=["empty", "cut", "binary", "deep", "huge"],
)
def test_a_manifest_that_is_not_json_is_a_finding(tmp_path: Path, content: bytes) -> None:
    lay(tmp_path, content)
    targets, (finding,) = read(tmp_path)
    assert targets == ()
    assert (finding.severity, finding.rule, finding.path) == ("warning", "manifest-unreadable", MANIFEST)


def test_a_missing_manifest_is_a_finding(tmp_path: Path) -> None:
    lay(tmp_path, b"")
    (tmp_path / MANIFEST.lstrip("/")).unlink()
    assert [finding.rule for finding in read(tmp_path)[1]] == ["manifest-unreadable"]


def test_a_manifest_below_a_driver_root_is_read(tmp_path: Path) -> None:
    driver = tmp_path / "run/nvidia/driver"
    lay(driver, icd(NAMED))
    prefix = "/run/nvidia/driver"
    files = (
        DriverFile(kind="library", host_path=prefix + LIBRARY, capabilities=()),
        DriverFile(kind="config", host_path=prefix + MANIFEST, capabilities=()),
    )
    (library, _), findings = with_named_paths(Root(str(tmp_path)).below(prefix), files)
    assert (library.targets, findings) == ((NAMED,), ())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just(NAMED),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["ICD", "layer", "layers", "library_path"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60))
def test_no_manifest_raises_an_exception_or_adds_another_path(content: bytes) -> None:
    with empty_root() as root:
        lay(root, content)
        assert set(read(root)[0]) <= {NAMED}
