"""The layout and hook that a host gets, and the findings if the requested layout or hook cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.hosts.delivery import (
    DEBIAN,
    NO_COMPAT,
    PYTHON,
    SCRIPT,
    VIEWS,
    hook_host,
    is_files,
    mounts,
    rules,
    spec,
)
from support.hosts.driver_files import put
from support.hosts.nvidia import discover, places
from support.hosts.nvidia_kernel import Node, make_node

from cdigen.model.inventory import DriverFile
from cdigen.model.profile import DEFAULT
from cdigen.pipeline import generate
from cdigen.pipeline.delivery import DeliveryOptions, deliver
from cdigen.pipeline.generate import GenerateOptions
from cdigen.value import replace
from cdigen.vendors.nvidia import edits as nvidia

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.inventory import FileKind

pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the root of a Debian host with a GPU, cdigen's hook and NVIDIA's hook."""
    return hook_host(tmp_path)


def with_hook(host: Path) -> DeliveryOptions:
    return DeliveryOptions(hook_script=SCRIPT, hook_python=PYTHON, state_dir=f"{host}/state", make_views=True)


def is_view(edits: dict[str, Any], target: str = "/usr/local/nvidia") -> bool:
    return mounts(edits).get(target, "").startswith(f"{VIEWS}/nvidia-")


def test_a_host_with_cdigens_hook_gets_a_view_and_one_hook(host: Path) -> None:
    edits, findings = spec(host)
    assert is_view(edits)
    (hook,) = edits["hooks"]
    assert hook["path"] == PYTHON
    assert SCRIPT in hook["args"]
    assert rules(findings) == []


def test_the_view_of_another_kind_has_a_separate_mount_point(host: Path) -> None:
    edits, findings = spec(host, kind="nvidia.com/gpu-compute", device_class="gpu-compute")
    place = "/usr/local/cdigen/nvidia.com/gpu-compute"
    assert is_view(edits, place)
    assert "/usr/local/nvidia" not in mounts(edits)
    args = edits["hooks"][0]["args"]
    assert f"{place}/lib64" in args
    assert not any(word.startswith("/usr/local/nvidia") for word in args)
    assert rules(findings) == []


@pytest.mark.parametrize("layout", ["view", "hwcaps"])
def test_without_a_hook_only_the_default_kind_uses_shared_folders(host: Path, layout: str) -> None:
    edits, findings = spec(
        host, kind="nvidia.com/gpu-compute", device_class="gpu-compute", layout=layout, hook="none"
    )
    assert is_files(edits)
    assert not [path for path in mounts(edits) if "hwcaps" in path or path.startswith("/usr/local")]
    assert rules(findings) == [NO_COMPAT, ("warning", "layout-not-used")]
    assert "only for nvidia.com/gpu" in findings[-1].message


def test_an_inherited_layout_that_cannot_be_used_is_only_an_info(host: Path) -> None:
    """The kind nvidia.com/gds inherits the layout of the first profile, which was requested for GPUs."""
    inventory = discover(host)
    (draft,) = nvidia.drafts(inventory, (replace(DEFAULT, layout="hwcaps", hook="none"),))
    family = replace(draft, kind="nvidia.com/gds")
    findings = deliver(
        family, places(host).host, DeliveryOptions(state_dir=f"{host}/state", make_views=True)
    )[1]
    assert rules(findings) == [NO_COMPAT, ("info", "layout-not-used")]


@pytest.mark.parametrize(
    ("layout", "hook", "place"),
    [("auto", "auto", ""), ("view", "none", ""), ("files", "none", "/lib64/libcuda.so.1")],
)
def test_libraries_are_mounted_below_the_prefix_in_every_layout(
    host: Path, layout: str, hook: str, place: str
) -> None:
    prefix = "/usr/local/Example/driver"
    (draft,) = nvidia.drafts(discover(host), (replace(DEFAULT, layout=layout, hook=hook),))
    assert draft.payload
    draft = replace(draft, kind="example.com/npu", payload=replace(draft.payload, prefix=prefix))
    delivery = with_hook(host)
    delivered, findings = deliver(draft, places(host).host, delivery)
    targets = {mount.container_path for mount in delivered.edits.mounts}
    assert f"{prefix}{place}" in targets
    assert not [path for path in targets if path.endswith("/libcuda.so.1") and not path.startswith(prefix)]
    assert not [
        path for path in targets if "hwcaps" in path or path.startswith(("/usr/local/n", "/usr/local/c"))
    ]
    assert [finding.severity for finding in findings if finding.severity != "info"] == []
    words = [word for line in delivered.edits.hooks for word in line.args]
    assert (f"{prefix}/lib64" in words) == (hook == "auto")


