"""The mounts of each layout, and the steps for a hook."""

from hypothesis import given
from hypothesis import strategies as st

from cdigen.cdi.layout import LayoutResult, PlacedView, lay_out, view_plan
from cdigen.model.cdi import Payload
from cdigen.model.inventory import DriverFile
from cdigen.model.view import ViewLink, fault
from cdigen.value import replace

DEBIAN, RED_HAT = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"
CAPABILITY_FOLDERS = tuple(
    f"{folder}/{name}" for name in ("glibc-hwcaps/x86-64-v2", "x86_64") for folder in (DEBIAN, RED_HAT)
)
VIEW = "/var/lib/cdigen/views/nvidia-0123456789abcdef"
PLACED = PlacedView(source=VIEW)
CUDA = DriverFile(
    kind="library",
    host_path="/host/libcuda.so.550.163.01",
    capabilities=(),
    names=("libcuda.so.1", "libcuda.so"),
)
GBM = DriverFile(
    kind="library",
    host_path="/host/libnvidia-allocator.so.550.163.01",
    capabilities=(),
    names=("libnvidia-allocator.so.1", "gbm/nvidia-drm_gbm.so"),
)
CUDA32 = DriverFile(
    kind="library32", host_path="/host32/libcuda.so.550.163.01", capabilities=(), names=("libcuda.so.1",)
)
SMI = DriverFile(
    kind="binary", host_path="/usr/bin/nvidia-smi", capabilities=(), targets=("/usr/bin/nvidia-smi",)
)
ICD = DriverFile(
    kind="config", host_path="/etc/nvidia.icd", capabilities=(), targets=("/etc/OpenCL/nvidia.icd",)
)
SOCKET = DriverFile(kind="socket", host_path="/run/p/socket", capabilities=(), targets=("/run/p/socket",))
ALL = (CUDA, GBM, CUDA32, SMI, ICD, SOCKET)


def payload(*files: DriverFile, machine: str = "x86_64") -> Payload:
    return Payload(
        vendor="nvidia", version="550.163.01", architecture=machine, files=files, carried=("libcuda.so.1",)
    )


def mounts(laid: LayoutResult) -> dict[str, str]:
    return {mount.container_path: mount.host_path for mount in laid.mounts}


def steps(laid: LayoutResult) -> list[tuple[str, ...]]:
    return [(step.name, *step.arguments) for step in laid.steps]


def test_a_view_has_all_files_except_sockets_and_a_link_for_each_library_name() -> None:
    plan = view_plan(payload(*ALL))
    assert fault(plan) == ""
    assert {file.path: file.source for file in plan.files} == {
        "lib64/libcuda.so.550.163.01": "/host/libcuda.so.550.163.01",
        "lib64/libnvidia-allocator.so.550.163.01": "/host/libnvidia-allocator.so.550.163.01",
        "lib/libcuda.so.550.163.01": "/host32/libcuda.so.550.163.01",
        "bin/nvidia-smi": "/usr/bin/nvidia-smi",
        "fixed/etc/nvidia.icd": "/etc/nvidia.icd",
    }
    assert set(plan.links) == {
        ViewLink(path="lib64/libcuda.so.1", target="libcuda.so.550.163.01"),
        ViewLink(path="lib64/libcuda.so", target="libcuda.so.550.163.01"),
        ViewLink(path="lib64/libnvidia-allocator.so.1", target="libnvidia-allocator.so.550.163.01"),
        ViewLink(path="lib64/gbm/nvidia-drm_gbm.so", target="../libnvidia-allocator.so.550.163.01"),
        ViewLink(path="lib/libcuda.so.1", target="libcuda.so.550.163.01"),
    }


def test_the_second_of_two_files_with_the_same_name_is_below_fixed_in_the_view() -> None:
    other = DriverFile(
        kind="library", host_path="/tls/libcuda.so.550.163.01", capabilities=(), names=("libother.so.1",)
    )
    plan = view_plan(payload(CUDA, other))
    assert plan.files[1].path == "fixed/tls/libcuda.so.550.163.01"
    assert ViewLink(path="lib64/libother.so.1", target="../fixed/tls/libcuda.so.550.163.01") in plan.links
    assert fault(plan) == ""


def test_the_layout_files_mounts_each_library_under_each_name_in_both_folders() -> None:
    laid = lay_out(payload(CUDA, SMI), "files")
    assert mounts(laid) == {
        **{
            f"{folder}/{name}": "/host/libcuda.so.550.163.01"
            for folder in (DEBIAN, RED_HAT)
            for name in CUDA.names
        },
        f"{DEBIAN}/libcuda.so.550.163.01": "/host/libcuda.so.550.163.01",
        "/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi",
    }
    assert steps(laid) == [("update-ldcache", "x86_64", DEBIAN, "libcuda.so.1", "libcuda.so")]
    assert laid.folder == DEBIAN


