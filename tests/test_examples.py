"""The list of examples marks the examples that are not run; `cdi-options` converts a spec to options."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.paths import REPOSITORY
from support.processes import captured

if TYPE_CHECKING:
    import subprocess

EXAMPLES = REPOSITORY / "examples"
README = (EXAMPLES / "README.md").read_text()
# Folders with files of other tools; the README describes them as folders.
FOLDERS = ("hosts", "specs", "monitoring", "vendor-accel")
PROGRAMS = sorted(
    path.relative_to(EXAMPLES).as_posix()
    for path in EXAMPLES.rglob("*")
    if path.is_file()
    and path != EXAMPLES / "README.md"
    and path.relative_to(EXAMPLES).parts[0] not in FOLDERS
)
NODE = {"path": "/dev/gpu0", "fileMode": 0o660, "permissions": "rw"}
LIBRARY = {"hostPath": "/usr/lib/libgpu.so.1.2", "containerPath": "/usr/lib/libgpu.so.1", "options": ["ro"]}


@pytest.mark.parametrize("example", PROGRAMS)
def test_the_list_marks_an_example_as_not_run_if_and_only_if_its_file_does(example: str) -> None:
    rows = [line for line in README.splitlines() if f"]({example})" in line]
    assert len(rows) == 1
    assert ("| not run |" in rows[0]) == ("# Not run: " in (EXAMPLES / example).read_text())


def test_folders_without_programs_are_listed() -> None:
    assert [name for name in FOLDERS if f"]({name}" not in README] == []


def spec(folder: Path, **edits: Any) -> Path:
    """Write a spec with the device `a`, a mount of LIBRARY, and EDITS for all devices."""
    document = {
        "cdiVersion": "0.5.0",
        "kind": "example.com/gpu",
        "devices": [{"name": "a", "containerEdits": {"deviceNodes": [NODE]}}],
        "containerEdits": {"mounts": [LIBRARY], **edits},
    }
    file = folder / "spec.json"
    file.write_text(json.dumps(document))
    return file


def options(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, EXAMPLES / "cdi-options", *arguments)
    return captured(command)


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        (
            "nspawn",
            [
                "--bind=/dev/gpu0:/dev/gpu0",
                "--bind-ro=/usr/lib/libgpu.so.1.2:/usr/lib/libgpu.so.1",
                "--setenv=A=b",
            ],
        ),
        (
            "apptainer",
            [
                "--mount=type=bind,source=/dev/gpu0,destination=/dev/gpu0",
                "--mount=type=bind,source=/usr/lib/libgpu.so.1.2,destination=/usr/lib/libgpu.so.1,ro",
                "--env=A=b",
            ],
        ),
        (
            "incus",
            [
                "cdi-node-0 unix-char source=/dev/gpu0 path=/dev/gpu0 mode=0660",
                "cdi-file-0 disk source=/usr/lib/libgpu.so.1.2 path=/usr/lib/libgpu.so.1 readonly=true",
            ],
        ),
    ],
)
def test_a_spec_becomes_the_options_of_a_program(tmp_path: Path, form: str, lines: list[str]) -> None:
    assert options(form, spec(tmp_path, env=["A=b"]), "a").stdout.splitlines() == lines


def test_a_node_that_device_edits_and_common_edits_contain_is_bound_once(tmp_path: Path) -> None:
    output = options("nspawn", spec(tmp_path, deviceNodes=[NODE]), "a").stdout
    assert output.count("--bind=") == 1


def test_options_for_incus_omit_firmware_below_lib_which_is_a_link_in_images(tmp_path: Path) -> None:
    firmware = {"hostPath": "/usr/lib/firmware/gpu.bin", "containerPath": "/lib/firmware/gpu.bin"}
    file = spec(tmp_path, mounts=[firmware, LIBRARY])
    assert "firmware" not in options("incus", file, "a").stdout
    assert "--bind-ro=/usr/lib/firmware/gpu.bin:/lib/firmware/gpu.bin" in options("nspawn", file, "a").stdout


def test_a_colon_in_a_path_is_escaped_for_nspawn(tmp_path: Path) -> None:
    output = options("nspawn", spec(tmp_path, deviceNodes=[{"path": "/dev/pci-0000:03"}]), "a").stdout
    assert r"--bind=/dev/pci-0000\:03:/dev/pci-0000\:03" in output.splitlines()


def test_a_spec_with_hooks_or_without_the_requested_device_is_refused_with_the_reason(tmp_path: Path) -> None:
    hook = {"hookName": "createContainer", "path": "/hook"}
    with_hooks = options("nspawn", spec(tmp_path, hooks=[hook]), "a")
    assert (with_hooks.returncode, with_hooks.stdout) == (1, "")
    assert ": hooks are not supported; generate the spec with --hook none" in with_hooks.stderr
    without = options("nspawn", spec(tmp_path), "b")
    assert (without.returncode, without.stderr) == (
        1,
        f"cdi-options: {tmp_path / 'spec.json'} has no device b; it has a\n",
    )


def test_a_spec_of_cdigen_is_converted_with_its_nodes_and_libraries() -> None:
    output = options("nspawn", EXAMPLES / "specs/debian13-8xh100.json", "0").stdout
    assert "--bind=/dev/nvidia0:/dev/nvidia0" in output.splitlines()
    assert "/libcuda.so.1\n" in output


# The keywords of plays, blocks and tasks, which are reserved (ansible-core 2.19, its module
# vars/reserved.py and "Playbook Keywords" of its documentation).
ANSIBLE_KEYWORDS = frozenset((
    "action", "always", "any_errors_fatal", "args", "async", "become", "become_exe", "become_flags",
    "become_method", "become_user", "block", "changed_when", "check_mode", "collections", "connection",
    "debugger", "delay", "delegate_facts", "delegate_to", "diff", "environment", "fact_path",
    "failed_when", "force_handlers", "gather_facts", "gather_subset", "gather_timeout", "handlers",
    "hosts", "ignore_errors", "ignore_unreachable", "local_action", "loop", "loop_control",
    "max_fail_percentage", "module_defaults", "name", "no_log", "notify", "order", "poll", "port",
    "post_tasks", "pre_tasks", "register", "remote_user", "rescue", "retries", "roles", "run_once",
    "serial", "strategy", "tags", "tasks", "throttle", "timeout", "until", "vars", "vars_files",
    "vars_prompt", "when",
))  # fmt: skip


def test_no_variable_of_the_ansible_example_has_a_reserved_name() -> None:
    (play,) = yaml.safe_load((REPOSITORY / "examples/ansible/cdigen.yml").read_text())
    names = [*play["vars"], *(task["register"] for task in play["tasks"] if "register" in task)]
    assert len(names) >= 5
    assert ANSIBLE_KEYWORDS.isdisjoint(names)
    assert {keyword for task in play["tasks"] for keyword in task if "." not in keyword} <= ANSIBLE_KEYWORDS
