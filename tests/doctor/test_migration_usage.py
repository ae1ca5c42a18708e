"""GPU requests in scripts, unit files and compose files, and the replacements of the requests."""

import time
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.waiting import PATIENCE_S

from cdigen import page_url
from cdigen.doctor.migration.usage import find_requests

ALL = "--device nvidia.com/gpu=all"
IN_IMAGE = "remove it from the image, and name the device in the command that starts the container"
AMD_BOTH = "--device amd.com/gpu=0 --device amd.com/gpu=1"
NAMED = "--device nvidia.com/gpu=NAME for each name in the value"
UNREAD = "remove the variable when no runtime reads it anymore; until then, the value prevents GPUs"
GPU = "nvidia.com/gpu"
ONE = "--device nvidia.com/gpu=0 (CDI has names, no counts)"
BOTH = "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1"

VISIBLE_DEVICES = page_url("how-to/kubernetes/visible-devices")


def replaced(line: str) -> list[tuple[str, str]]:
    return [(one.request, one.replacement) for one in find_requests("file", line)]


@pytest.mark.parametrize(
    ("value", "replacement"),
    [
        ("--gpus all", ALL),
        ("--gpus=all", ALL),
        ('--gpus "all"', ALL),
        ("--gpus 2", f"{BOTH} (CDI has names, no counts)"),
        ("--gpus device=1", "--device nvidia.com/gpu=1"),
        ("""--gpus '"device=0,2"'""", "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2"),
        (r'--gpus "\"device=0,2\""', "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2"),
        ("--gpus device=GPU-3c7f", "--device nvidia.com/gpu=GPU-3c7f"),
        ("--gpus 'all,capabilities=utility'", ALL),
        ("--gpus -1", ALL),
        ("--gpus count=all", ALL),
        ("--gpus 99999999999", NAMED),
        ("--gpus 65", f"--device {GPU}=NAME for each GPU (CDI has names, no counts)"),
        ("--gpus capabilities=utility", ONE),
        ("""--gpus '"capabilities=compute,utility"'""", ONE),
        ("--gpus driver=nvidia", ONE),
        ("--gpus some", NAMED),
        ("--gpus count=2", f"{BOTH} (CDI has names, no counts)"),
        ("--gpus 0", "remove it"),
        ("""--gpus '"device=0,1","capabilities=compute,utility"'""", BOTH),
        ("""--gpus 'all,"capabilities=compute,utility"'""", ALL),
        ("--gpus device=0,capabilities=utility", "--device nvidia.com/gpu=0"),
        (r"--gpus \"device=0,1\"", BOTH),
        ('--gpus "$GPUS"', NAMED),
        ('--gpus "device=${GPU}"', NAMED),
        ("--gpus 'device=`reboot`'", NAMED),
        ("--gpus 'device=1;reboot'", NAMED),
    ],
)
def test_the_option_gpus_is_replaced_by_device_names(value: str, replacement: str) -> None:
    assert replaced(f"docker run {value} image") == [(value, replacement)]


@pytest.mark.parametrize(
    ("line", "found", "replacement"),
    [
        ('run(["docker", "run", "--gpus", "all"])', '--gpus", "all"', ALL),
        ("id=$(docker create --gpus all)", "--gpus all", ALL),
        ("ctr run --gpus 2 image name", "--gpus 2", "--device nvidia.com/gpu=2"),
        ("PodmanArgs=--gpus=all", "--gpus=all", ALL),
    ],
)
def test_the_option_gpus_is_found_in_all_kinds_of_commands(line: str, found: str, replacement: str) -> None:
    assert replaced(line) == [(found, replacement)]


def test_the_option_gpus_with_the_cdi_driver_is_no_legacy_request() -> None:
    assert replaced("docker run --gpus driver=cdi,device=nvidia.com/gpu=1 image") == []