def test_32_bit_libraries_are_not_mounted_under_their_file_names() -> None:
    found = mounts(lay_out(payload(CUDA32), "files"))
    assert found
    assert not [path for path in found if path.endswith(".550.163.01")]


def test_the_layout_view_mounts_one_folder_and_files_at_fixed_paths() -> None:
    laid = lay_out(payload(*ALL), "view", PLACED)
    gbm = f"{VIEW}/lib64/libnvidia-allocator.so.550.163.01"
    assert mounts(laid) == {
        "/usr/local/nvidia": VIEW,
        **dict.fromkeys(CAPABILITY_FOLDERS, f"{VIEW}/lib64"),
        f"{DEBIAN}/gbm/nvidia-drm_gbm.so": gbm,
        f"{RED_HAT}/gbm/nvidia-drm_gbm.so": gbm,
        "/usr/bin/nvidia-smi": f"{VIEW}/bin/nvidia-smi",
        "/etc/OpenCL/nvidia.icd": f"{VIEW}/fixed/etc/nvidia.icd",
        "/run/p/socket": "/run/p/socket",
    }


def test_a_host_without_hwcaps_support_gets_no_mounts_in_hwcaps_folders() -> None:
    laid = lay_out(payload(*ALL), "view", PLACED, capable=False)
    assert not set(CAPABILITY_FOLDERS) & mounts(laid).keys()
    assert mounts(laid)["/usr/local/nvidia"] == VIEW


def test_the_layout_view_adds_the_libraries_to_the_loader_cache_with_a_hook() -> None:
    links = [f"{folder}/libcuda.so" for folder in (DEBIAN, RED_HAT)]
    names = ("libcuda.so.1", "libcuda.so", "libnvidia-allocator.so.1")
    assert steps(lay_out(payload(*ALL), "view", PLACED)) == [
        ("create-symlinks", "/usr/local/nvidia/lib64/libcuda.so", *links),
        ("update-ldcache", "x86_64", "/usr/local/nvidia/lib64", *names),
        ("update-ldcache", "i386", "/usr/local/nvidia/lib", "libcuda.so.1"),
    ]


def test_the_layout_hwcaps_mounts_the_view_in_loader_folders_and_image_libraries_separately() -> None:
    laid = lay_out(payload(*ALL), "hwcaps", PLACED)
    found = mounts(laid)
    folders = [
        f"{folder}/{name}" for folder in (DEBIAN, RED_HAT) for name in ("glibc-hwcaps/x86-64-v2", "x86_64")
    ]
    assert {folder: found[folder] for folder in folders} == dict.fromkeys(folders, f"{VIEW}/lib64")
    assert found[f"{DEBIAN}/libcuda.so.1"] == f"{VIEW}/lib64/libcuda.so.550.163.01"
    assert found[f"{RED_HAT}/libcuda.so.1"] == f"{VIEW}/lib64/libcuda.so.550.163.01"
    assert found["/usr/lib/i386-linux-gnu/libcuda.so.1"] == f"{VIEW}/lib/libcuda.so.550.163.01"
    assert f"{DEBIAN}/libcuda.so" not in found
    assert found[f"{DEBIAN}/gbm/nvidia-drm_gbm.so"].startswith(VIEW)
    assert laid.folder == f"{DEBIAN}/glibc-hwcaps/x86-64-v2"


def test_the_layout_named_mounts_files_under_their_names_and_creates_links() -> None:
    laid = lay_out(payload(GBM), "named")
    assert mounts(laid) == {f"{DEBIAN}/libnvidia-allocator.so.550.163.01": GBM.host_path}
    assert steps(laid) == [
        ("create-symlinks", "libnvidia-allocator.so.550.163.01", f"{DEBIAN}/libnvidia-allocator.so.1"),
        ("create-symlinks", "../libnvidia-allocator.so.550.163.01", f"{DEBIAN}/gbm/nvidia-drm_gbm.so"),
        ("update-ldcache", "x86_64", DEBIAN, "libnvidia-allocator.so.1"),
    ]


def test_a_file_outside_the_view_is_mounted_from_the_host() -> None:
    laid = lay_out(payload(CUDA, ICD), "view", PlacedView(source=VIEW, left_out=frozenset([ICD.host_path])))
    assert mounts(laid)["/etc/OpenCL/nvidia.icd"] == "/etc/nvidia.icd"
    assert ICD.host_path not in {
        file.source for file in view_plan(payload(CUDA, ICD), left_out=frozenset([ICD.host_path])).files
    }


