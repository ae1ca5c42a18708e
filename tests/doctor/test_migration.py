"""`cdigen doctor --migrate` finds leftovers of other tools, and prints the steps that replace the tools."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.doctor.broken_host import KIND, BrokenHost
from support.hosts import amd_tree, intel_tree

from cdigen import page_url

CTK_HOOK = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}
OLD_CRI = "io.containerd.grpc.v1.cri"
PACKAGES = ("nvidia-container-toolkit", "nvidia-container-toolkit-base")
PLUGINS = "var/lib/kubelet/device-plugins"


def migrate(host: BrokenHost, *, to_do: bool = True) -> dict[str, Any]:
    """Return the document of --migrate. If TO_DO, the document has steps, and the exit code is 1."""
    text = host.shell(f"cdigen doctor --migrate --json --root {host.root}", code=int(to_do))
    document: dict[str, Any] = json.loads(text)
    assert bool(document["steps"]) == to_do
    return document


def found(document: dict[str, Any], kind: str) -> list[tuple[str, list[str]]]:
    return [(row["tool"], row["where"]) for row in document["leftovers"] if row["kind"] == kind]


def steps(document: dict[str, Any]) -> list[str]:
    return [row["step"] for row in document["steps"]]


def step(document: dict[str, Any], name: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in document["steps"] if row["step"] == name)
    return row


def install_packages(host: BrokenHost) -> None:
    for name in PACKAGES:
        host.put(f"var/lib/dpkg/info/{name}.md5sums", "")
    # This package was removed, but its configuration remains.
    host.put("var/lib/dpkg/info/nvidia-docker2.list", "/etc/docker/daemon.json\n")
    for program in ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime"):
        host.put(f"usr/bin/{program}", "", mode=0o755)


def enable_refresh(host: BrokenHost) -> None:
    for unit in ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"):
        host.enable(unit)


def put_toolkit_spec(host: BrokenHost, name: str, *devices: str) -> Path:
    """Write a spec as nvidia-ctk writes it, with the device names DEVICES."""

    def change(document: dict[str, Any]) -> None:
        document["containerEdits"]["hooks"] = [CTK_HOOK]
        edits = document["devices"][0]["containerEdits"]
        document["devices"] = [{"name": device, "containerEdits": edits} for device in devices]

    return host.put(name, host.changed(change))


def register(host: BrokenHost) -> None:
    """Register the runtime `nvidia` with every container runtime."""
    runtimes = {"nvidia": {"path": "nvidia-container-runtime"}}
    host.put("etc/docker/daemon.json", {"default-runtime": "nvidia", "runtimes": runtimes})
    host.put("etc/containerd/config.toml", 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n')
    table = f"plugins.'{OLD_CRI}'.containerd.runtimes"
    names = "".join(f"[{table}.{name}]\nruntime_type = 'x'\n" for name in ("nvidia", "nvidia-cdi"))
    host.put("etc/containerd/conf.d/99-nvidia.toml", f"version = 2\n{names}")
    host.put("etc/crio/crio.conf.d/99-nvidia.toml", "[crio.runtime.runtimes.nvidia]\nruntime_path = 'x'\n")


def test_a_host_without_other_tools_has_no_steps(host: BrokenHost) -> None:
    assert migrate(host, to_do=False) == {"leftovers": [], "steps": [], "kept": [], "legacy_requests": []}
    assert host.shell(f"cdigen doctor --migrate --root {host.root}") == "no leftovers of other tools\n"


def test_installed_packages_are_found_and_each_program_once(host: BrokenHost) -> None:
    install_packages(host)
    assert (host.root / "bin").is_symlink()
    document = migrate(host)
    assert found(document, "packages") == [("NVIDIA Container Toolkit", list(PACKAGES))]
    programs = ["/usr/bin/nvidia-ctk", "/usr/bin/nvidia-cdi-hook", "/usr/bin/nvidia-container-runtime"]
    assert found(document, "programs") == [("NVIDIA Container Toolkit", programs)]
    removal = document["steps"][-1]
    assert (removal["step"], removal["command"], removal["undo"]) == (
        "remove-packages",
        f"apt-get remove {' '.join(PACKAGES)}",
        f"apt-get install {' '.join(PACKAGES)}",
    )


def test_programs_without_a_package_are_removed_by_hand(host: BrokenHost) -> None:
    host.put("opt/bin/nvidia-ctk", "", mode=0o755)
    removal = migrate(host)["steps"][-1]
    assert (removal["step"], removal["commands"]) == ("remove-programs", [])
    assert "/opt/bin/nvidia-ctk" in removal["by_hand"]


def test_the_refresh_service_stops_before_its_spec_is_replaced(host: BrokenHost) -> None:
    enable_refresh(host)
    put_toolkit_spec(host, "run/cdi/nvidia.yaml", "0", "77")
    document = migrate(host)
    assert steps(document)[:2] == ["stop-refresh", "write-specs"]
    spec = "/var/run/cdi/nvidia.yaml"
    assert found(document, "spec") == [("NVIDIA Container Toolkit", [spec])]
    assert f"cdigen has no {KIND}=77" in document["leftovers"][-1]["detail"]
    writing = step(document, "write-specs")
    kept = f"{spec}.before-cdigen"
    assert writing["command"] == f"cp -p {spec} {kept} && cdigen generate --write --replace-foreign"
    assert writing["undo"] == f"cdigen withdraw && mv {kept} {spec}"


def test_a_spec_in_another_directory_is_renamed_after_cdigen_writes_its_spec(host: BrokenHost) -> None:
    put_toolkit_spec(host, "etc/cdi/nvidia.yaml", "0")
    host.spec.unlink()
    host.put("etc/cdi/nvidia.yaml.disabled", "used")
    document = migrate(host)
    assert steps(document)[:2] == ["write-specs", "move-spec"]
    assert step(document, "write-specs")["command"] == "cdigen generate --write"
    moving = step(document, "move-spec")
    assert moving["command"] == "mv /etc/cdi/nvidia.yaml /etc/cdi/nvidia.yaml-1.disabled"
    assert moving["undo"] == "mv /etc/cdi/nvidia.yaml-1.disabled /etc/cdi/nvidia.yaml"


def test_existing_specs_of_cdigen_are_not_written_again(host: BrokenHost) -> None:
    install_packages(host)
    assert "write-specs" not in steps(migrate(host))


def test_without_a_gpu_the_plan_keeps_specs_of_other_tools(host: BrokenHost) -> None:
    put_toolkit_spec(host, "etc/cdi/nvidia.yaml", "0")
    host.spec.unlink()
    for name in ("version", "gpus"):
        path = host.root / "proc/driver/nvidia" / name
        path.rename(path.with_name(f"{name}-gone"))
    enable_refresh(host)
    install_packages(host)
    document = migrate(host)
    assert steps(document) == ["write-specs"]
    writing = step(document, "write-specs")
    assert writing["commands"] == []
    assert "run 'cdigen doctor' for the reason" in writing["by_hand"]


def test_a_tool_is_kept_if_cdigen_has_no_spec_for_its_gpus(
    tmp_path_host: BrokenHost,
) -> None:
    host = tmp_path_host
    install_packages(host)
    host.put("usr/bin/amd-ctk", "", mode=0o755)
    runtimes = {name: {"path": f"{name}-container-runtime"} for name in ("amd", "nvidia")}
    host.put("etc/docker/daemon.json", {"runtimes": runtimes})
    document = migrate(host)
    assert "AMD Container Toolkit" in document["steps"][0]["why"]
    assert steps(document).count("unregister") == 1
    assert step(document, "unregister")["by_hand"].startswith("remove nvidia from")
    assert {"remove-packages"} <= set(steps(document))
    assert "remove-programs" not in steps(document)


def test_packages_are_kept_while_a_spec_has_their_hook(host: BrokenHost) -> None:
    install_packages(host)
    device = {"name": "all", "containerEdits": {"hooks": [CTK_HOOK]}}
    other = {"cdiVersion": "0.6.0", "kind": "management.nvidia.com/gpu", "devices": [device]}
    host.put("etc/cdi/management.json.disabled", other)
    assert "remove-packages" in steps(migrate(host))
    host.put("etc/cdi/management.json", other)
    document = migrate(host)
    assert "remove-packages" not in steps(document)
    assert "/etc/cdi/management.json" in document["kept"][0]


def test_the_script_of_nvidia_docker2_is_not_nvidia_docker_1(host: BrokenHost) -> None:
    host.put("usr/bin/nvidia-docker", "#!/bin/sh", mode=0o755)
    tool = ["NVIDIA Container Toolkit"]
    assert [row[0] for row in found(migrate(host), "programs")] == tool
    host.put("usr/bin/nvidia-docker-plugin", "", mode=0o755)
    assert [row[0] for row in found(migrate(host), "programs")] == ["nvidia-docker 1.0"]


def test_a_drop_in_that_also_enables_cdi_is_edited_and_not_renamed(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    register(host)
    drop_in = host.root / "etc/containerd/conf.d/99-nvidia.toml"
    drop_in.write_text(f"{drop_in.read_text()}[plugins.'{OLD_CRI}']\nenable_cdi = true\n")
    document = migrate(host)
    editing = next(row for row in document["steps"] if row["why"].endswith(" from containerd"))
    assert [row["argv"][0] for row in editing["commands"]] == ["cp"]
    assert "keep its settings of CDI" in editing["by_hand"]


def test_the_copy_of_a_crio_drop_in_is_in_another_folder(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    host.put("etc/crio/crio.conf.d/50-gpus.conf", "[crio.runtime.runtimes.nvidia]\nruntime_path = 'x'\n")
    editing = step(migrate(host), "unregister")
    assert (
        editing["command"] == "cp -p /etc/crio/crio.conf.d/50-gpus.conf /etc/crio/50-gpus.conf.before-cdigen"
    )


def test_no_copy_is_made_in_a_folder_that_users_may_write(host: BrokenHost) -> None:
    put_toolkit_spec(host, "run/cdi/nvidia.yaml", "0")
    (host.root / "run/cdi").chmod(0o777)
    writing = step(migrate(host), "write-specs")
    assert writing["command"] == "cdigen generate --write --replace-foreign"
    assert writing["undo"] == "cdigen withdraw"
    assert "old names" in writing["undo_by_hand"]


def test_each_file_that_registers_a_runtime_is_a_step(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    register(host)
    document = migrate(host)
    unregistering = [row for row in document["steps"] if row["step"] == "unregister"]
    by_runtime = {row["why"].split()[-1]: row for row in unregistering}
    docker, containerd, crio = (by_runtime[name] for name in ("docker", "containerd", "crio"))
    assert len(unregistering) == 3
    assert docker["command"] == "cp -p /etc/docker/daemon.json /etc/docker/daemon.json.before-cdigen"
    assert docker["by_hand"] == (
        "remove nvidia and the default runtime from /etc/docker/daemon.json, then restart docker; then RUN "
        "steps of 'docker build' have no GPU without 'RUN --device' of BuildKit "
        f"({page_url('how-to/migrate')})"
    )
    drop_in = "/etc/containerd/conf.d/99-nvidia.toml"
    assert containerd["command"] == f"mv {drop_in} {drop_in}.disabled && systemctl restart containerd"
    assert containerd["why"] == "remove the runtime nvidia, nvidia-cdi from containerd"
    # The target is in another folder, because CRI-O reads all files in its folder.
    assert crio["command"].startswith(
        "mv /etc/crio/crio.conf.d/99-nvidia.toml /etc/crio/99-nvidia.toml.disabled"
    )
    request = steps(document).index("request-by-name")
    assert request < steps(document).index("unregister")


def test_runc_with_another_name_is_no_leftover(tmp_path_host: BrokenHost) -> None:
    tmp_path_host.put("etc/docker/daemon.json", {"runtimes": {"mine": {"path": "/usr/bin/runc"}}})
    assert migrate(tmp_path_host, to_do=False)["leftovers"] == []


def test_amds_runtime_is_found_by_its_program(tmp_path_host: BrokenHost) -> None:
    runtimes = {"gpus": {"path": "/usr/local/bin/amd-container-runtime"}}
    tmp_path_host.put("etc/docker/daemon.json", {"runtimes": runtimes})
    assert found(migrate(tmp_path_host), "runtime") == [
        ("AMD Container Toolkit", ["/etc/docker/daemon.json"])
    ]


def test_podmans_hook_is_renamed(host: BrokenHost) -> None:
    hook = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
    host.put(hook.lstrip("/"), "{}")
    disabling = step(migrate(host), "disable-hook")
    assert disabling["command"] == f"mv {hook} {hook}.disabled"


def test_a_runtime_that_reads_no_specs_is_configured(tmp_path_host: BrokenHost) -> None:
    install_packages(tmp_path_host)
    tmp_path_host.put("etc/docker/daemon.json", {"features": {"cdi": False}})
    configuring = step(migrate(tmp_path_host), "configure")
    assert configuring["command"] == "cdigen configure docker"
    assert configuring["undo"] == "cdigen configure docker --undo"


@pytest.mark.parametrize(
    ("socket", "successor", "page"),
    [
        ("nvidia-gpu.sock", "'cdigen kubelet'", "replace-device-plugins"),
        ("aliyungpushare.sock", "'cdigen kubelet' with 'cdigen extender'", "share-gpu-memory"),
    ],
)
def test_tools_that_a_device_plugin_may_need_are_kept(
    tmp_path_host: BrokenHost, socket: str, successor: str, page: str
) -> None:
    host = tmp_path_host
    install_packages(host)
    register(host)
    host.put(f"{PLUGINS}/{socket}", "")
    document = migrate(host)
    assert {"unregister", "remove-packages"} & set(steps(document)) == set()
    assert len(document["kept"]) == 2
    steps_to_it = page_url(f"how-to/kubernetes/{page}")
    assert f"need it until {successor} replaces it ({steps_to_it})" in document["kept"][0]


def test_amds_device_plugin_is_kept_and_needs_no_other_tool(host: BrokenHost) -> None:
    install_packages(host)
    host.put(f"{PLUGINS}/amd.com_gpu", "")
    # A socket of network cards.
    host.put(f"{PLUGINS}/nvidia.com_hostdev.sock", "")
    document = migrate(host)
    assert found(document, "plugin") == [("AMD's device plugin", [f"/{PLUGINS}/amd.com_gpu"])]
    assert steps(document)[-1] == "remove-packages"
    assert len(document["kept"]) == 1


def test_files_that_users_may_change_are_renamed_by_hand(host: BrokenHost) -> None:
    hook = "/etc/containers/oci/hooks.d/oci-nvidia-hook.json"
    host.put(hook.lstrip("/"), "{}")
    (host.root / "etc/containers/oci/hooks.d").chmod(0o777)
    disabling = step(migrate(host), "disable-hook")
    assert (disabling["commands"], disabling["undo_commands"]) == ([], [])
    assert "users other than root may change /etc/containers/oci/hooks.d" in disabling["by_hand"]


def test_the_text_has_each_step_with_its_command_and_its_undo(host: BrokenHost) -> None:
    install_packages(host)
    enable_refresh(host)
    text = host.shell(f"cdigen doctor --migrate --root {host.root}", code=1)
    assert "1. stop-refresh: " in text
    assert "\n   do:   systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service\n" in text
    assert "\n   undo: systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service\n" in text
    assert "steps, in this order, on that host; to undo the steps, start with the last one" in text


def test_the_command_changes_no_file(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    install_packages(host)
    register(host)
    put_toolkit_spec(host, "run/cdi/nvidia.yaml", "0")
    before = {path: path.lstat().st_mtime_ns for path in host.root.rglob("*")}
    migrate(host)
    assert {path: path.lstat().st_mtime_ns for path in host.root.rglob("*")} == before


def test_migrate_and_bundle_exclude_each_other(host: BrokenHost) -> None:
    bundle = host.root / "bundle.tar.gz"
    assert not host.shell(f"cdigen doctor --migrate --bundle {bundle} --root {host.root}", code=2)
    assert not bundle.exists()


def lay_amd(root: Path) -> None:
    amd_tree.write(root, amd_tree.mi300x(8, count=1))


def lay_laptop(root: Path) -> None:
    intel_tree.lay(root, *intel_tree.laptop())


@pytest.mark.usefixtures("real_nodes")
@pytest.mark.parametrize(
    ("lay", "kind", "file", "tool", "lacking"),
    [
        (lay_amd, "amd.com/gpu", "amd.json", "AMD Container Toolkit", ""),
        (lay_laptop, "intel.com/gpu", "intel.com-gpu.yaml", "Intel's CDI specs generator", "card7"),
    ],
)
def test_specs_of_amds_and_intels_generators_are_renamed_after_cdigen_writes_its_specs(  # noqa: PLR0917 - a table
    tmp_path: Path, lay: Callable[[Path], None], kind: str, file: str, tool: str, lacking: str
) -> None:
    host = BrokenHost(tmp_path / "host").make("podman", lay=lay)
    names = ["0", *([lacking] if lacking else [])]
    edits = {"deviceNodes": [{"path": "/dev/dri/renderD128"}]}
    devices = [{"name": name, "containerEdits": edits} for name in names]
    host.put(f"etc/cdi/{file}", {"cdiVersion": "0.6.0", "kind": kind, "devices": devices})
    document = migrate(host)
    assert found(document, "spec") == [(tool, [f"/etc/cdi/{file}"])]
    detail = document["leftovers"][0]["detail"]
    assert f"cdigen has no {kind}={lacking}" in detail if lacking else "cdigen has no" not in detail
    assert steps(document) == ["move-spec", "start-service"]
    assert step(document, "move-spec")["command"] == f"mv /etc/cdi/{file} /etc/cdi/{file}.disabled"


def test_control_characters_are_printed_escaped(host: BrokenHost) -> None:
    put_toolkit_spec(host, "etc/cdi/a\x1b[2J;reboot\n.yaml", "0")
    host.put("var/lib/kubelet/device-plugins/nvidia\x1b[2J.sock", "")
    host.put("etc/docker/daemon.json", {"runtimes": {"nvidia\x1b[2J": {"path": "x"}}})
    host.put("usr/bin/dockerd", "", mode=0o755)
    text = host.shell(f"cdigen doctor --migrate --root {host.root}", code=1)
    assert "\x1b" not in text
    moving = step(migrate(host), "move-spec")
    assert moving["command"].startswith("mv $'/etc/cdi/a\\033[2J;reboot\\012.yaml' $'")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"runtimes": {"nvidia": {"path": 7}}, "default-runtime": {}}', "\x00" * 100],
)
def test_an_invalid_configuration_of_docker_does_not_prevent_the_plan(
    tmp_path_host: BrokenHost, content: str
) -> None:
    tmp_path_host.put("etc/docker/daemon.json", content)
    install_packages(tmp_path_host)
    assert "remove-packages" in steps(migrate(tmp_path_host))


def test_an_unreadable_host_has_no_leftovers(host: BrokenHost) -> None:
    for name in ("var/lib/dpkg/info", "var/lib/kubelet/device-plugins"):
        host.put(name, "a file")
    assert migrate(host, to_do=False)["leftovers"] == []