@pytest.mark.parametrize(
    ("value", "replacement"),
    [
        ("all", f"{ALL}; in a compose file: devices: [nvidia.com/gpu=all]"),
        ("0,1", f"{BOTH}; in a compose file: devices: [nvidia.com/gpu=0, nvidia.com/gpu=1]"),
        ("0:1", "--device nvidia.com/gpu=0:1; in a compose file: devices: [nvidia.com/gpu=0:1]"),
        (
            "nvidia.com/gpu=3",
            "--device nvidia.com/gpu=3; in a compose file: devices: [nvidia.com/gpu=3]",
        ),
        ("void", UNREAD),
        ("none", UNREAD),
        ("", UNREAD),
        ("$GPUS", NAMED),
        ("${GPUS:-all}", NAMED),
        ("${NVIDIA_VISIBLE_DEVICES:-all}", NAMED),
        ("/var/run/nvidia-container-devices", NAMED),
        ("MIG-GPU-3c7f/1/2", NAMED),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "docker run -e NVIDIA_VISIBLE_DEVICES={} image",
        "      - NVIDIA_VISIBLE_DEVICES={}",
        "  NVIDIA_VISIBLE_DEVICES: '{}'",
    ],
)
def test_the_variable_is_replaced_by_device_names(line: str, value: str, replacement: str) -> None:
    assert [found[1] for found in replaced(line.format(value))] == [replacement]


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ("ENV NVIDIA_VISIBLE_DEVICES all", f"{IN_IMAGE}: {ALL}"),
        ("ENV NVIDIA_VISIBLE_DEVICES=all", f"{IN_IMAGE}: {ALL}"),
        (
            '  NVIDIA_VISIBLE_DEVICES = "0"',
            "--device nvidia.com/gpu=0; in a compose file: devices: [nvidia.com/gpu=0]",
        ),
        ("docker run -eNVIDIA_VISIBLE_DEVICES=$GPU image", NAMED),
        (
            "AMD_VISIBLE_DEVICES=0-1",
            f"{AMD_BOTH}; in a compose file: devices: [amd.com/gpu=0, amd.com/gpu=1]",
        ),
        (
            "HABANA_VISIBLE_DEVICES=3",
            "--device intel.com/gaudi=accel3; in a compose file: devices: [intel.com/gaudi=accel3]",
        ),
        (
            "- name: NVIDIA_VISIBLE_DEVICES",
            f"keep it if 'cdigen nri' reads it ({VISIBLE_DEVICES}), else remove it",
        ),
    ],
)
def test_the_variable_is_found_in_other_files(line: str, replacement: str) -> None:
    assert [found[1] for found in replaced(line)] == [replacement]


RESERVED = """
        devices:
          - {dash}
            device_ids:
              - nvidia.com/gpu=0

            capabilities: [gpu]
          - driver: cdi
"""


@pytest.mark.parametrize(("driver", "lines"), [("driver: cdi", []), ("count: 1", [7])])
def test_a_reservation_without_the_key_driver_requests_nvidias_driver(driver: str, lines: list[int]) -> None:
    assert [one.line for one in find_requests("file", RESERVED.format(dash=driver))] == lines
    in_one_line = f"- {{capabilities: [gpu], {driver}}}"
    assert len(replaced(in_one_line)) == len(lines)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("    runtime: &gpu nvidia", "runtime: &gpu nvidia"),
        ("x-gpu: &gpu {runtime: nvidia}", "runtime: nvidia"),
        ('{"runtime": "nvidia"}', '"runtime": "nvidia"'),
        ('        runtime = "nvidia"', 'runtime = "nvidia"'),
        ('run(["--runtime", "nvidia"])', '--runtime", "nvidia'),
        ("    gpus: all", "gpus: all"),
        ("      - /dev/kfd:/dev/kfd", "- /dev/kfd"),
        ("AddDevice=/dev/kfd", "AddDevice=/dev/kfd"),
        ("@reboot root nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "nvidia-ctk cdi generate"),
        ("docker run --runtime=nvidia image", "--runtime=nvidia"),
        ("docker run --runtime nvidia image", "--runtime nvidia"),
        ("docker run --runtime=amd image", "--runtime=amd"),
        ("    runtime: nvidia", "runtime: nvidia"),
        ('    runtime: "nvidia"  # GPUs', 'runtime: "nvidia"'),
        ("            - driver: nvidia", "driver: nvidia"),
        ("  runtimeClassName: nvidia", "runtimeClassName: nvidia"),
        ("NV_GPU=0 nvidia-docker run image", "nvidia-docker run"),
        ("docker run --device=/dev/kfd --device=/dev/dri image", "--device=/dev/kfd"),
        ("Environment=NVIDIA_DRIVER_CAPABILITIES=all", "NVIDIA_DRIVER_CAPABILITIES"),
    ],
)
def test_other_requests_are_found(line: str, found: str) -> None:
    assert [one[0] for one in replaced(line)] == [found]


