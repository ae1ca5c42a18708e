"""`cdigen generate --write` refuses settings that differ from those of a daemon with the same file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.daemon.host import Host, daemon

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Done, Run

# The last part of the error: the key to set, and the file.
HINT = re.compile(r"; set '(?P<line>[^']+)' in (?P<file>/etc/cdigen/config\.yaml)$")


@pytest.fixture
def gpu_host(tmp_path: Path, real_nodes: None) -> Host:  # noqa: ARG001
    host = Host(tmp_path / "host").make()
    host.configure()
    return host


def set_key(host: Host, done: Done) -> str:
    """Add the line that the error of DONE contains to the configuration; return this line."""
    found = HINT.search(done.err.strip())
    assert found, done.err
    file = host.root / found["file"].lstrip("/")
    host.put(found["file"].lstrip("/"), f"{file.read_text()}{found['line']}\n")
    return found["line"]


def is_older(document: Any) -> bool:
    return bool(document["cdiVersion"] == "0.4.0" and not any(d["name"] == "0" for d in document["devices"]))


def is_without_hook(document: Any) -> bool:
    return "hooks" not in document["containerEdits"]


def is_below(document: Any) -> bool:
    paths = [mount["containerPath"] for mount in document["containerEdits"]["mounts"]]
    return all(path.startswith("/opt/driver/") for path in paths)


def is_by_address(document: Any) -> bool:
    return any(re.fullmatch(r"0000:.*", device["name"]) for device in document["devices"])


OPTIONS = {
    "--target podman-4.2": ("target: [podman-4.2]", is_older),
    "--hook none": ("profiles: [{name: default, class: gpu, hook: none}]", is_without_hook),
    "--layout files": ("profiles: [{name: default, class: gpu, layout: files}]", is_without_hook),
    "--layout files --hook none": (
        "profiles: [{name: default, class: gpu, layout: files, hook: none}]",
        is_without_hook,
    ),
    "--naming pci": ("profiles: [{name: default, class: gpu, names: [pci]}]", is_by_address),
    "--container-driver-root /opt/driver": ("container_driver_root: /opt/driver", is_below),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_rejected_and_the_key_in_the_error_has_the_effect_of_the_option(
    gpu_host: Host, cdigen: Run, option: str
) -> None:
    line, is_so = OPTIONS[option]
    command = ("generate", "--write", "--root", gpu_host.root, *option.split())
    with daemon(gpu_host) as running:
        running.rests()
        before = gpu_host.document()
        done = cdigen(*command)
        file = "/run/cdi/nvidia.com-gpu.json: not written"
        assert done.failed(4, file, f"the cdigen daemon, process {running.process.pid}")
        assert len(done.err.splitlines()) == 1
        running.rests()
        assert gpu_host.document() == before
        assert set_key(gpu_host, done) == line
        running.sees(lambda: is_so(gpu_host.document()))
        running.rests()
        after = gpu_host.document()
        # With and without the option, the command now has the same settings as the daemon.
        for again in (command[:4], command):
            done = cdigen(*again)
            assert (done.code, "unchanged" in done.err) == (0, True), done.err
        running.rests()
        assert gpu_host.document() == after


def test_with_json_a_rejected_option_is_one_error_document(gpu_host: Host, cdigen: Run) -> None:
    with daemon(gpu_host):
        done = cdigen("generate", "--write", "--json", "--root", gpu_host.root, "--hook", "none")
    assert done.code == 4
    assert (done.json["error"]["kind"], done.json["error"]["hint"]) == (
        "daemon-settings",
        "set 'profiles: [{name: default, class: gpu, hook: none}]' in /etc/cdigen/config.yaml",
    )


def test_the_hint_names_a_configured_profile(gpu_host: Host, cdigen: Run) -> None:
    rows = [{"name": "default", "class": "gpu"}, {"name": "batch", "class": "gpu-batch"}]
    gpu_host.configure(f"profiles: {json.dumps(rows)}\n")
    command = ("generate", "--write", "--root", gpu_host.root, "--profile", "batch", "--hook", "none")
    with daemon(gpu_host) as running:
        running.rests()
        done = cdigen(*command)
        assert done.failed(4, "/run/cdi/nvidia.com-gpu-batch.json: ", "'hook: none' in the profile 'batch'")
        assert "nvidia.com-gpu.json" not in done.err
        rows[1]["hook"] = "none"
        gpu_host.configure(f"profiles: {json.dumps(rows)}\n")
        running.rests()
        assert cdigen(*command).code == 0


def test_the_target_of_a_profile_applies_only_to_its_kind(gpu_host: Host, cdigen: Run) -> None:
    rows = [
        {"name": "default", "class": "gpu"},
        {"name": "old", "class": "gpu-old", "target": ["podman-4.2"]},
    ]
    gpu_host.configure(f"profiles: {json.dumps(rows)}\n")
    with daemon(gpu_host) as running:
        running.rests()
        versions = [gpu_host.document(f"nvidia.com-{name}.json")["cdiVersion"] for name in ("gpu", "gpu-old")]
        assert versions == ["0.5.0", "0.4.0"]
        done = cdigen("generate", "--write", "--root", gpu_host.root, "--target", "podman-4.3")
        assert done.failed(4, "'target: [podman-4.3]' in")
        assert cdigen("generate", "--write", "--root", gpu_host.root).code == 0


def test_only_the_profiles_of_written_kinds_are_compared(gpu_host: Host, cdigen: Run) -> None:
    rows = [
        {"name": "default", "class": "gpu"},
        {"name": "bb", "class": "gpu-compute", "target": ["docker-28"]},
    ]
    gpu_host.configure(f"profiles: {json.dumps(rows)}\n")
    command = ("generate", "--write", "--root", gpu_host.root, "--kind", "nvidia.com/gpu-compute", "--target")
    with daemon(gpu_host) as running:
        running.rests()
        for options in (("docker-28",), ("docker-28.0.0", "--profile", "bb")):
            done = cdigen(*command, *options)
            assert (done.code, "unchanged" in done.err) == (0, True), done.err
        done = cdigen(*command, "podman-4.2")
        assert done.failed(4, "gpu-compute.json: ", "; set 'target: [podman-4.2]' in the profile 'bb' in")
        # The error also names the file of a kind for which the daemon has no profile and no spec.
        done = cdigen(*command[:-2], "nvidia.com/gds", "--layout", "files")
        assert done.failed(4, "/run/cdi/nvidia.com-gds.json: not written", "maintains this file")


def test_equivalent_targets_are_no_conflict(gpu_host: Host, cdigen: Run) -> None:
    gpu_host.configure("target: [podman-4.3]\n")
    with daemon(gpu_host) as running:
        running.rests()
        for same in (["podman-4.3.0"], ["podman-5.4", "podman-4.3"]):
            options = [word for target in same for word in ("--target", target)]
            done = cdigen("generate", "--write", "--root", gpu_host.root, *options)
            assert (done.code, "unchanged" in done.err) == (0, True), done.err


def test_the_hint_keeps_the_profiles_of_the_daemon(gpu_host: Host, cdigen: Run, tmp_path: Path) -> None:
    rows = [{"name": "default", "class": "gpu"}, {"name": "old", "class": "gpu-old"}]
    gpu_host.configure(f"profiles: {json.dumps(rows)}\n")
    other = tmp_path / "other.yaml"
    command = ("generate", "--write", "--root", gpu_host.root, "--config", other)
    with daemon(gpu_host) as running:
        running.rests()
        other.write_text("profiles: [{name: default, class: gpu, layout: files}]\n")
        assert cdigen(*command).failed(4, "; set 'layout: files' in the profile 'default' in /etc/cdigen/")
        other.write_text("profiles: [{name: batch, class: gpu-batch}]\n")
        kept = "{name: default, class: gpu}, {name: old, class: gpu-old}, {name: batch, class: gpu-batch}"
        assert cdigen(*command).failed(4, f"; set 'profiles: [{kept}]' in /etc/cdigen/config.yaml")


def test_the_hint_names_an_option_of_the_daemon(gpu_host: Host, cdigen: Run) -> None:
    with daemon(gpu_host, "--target", "podman-4.2") as running:
        running.rests()
        assert is_older(gpu_host.document())
        done = cdigen("generate", "--write", "--root", gpu_host.root)
        assert done.failed(4, "change the option --target of 'cdigen run'")
        done = cdigen("generate", "--write", "--root", gpu_host.root, "--target", "podman-4.2")
        assert (done.code, "unchanged" in done.err) == (0, True)


def test_the_option_config_is_refused_if_its_settings_differ_from_those_of_the_daemon(
    gpu_host: Host, cdigen: Run, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("mode: management\n")
    with daemon(gpu_host):
        done = cdigen("generate", "--write", "--root", gpu_host.root, "--config", other)
    assert done.failed(4, "set 'mode: management' in /etc/cdigen/config.yaml")


def test_a_configuration_that_was_just_changed_is_no_conflict(gpu_host: Host, cdigen: Run) -> None:
    with daemon(gpu_host) as running:
        running.rests()
        gpu_host.configure("target: [podman-4.2]\n")
        assert cdigen("generate", "--write", "--root", gpu_host.root).code == 0
        running.rests()
        assert is_older(gpu_host.document())


@pytest.mark.parametrize(
    "options",
    [
        ("--spec-dir", "{tmp}/cdi", "--target", "podman-4.2"),
        ("--output-dir", "{tmp}/cdi", "--hook", "none"),
        ("--write", "--kind", "nvidia.com/gpu"),
        ("--write", "--vendor", "nvidia"),
        ("--write", "--replace-foreign"),
    ],
)
def test_options_that_the_daemon_does_not_undo_are_accepted(
    gpu_host: Host, cdigen: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    words = [option.format(tmp=tmp_path) for option in options]
    if words[0] == "--spec-dir":
        words.append("--write")
    with daemon(gpu_host):
        done = cdigen("generate", "--root", gpu_host.root, *words)
    assert done.code == 0, done.err


def test_without_a_daemon_every_option_is_accepted(gpu_host: Host, cdigen: Run) -> None:
    with daemon(gpu_host) as running:
        running.rests()
        running.stop()
    done = cdigen("generate", "--write", "--root", gpu_host.root, "--target", "podman-4.2")
    assert done.code == 0
    assert is_older(gpu_host.document())


@pytest.mark.parametrize("value", ["podman-4.0", "podman", "lxc-6.0", "docker-24.0", "4.3", "podman-4.3\n"])
def test_an_invalid_target_is_a_fault_of_the_configuration_with_its_line(
    gpu_host: Host, cdigen: Run, value: str
) -> None:
    gpu_host.put("etc/cdigen/config.yaml", yaml.safe_dump({"mode": "auto", "target": [value]}))
    done = cdigen("config", "check", "--root", gpu_host.root)
    assert (done.code, ":3:" in done.out) == (2, True), done.out
    assert cdigen("generate", "--root", gpu_host.root).failed(2, "target")


MANAGEMENT, OURS = "management.nvidia.com/gpu", "management.nvidia.com-gpu.json"


@pytest.mark.parametrize("folder", ["run/cdi", "etc/cdi"])
def test_after_the_step_in_the_hint_the_daemon_replaces_a_kept_foreign_spec(
    gpu_host: Host, cdigen: Run, folder: str
) -> None:
    gpu_host.configure("vendor_options: {nvidia: {management: true}}\n")
    devices = [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}]
    document = {"cdiVersion": "0.5.0", "kind": MANAGEMENT, "devices": devices}
    theirs = gpu_host.put(f"{folder}/management.yaml", json.dumps(document))
    with daemon(gpu_host) as running:
        running.rests()
        hints = [row["hint"] for row in running.status["findings"] if row["rule"] == "foreign-spec-kept"]
        assert hints == [f"remove {theirs} if no program writes it any more: cdigen then writes its own spec"]
        done = cdigen("generate", "--write", "--root", gpu_host.root, "--replace-foreign")
        if folder == "etc/cdi":
            assert done.failed(4, OURS, "for management.nvidia.com/gpu the cdigen daemon", f"remove {theirs}")
            theirs.unlink()
        else:
            assert done.code == 0
        running.sees(lambda: gpu_host.document(OURS))
        running.rests()
        assert gpu_host.document(OURS) is not None


def test_the_command_in_the_daemons_hint_resolves_a_clash_of_two_files(gpu_host: Host, cdigen: Run) -> None:
    devices = [{"name": "0", "containerEdits": {"env": ["OTHER=1"]}}]
    document = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    for name in ("nvidia.com-gpu.json", "other.json"):
        gpu_host.put(f"run/cdi/{name}", json.dumps(document))
        with daemon(gpu_host) as running:
            running.rests()
            error = running.status["last_cycle"]["error"]
            assert "'cdigen generate --write --replace-foreign'" in error
            done = cdigen("generate", "--write", "--root", gpu_host.root, "--replace-foreign")
            assert done.code == 0, done.err
            running.sees(lambda: running.status["last_cycle"]["error"] == "")
            running.rests()
            assert len(gpu_host.devices()) == 3


def test_the_command_in_the_hint_repairs_a_damaged_state_file(gpu_host: Host, cdigen: Run) -> None:
    with daemon(gpu_host) as running:
        running.rests()
        (gpu_host.state_dir / "state.json").write_text("{")
        gpu_host.remove_gpu(1)
        running.sees(lambda: "--replace-foreign" in running.status["last_cycle"]["error"])
        done = cdigen("generate", "--write", "--root", gpu_host.root, "--replace-foreign")
        assert done.code == 0, done.err
        running.sees(lambda: running.status["last_cycle"]["error"] == "")
        running.rests()
        assert gpu_host.devices() == {"0", "all"}


def test_the_status_of_an_ended_daemon_causes_no_conflict(gpu_host: Host, cdigen: Run) -> None:
    with daemon(gpu_host) as running:
        running.rests()
        running.process.kill()
        running.process.wait()
    file = gpu_host.run_dir / "status.json"
    for text in (file.read_text(), "{", "{}"):
        file.write_text(text)
        done = cdigen("generate", "--write", "--root", gpu_host.root, "--hook", "none")
        assert done.code == 0, done.err


@pytest.mark.parametrize(
    "maintains",
    [{}, {"settings": {}}, {"settings": 3}, {"settings": {"profiles": []}}, {"vendors": 3}],
)
def test_a_status_of_another_version_causes_no_conflict_and_no_traceback(
    gpu_host: Host, cdigen: Run, maintains: dict[str, object]
) -> None:
    gpu_host.configure(resync_s=3600)
    with daemon(gpu_host) as running:
        running.rests()
        file = gpu_host.run_dir / "status.json"
        status = json.loads(file.read_text())
        status["maintains"] |= maintains
        if not maintains:
            status["maintains"] = {}
        file.write_text(json.dumps(status))
        done = cdigen("generate", "--write", "--root", gpu_host.root, "--naming", "uuid")
        running.process.kill()
        running.process.wait()
        assert (done.code, "Traceback" in done.err) == (0, False), done.err


def test_a_daemon_with_its_own_run_directory_is_found(gpu_host: Host, cdigen: Run, tmp_path: Path) -> None:
    gpu_host.run_dir = tmp_path / "own"
    write = ("generate", "--write", "--root", gpu_host.root, "--hook", "none")
    withdraw = ("withdraw", "--root", gpu_host.root)
    with daemon(gpu_host, "--run-dir", str(gpu_host.run_dir)) as running:
        running.rests()
        assert cdigen(*write).failed(4, f"the cdigen daemon, process {running.process.pid}", "profiles: ")
        assert cdigen(*withdraw).failed(5, "the cdigen daemon runs and would write the specs again")
        assert cdigen("status", "--json", "--root", gpu_host.root).json["pid"] == running.process.pid
        for command in ("health", "list"):
            assert cdigen(command, "--json", "--root", gpu_host.root).json[0]["health"] == "healthy"
        rows = {row["check"]: row for row in cdigen("doctor", "--json", "--root", gpu_host.root).json}
        assert rows["daemon-running"]["detail"].startswith("cdigen's daemon is running")
        assert rows["device-health"]["detail"].startswith("2 ")
    # The record of an ended daemon prevents nothing.
    assert cdigen(*write).code == 0
    assert cdigen(*withdraw).code == 0
    assert not gpu_host.spec.exists()
