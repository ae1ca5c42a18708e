"""The layout and hook that a host gets, and the findings if the requested layout or hook cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.hosts import driver_files
from support.hosts.driver_files import put
from support.hosts.nvidia import boot, discover, places
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

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import FileKind

pytestmark = pytest.mark.usefixtures("real_nodes")

SCRIPT, PYTHON, NVIDIAS = "/usr/libexec/cdigen/cdigen-hook", "/usr/bin/python3", "/usr/bin/nvidia-cdi-hook"
MODULE = "/usr/libexec/cdigen/lib/cdigen/hook/main.py"
DEBIAN = "/usr/lib/x86_64-linux-gnu"
VIEWS = "/var/lib/cdigen/views"
# The finding on every spec of a complete driver without a hook.
NO_COMPAT = ("info", "no-forward-compatibility")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Create a Debian host with a GPU, cdigen's hook and NVIDIA's hook, and return its root."""
    driver_files.debian_13(tmp_path)
    boot(tmp_path, 1)
    for program in (SCRIPT, MODULE, PYTHON, NVIDIAS):
        put(tmp_path / f".{program}", b"#!/bin/true\n", 0o755)
    return tmp_path


def spec(
    root: Path,
    *,
    write: bool = True,
    container_root: str = "/",
    state: str = "/var/lib/cdigen",
    machine: str = "x86_64",
    kind: str = "nvidia.com/gpu",
    python: str = PYTHON,
    **profile_changes: Any,
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return the document-level edits of the spec of KIND, and the findings. PROFILE_CHANGES apply."""
    delivery = DeliveryOptions(
        hook_script=SCRIPT,
        hook_python=python,
        nvidia_hook=NVIDIAS,
        state_dir=f"{root}{state}",
        make_views=write,
    )
    options = GenerateOptions(
        profiles=(replace(DEFAULT, **profile_changes),), container_driver_root=container_root
    )
    inventory = discover(root)
    inventory = replace(inventory, driver=replace(inventory.driver, architecture=machine))
    products, broken = generate.generate_specs(
        {"nvidia": inventory}, host=places(root).host, options=options, delivery=delivery
    )
    assert not broken
    (product,) = (product for product in products if product.kind == kind)
    return product.document["containerEdits"], product.findings


def with_hook(host: Path) -> DeliveryOptions:
    return DeliveryOptions(hook_script=SCRIPT, hook_python=PYTHON, state_dir=f"{host}/state", make_views=True)


def mounts(edits: dict[str, Any]) -> dict[str, str]:
    return {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}


def rules(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.rule) for finding in findings if finding.path != "x11"]


def is_files(edits: dict[str, Any]) -> bool:
    return f"{DEBIAN}/libcuda.so.1" in mounts(edits) and "/usr/local/nvidia" not in mounts(edits)


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


@pytest.mark.parametrize("path", [SCRIPT, MODULE])
def test_a_host_with_an_incomplete_hook_gets_single_files_with_a_finding(host: Path, path: str) -> None:
    (host / f".{path}").unlink()
    edits, findings = spec(host)
    assert is_files(edits)
    assert "hooks" not in edits
    assert rules(findings) == [("info", "hook-missing"), NO_COMPAT]
    assert f"TRITON_LIBCUDA_PATH={DEBIAN}" in edits["env"]


def test_a_host_without_the_hooks_python_has_no_hook(host: Path) -> None:
    (host / f".{PYTHON}").unlink()
    edits, findings = spec(host, hook="cdigen")
    assert "hooks" not in edits
    assert rules(findings) == [("warning", "hook-missing"), NO_COMPAT]
    assert PYTHON in findings[0].message


@pytest.mark.parametrize("path", [SCRIPT, MODULE, PYTHON, "/usr/libexec/cdigen", "/usr"])
def test_a_hook_that_other_users_can_change_is_not_used(host: Path, path: str) -> None:
    (host / f".{path}").chmod(0o777)
    edits, findings = spec(host)
    assert "hooks" not in edits
    assert rules(findings) == [("warning", "hook-untrusted"), NO_COMPAT]


def test_a_hook_with_a_changeable_standard_library_is_not_used(host: Path) -> None:
    (host / f".{PYTHON}").rename(host / "usr/bin/python3.13")
    (host / f".{PYTHON}").symlink_to("python3.13")
    put(host / "usr/lib/python3.13/os.py", b"", 0o666)
    assert rules(spec(host)[1]) == [("warning", "hook-untrusted"), NO_COMPAT]


def test_a_hook_with_changeable_byte_code_is_not_used(host: Path) -> None:
    put(host / f".{MODULE.removesuffix('main.py')}__pycache__/main.cpython-313.pyc", b"", 0o666)
    assert rules(spec(host)[1]) == [("warning", "hook-untrusted"), NO_COMPAT]


def test_a_hook_with_a_circular_link_in_its_folder_is_not_used(host: Path) -> None:
    (host / f".{MODULE}").with_name("again").symlink_to(".")
    edits, findings = spec(host)
    assert "hooks" not in edits
    assert rules(findings) == [("warning", "hook-untrusted"), NO_COMPAT]


def test_the_target_of_a_linked_interpreter_in_the_host_is_checked(host: Path) -> None:
    (host / f".{PYTHON}").rename(host / "usr/bin/python3.13")
    (host / f".{PYTHON}").symlink_to("/usr/bin/python3.13")
    assert spec(host)[0]["hooks"]
    (host / "usr/bin/python3.13").chmod(0o777)
    assert rules(spec(host)[1]) == [("warning", "hook-untrusted"), NO_COMPAT]


COPY = "/usr/local/libexec/cdigen/python3"


@pytest.fixture
def copied(host: Path) -> Path:
    """Create a copy of the interpreter that users may not read, and a pyvenv.cfg with its original folder."""
    put(host / f".{COPY}", (host / f".{PYTHON}").read_bytes(), 0o711)
    put(host / "usr/local/libexec/cdigen/pyvenv.cfg", b"home = /usr/bin\n")
    return host


def test_a_copy_of_the_interpreter_runs_the_hook(copied: Path) -> None:
    edits, findings = spec(copied, python=COPY)
    (hook,) = edits["hooks"]
    assert (hook["path"], hook["args"][0]) == (COPY, COPY)
    assert rules(findings) == []


def test_an_outdated_copy_of_the_interpreter_is_not_used(copied: Path) -> None:
    put(copied / f".{PYTHON}", b"a newer one", 0o755)
    edits, findings = spec(copied, python=COPY)
    assert edits["hooks"][0]["path"] == PYTHON
    assert rules(findings) == [("warning", "hook-python-outdated")]
    assert f"install -m 0711 {PYTHON} {COPY}" in findings[0].hint


@pytest.mark.parametrize("path", [COPY, "/usr/local/libexec/cdigen/pyvenv.cfg", PYTHON])
def test_a_hook_with_a_changeable_copy_of_the_interpreter_is_not_used(copied: Path, path: str) -> None:
    (copied / "usr/local/libexec/cdigen/pyvenv.cfg").chmod(0o644)
    (copied / f".{path}").chmod(0o777)
    found = rules(spec(copied, python=COPY)[1])
    assert (("warning", "hook-untrusted") in found) == (path != PYTHON)


def test_the_spec_of_a_profile_without_hooks_has_no_hooks(host: Path) -> None:
    for layout in ("auto", "files", "hwcaps", "view"):
        assert "hooks" not in spec(host, hook="none", layout=layout)[0]


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


def test_the_hook_adds_the_folder_of_single_files_to_the_loader_cache(host: Path) -> None:
    edits, _ = spec(host, layout="files")
    assert is_files(edits)
    args = edits["hooks"][0]["args"]
    assert args[args.index("--update-ldcache") + 1 :][:2] == ["x86_64", DEBIAN]


def test_the_hook_has_the_steps_of_the_profile(host: Path) -> None:
    edits, _ = spec(host, hook_steps=("update-ldcache",), required_hook_steps=("update-ldcache",))
    options = [word for word in edits["hooks"][0]["args"] if word.startswith("--")]
    assert options == ["--update-ldcache", "--require"]


def test_the_modification_of_device_nodes_is_disabled_only_by_the_profile(host: Path) -> None:
    step = "disable-device-node-modification"
    assert f"--{step}" not in spec(host)[0]["hooks"][0]["args"]
    assert f"--{step}" in spec(host, hook_steps=(step,))[0]["hooks"][0]["args"]


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


def test_nvidias_hooks_have_their_known_arguments(host: Path) -> None:
    edits, findings = spec(host, hook="nvidia")
    assert [hook["args"][:2] for hook in edits["hooks"]] == [
        ["nvidia-cdi-hook", name]
        for name in ("create-symlinks", "enable-cuda-compat", "update-ldcache", "update-application-profile")
    ]
    assert f"{DEBIAN}/libcuda.so.550.163.01" in mounts(edits)
    assert f"{DEBIAN}/libcuda.so.1" not in mounts(edits)
    assert rules(findings) == []


def test_a_host_without_nvidias_hook_gets_single_files(host: Path) -> None:
    (host / f".{NVIDIAS}").unlink()
    edits, findings = spec(host, hook="nvidia")
    assert is_files(edits)
    assert rules(findings) == [("warning", "hook-missing"), NO_COMPAT]


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


def test_the_spec_for_another_host_has_a_hook_only_if_the_profile_requests_it(host: Path) -> None:
    inventory = {"nvidia": discover(host)}
    delivery = DeliveryOptions(hook_script=SCRIPT, hook_python=PYTHON, nvidia_hook=NVIDIAS)
    (plain,), _ = generate.generate_specs(inventory, host=None, delivery=delivery)
    assert "hooks" not in plain.document["containerEdits"]
    options = GenerateOptions(profiles=(replace(DEFAULT, hook="cdigen"),))
    (requested,), _ = generate.generate_specs(inventory, host=None, delivery=delivery, options=options)
    assert SCRIPT in requested.document["containerEdits"]["hooks"][0]["args"]
    assert is_files(requested.document["containerEdits"])