@pytest.mark.parametrize(
    "line",
    [
        "# docker run --gpus all image",
        "    # runtime: nvidia",
        "docker run --runtime=nvidiaish image",
        "    runtime: runc",
        "    driver: nvidia-docker",
        "docker run --device nvidia.com/gpu=all image",
        "AddDevice=nvidia.com/gpu=0",
        "  nvidia.com/gpu: 1",
        '"default-runtime": "nvidia"',
        'echo "${NVIDIA_VISIBLE_DEVICES:-all}"',
        'if [ "$NVIDIA_VISIBLE_DEVICES" = all ]; then',
        "; podman run --gpus all",
        "// docker run --gpus all",
        "      capabilities: [SYS_ADMIN]",
    ],
)
def test_lines_that_need_no_other_tool_are_ignored(line: str) -> None:
    assert replaced(line) == []


def test_line_numbers_begin_with_1() -> None:
    assert [
        one.line
        for one in find_requests("file", "#!/bin/sh\n\ndocker run --gpus all a\ndocker run --gpus 1 b\n")
    ] == [3, 4]


def test_files_keep_the_order_of_arguments_and_requests_set_exit_code_1(cdigen: Run, tmp_path: Path) -> None:
    script, compose = tmp_path / "start.sh", tmp_path / "compose.yaml"
    script.write_text("docker run --gpus all image\n")
    compose.write_text("services:\n  a:\n    runtime: nvidia\n")
    done = cdigen("doctor", "--json", "--migrate", compose, script)
    assert done.code == 1
    assert [(Path(one["file"]).name, one["line"]) for one in done.json["legacy_requests"]] == [
        ("compose.yaml", 3),
        ("start.sh", 1),
    ]
    text = cdigen("doctor", "--migrate", script)
    assert text.out == f"{script}:1: --gpus all\n   replacement: --device nvidia.com/gpu=all\n"
    script.write_text("docker run --device nvidia.com/gpu=all image\n")
    text = cdigen("doctor", "--migrate", script)
    assert (text.code, text.out) == (0, "these files contain no requests for GPUs that must be replaced\n")


def test_a_line_of_a_mebibyte_is_searched_in_limited_time() -> None:
    began = time.process_time()
    for text in (
        "ctr --gpus 0 ",
        "--gpus='",
        "NVIDIA_VISIBLE_DEVICES  ",
        "- capabilities: [gpu ",
        "- driver:",
        "- driver: nvidia ",
        "{driver: nvidia, device_ids: [",
        "gpus: [{count: 1",
        "--device /dev/kfd ",
    ):
        lines = (1 << 20) // len(text) * text
        assert sum(1 for _ in find_requests("file", lines)) >= 0
    assert time.process_time() - began < PATIENCE_S


def test_an_unreadable_file_is_an_error_of_one_line(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("doctor", "--migrate", tmp_path / "missing")
    assert done.failed(5, "missing", "No such file or directory")


def test_control_bytes_are_printed_escaped(cdigen: Run, tmp_path: Path) -> None:
    file = tmp_path / "start.sh"
    file.write_bytes(b"docker run --gpus \x1b[2J\xff image\n")
    done = cdigen("doctor", "--migrate", file)
    assert "\x1b" not in done.out
    assert cdigen("doctor", "--json", "--migrate", file).json["legacy_requests"][0]["line"] == 1


@pytest.mark.parametrize(
    ("command", "request_", "replacement"),
    [
        (
            "singularity exec --nv a.sif b",
            "singularity exec --nv",
            f"--oci {ALL} (SingularityCE 4.0 or newer)",
        ),
        (
            "/opt/bin/singularity run -B /a:/b --rocm a.sif",
            "singularity run -B /a:/b --rocm",
            "--oci --device amd.com/gpu=all (SingularityCE 4.0 or newer)",
        ),
        (
            "apptainer shell --cleanenv --nv a.sif",
            "apptainer shell --cleanenv --nv",
            f"{ALL} (Apptainer 1.5 or newer, and a spec without hooks: {page_url('how-to/start-up-hook')})",
        ),
    ],
)
def test_the_options_of_apptainer_and_singularity_are_replaced(
    command: str, request_: str, replacement: str
) -> None:
    assert replaced(command) == [(request_, replacement)]


@pytest.mark.parametrize(
    "command", ["singularity exec --nvidia a.sif", "singularity pull --nv", "singularity exec a.sif; x --nv"]
)
def test_other_options_of_singularity_are_no_requests(command: str) -> None:
    assert replaced(command) == []