def test_a_placeholder_in_the_view_is_a_mount_point_in_every_library_folder() -> None:
    left_out = frozenset([GBM.host_path, SMI.host_path, ICD.host_path])
    name = "libnvidia-allocator.so.550.163.01"
    on_view = {f"/usr/local/nvidia/lib64/{name}", "/usr/local/nvidia/bin/nvidia-smi"}
    on_capability_folders = {f"{folder}/{name}" for folder in CAPABILITY_FOLDERS}
    for layout, added in (("view", on_view | on_capability_folders), ("hwcaps", on_capability_folders)):
        whole = mounts(lay_out(payload(*ALL), layout, PLACED))
        laid = mounts(lay_out(payload(*ALL), layout, PlacedView(source=VIEW, left_out=left_out)))
        assert {target for target in laid if target not in whole} == added
        assert laid[f"{DEBIAN}/glibc-hwcaps/x86-64-v2/{name}"] == GBM.host_path
        # The separate mounts of these files also have their source on the host.
        assert laid[f"{DEBIAN}/gbm/nvidia-drm_gbm.so"] == GBM.host_path
        assert laid["/etc/OpenCL/nvidia.icd"] == ICD.host_path


def test_the_second_of_two_left_out_libraries_with_the_same_name_is_mounted_below_fixed() -> None:
    other = DriverFile(kind="library", host_path="/b/libcuda.so.550.163.01", capabilities=(), names=("x.so",))
    laid = mounts(
        lay_out(payload(CUDA, other), "view", PlacedView(source=VIEW, left_out=frozenset([other.host_path])))
    )
    assert laid["/usr/local/nvidia/fixed/b/libcuda.so.550.163.01"] == other.host_path


def test_files_below_the_prefix_are_links_in_the_view() -> None:
    """The view is read-only, so a runtime cannot create a mount point in the view."""
    prefix = "/usr/local/Acme/driver"
    info = DriverFile(
        kind="config",
        host_path="/opt/acme/version.info",
        capabilities=(),
        targets=(f"{prefix}/version.info", f"{prefix}/doc/version.info", "/etc/acme.info"),
    )
    prefixed = replace(payload(CUDA, GBM, SMI, info), prefix=prefix)
    assert set(view_plan(prefixed).links) >= {
        ViewLink(path="version.info", target="fixed/opt/acme/version.info"),
        ViewLink(path="doc/version.info", target="../fixed/opt/acme/version.info"),
    }
    place = f"{VIEW}/fixed/opt/acme/version.info"
    wanted = {prefix: VIEW, "/etc/acme.info": place, "/usr/bin/nvidia-smi": f"{VIEW}/bin/nvidia-smi"}
    laid = lay_out(prefixed, "view", PLACED)
    assert mounts(laid) == wanted
    names = ("libcuda.so.1", "libcuda.so", "libnvidia-allocator.so.1")
    assert steps(laid) == [("update-ldcache", "x86_64", f"{prefix}/lib64", *names)]
    # If the file could not be added to the view, its placeholder is the mount point.
    apart = lay_out(prefixed, "view", PlacedView(source=VIEW, left_out=frozenset([info.host_path])))
    assert mounts(apart) == {
        **wanted,
        "/etc/acme.info": info.host_path,
        f"{prefix}/fixed/opt/acme/version.info": info.host_path,
    }
    single = mounts(lay_out(prefixed, "files"))
    assert single[f"{prefix}/version.info"] == single["/etc/acme.info"] == info.host_path


NAMES = st.sampled_from(("liba.so.1", "liba.so", "libb.so.2", "gbm/x.so", "liba.so.550.163.01"))
FILES = st.builds(
    DriverFile,
    kind=st.sampled_from(("library", "library32", "binary", "config", "socket", "firmware", "module")),
    host_path=st.sampled_from(("/a/liba.so.550.163.01", "/b/liba.so.550.163.01", "/c/libb.so.2", "/d/x")),
    capabilities=st.just(()),
    names=st.lists(NAMES, unique=True, max_size=3).map(tuple),
    targets=st.lists(st.sampled_from(("/etc/a", "/usr/bin/b")), unique=True, max_size=2).map(tuple),
)


@given(st.lists(FILES, max_size=8))
def test_any_files_result_in_a_valid_view_with_mounts_from_the_view(files: list[DriverFile]) -> None:
    given_files = payload(*files)
    plan = view_plan(given_files)
    assert fault(plan) == ""
    inside = {f"{VIEW}/{file.path}" for file in plan.files} | {VIEW, f"{VIEW}/lib64"}
    outside = {file.host_path for file in files if file.kind == "socket"}
    for layout in ("view", "hwcaps"):
        sources = [mount.host_path for mount in lay_out(given_files, layout, PLACED).mounts]
        assert set(sources) <= inside | outside