@pytest.mark.parametrize(
    ("layout", "hook", "shared"), [("hwcaps", "none", 0), ("view", "none", 0), ("view", "auto", 4)]
)
def test_another_kind_does_not_cover_hwcaps_folders_that_the_default_kind_needs(
    host: Path, layout: str, hook: str, shared: int
) -> None:
    profiles = (
        replace(DEFAULT, layout=layout, hook=hook),
        replace(DEFAULT, name="compute", device_class="gpu-compute"),
    )
    delivery = with_hook(host)
    products, _ = generate.generate_specs(
        {"nvidia": discover(host)},
        host=places(host).host,
        options=GenerateOptions(profiles=profiles),
        delivery=delivery,
    )
    gpu, compute = (mounts(product.document["containerEdits"]) for product in products)
    folders = {path for path in gpu if path.endswith(("/x86-64-v2", "/x86_64"))}
    assert len(folders) == 4
    assert len(compute.keys() & folders) == shared
    assert "/usr/local/cdigen/nvidia.com/gpu-compute" in compute


@pytest.mark.parametrize("kind", ["socket", "config"])
def test_single_files_are_mounted_if_a_view_cannot_contain_a_file_of_the_prefix(
    host: Path, kind: FileKind
) -> None:
    (host / "run/acme").mkdir(parents=True)
    prefix = "/usr/local/Acme/driver"
    stray = DriverFile(
        kind=kind, host_path="/run/acme", capabilities=(), targets=(f"{prefix}/run", "/run/acme")
    )
    (draft,) = nvidia.drafts(discover(host), (DEFAULT,))
    assert draft.payload
    payload = replace(draft.payload, files=(*draft.payload.files, stray), prefix=prefix)
    delivery = with_hook(host)
    draft = replace(draft, kind="example.com/npu", payload=payload)
    delivered, findings = deliver(draft, places(host).host, delivery)
    targets = {mount.container_path for mount in delivered.edits.mounts}
    assert {f"{prefix}/run", "/run/acme", f"{prefix}/lib64/libcuda.so.1"} <= targets
    assert prefix not in targets
    assert rules(findings) == [("warning", "view-not-made")]
    assert "/run/acme belongs in /usr/local/Acme/driver" in findings[0].message


def test_all_mount_sources_except_sockets_are_in_the_view(host: Path) -> None:
    edits, _ = spec(host)
    outside = [path for path in mounts(edits).values() if not path.startswith(f"{VIEWS}/nvidia-")]
    assert [path for path in outside if not path.endswith("/socket")] == []


def test_a_printed_spec_uses_the_view_only_after_the_view_exists(host: Path) -> None:
    before, message = spec(host, write=False)
    assert is_files(before)
    assert rules(message) == []
    assert not (host / "var/lib/cdigen").exists()
    written, _ = spec(host)
    printed, _ = spec(host, write=False)
    assert printed == written


def test_a_view_without_a_hook_is_in_the_hwcaps_folders(host: Path) -> None:
    edits, findings = spec(host, hook="none", layout="view")
    assert is_view(edits)
    assert mounts(edits)[f"{DEBIAN}/glibc-hwcaps/x86-64-v2"].startswith(VIEWS)
    assert rules(findings) == [NO_COMPAT]


def test_a_view_that_no_loader_finds_is_reported(host: Path) -> None:
    (host / "proc/cpuinfo").unlink()
    edits, findings = spec(host, hook="none", layout="view")
    assert is_view(edits)
    assert rules(findings) == [NO_COMPAT, ("info", "view-without-hook")]
    assert "TRITON_LIBCUDA_PATH=/usr/local/nvidia/lib64" in edits["env"]


def test_missing_forward_compatibility_is_reported_if_the_profile_enables_it(
    host: Path,
) -> None:
    for layout in ("files", "view", "hwcaps"):
        (finding,) = spec(host, hook="none", layout=layout)[1]
        assert finding.rule == "no-forward-compatibility"
        assert "/usr/local/cuda/compat" in finding.message
    assert rules(spec(host, hook="none", hook_steps=("update-ldcache",))[1]) == []
    assert rules(spec(host, hook="nvidia")[1]) == []


def test_the_hwcaps_layout_mounts_the_view_without_a_hook(host: Path) -> None:
    edits, findings = spec(host, layout="hwcaps")
    view = mounts(edits)[f"{DEBIAN}/glibc-hwcaps/x86-64-v2"]
    assert view.startswith(VIEWS)
    assert view.endswith("/lib64")
    assert "hooks" not in edits
    assert rules(findings) == [NO_COMPAT]


@pytest.mark.parametrize("flags", ["flags : sse4_1 ssse3\n", "", None])
def test_single_files_are_mounted_if_the_processor_lacks_the_level_of_the_hwcaps_folders(
    host: Path, flags: str | None
) -> None:
    (host / "proc/cpuinfo").unlink()
    if flags is not None:
        (host / "proc/cpuinfo").write_text(flags)
    edits, findings = spec(host, layout="hwcaps")
    assert is_files(edits)
    assert rules(findings) == [NO_COMPAT, ("warning", "layout-not-used")]


def test_arm_gets_single_files_instead_of_the_hwcaps_layout(host: Path) -> None:
    edits, findings = spec(host, machine="aarch64", layout="hwcaps")
    assert "/usr/lib/aarch64-linux-gnu/libcuda.so.1" in mounts(edits)
    assert rules(findings) == [NO_COMPAT, ("warning", "layout-not-used")]


def test_single_files_are_mounted_with_the_hook_if_no_view_can_be_built(host: Path) -> None:
    put(host / "blocked", b"")
    edits, findings = spec(host, state="/blocked/cdigen")
    assert is_files(edits)
    assert edits["hooks"]
    assert rules(findings) == [("warning", "view-not-made")]
    assert rules(spec(host, state="/blocked/cdigen", layout="view")[1]) == [("warning", "view-not-made")]


def test_a_requested_view_without_a_hook_is_reported(host: Path) -> None:
    (host / f".{SCRIPT}").unlink()
    edits, findings = spec(host, layout="view")
    assert is_files(edits)
    assert rules(findings) == [("info", "hook-missing"), NO_COMPAT, ("warning", "layout-not-used")]


@pytest.mark.parametrize("layout", ["auto", "view", "hwcaps"])
def test_a_kind_without_libraries_has_no_view_and_no_finding(host: Path, layout: str) -> None:
    put(host / "blocked", b"")
    make_node(host, Node(path="/dev/nvidia-caps-imex-channels/channel0", major=240, minor=0))
    kind = "nvidia.com/imex-channel"
    for edits, findings in (
        spec(host, kind=kind, layout=layout, state="/blocked/cdigen"),
        spec(host, kind=kind, layout=layout, container_root="/driver"),
        spec(host, kind=kind, layout=layout, machine="aarch64"),
        spec(host, kind=kind, layout=layout, hook="nvidia"),
    ):
        assert rules(findings) == []
        assert edits.get("mounts", []) == []


def test_a_file_that_is_refused_for_the_view_is_not_mounted(host: Path) -> None:
    real = places(host).host.resolve("/usr/bin/nvidia-smi")
    (host / f".{real}").chmod(0o4755)
    edits, findings = spec(host)
    assert "/usr/bin/nvidia-smi" not in mounts(edits)
    assert rules(findings) == [("warning", "view-left-out")]


def test_a_spec_with_a_container_driver_root_has_no_hooks(host: Path) -> None:
    edits, findings = spec(host, container_root="/driver")
    assert "hooks" not in edits
    assert all(path.startswith("/driver/") for path in mounts(edits))
    assert rules(findings) == [NO_COMPAT]
    assert rules(spec(host, container_root="/driver", layout="view")[1]) == [
        ("warning", "layout-not-used"),
        NO_COMPAT,
    ]
