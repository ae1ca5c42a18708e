"""How scripts, unit and compose files ask for GPUs in other tools' ways, and what they are told to write."""

import time
from pathlib import Path

import pytest
from support.command.fixtures import Run

from cdigen.doctor.migration.usage import judge

ALL = "--device nvidia.com/gpu=all"
IN_IMAGE = "leave it out of the image, and name the device where its container starts"
AMD_BOTH = "--device amd.com/gpu=0 --device amd.com/gpu=1"
NAMED = "--device nvidia.com/gpu=NAME for each name that it stands for"
UNREAD = "leave it out, once no runtime is left that reads it: until then it keeps GPUs out"
BOTH = "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1"


def judged(line: str) -> list[tuple[str, str]]:
    return [(use.found, use.write) for use in judge("file", line)]


@pytest.mark.parametrize(
    ("value", "write"),
    [
        ("--gpus all", ALL),
        ("--gpus=all", ALL),
        ('--gpus "all"', ALL),
        ("--gpus 2", f"{BOTH} (CDI has names and no counts)"),
        ("--gpus device=1", "--device nvidia.com/gpu=1"),
        ("""--gpus '"device=0,2"'""", "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2"),
        (r'--gpus "\"device=0,2\""', "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2"),
        ("--gpus device=GPU-3c7f", "--device nvidia.com/gpu=GPU-3c7f"),
        ("--gpus 'all,capabilities=utility'", ALL),
        ("--gpus 99999999999", ALL),
        ("--gpus 65", ALL),
        ("--gpus count=2", f"{BOTH} (CDI has names and no counts)"),
        ("--gpus 0", "leave it out"),
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
def test_gpus_become_devices_by_name(value: str, write: str) -> None:
    assert judged(f"docker run {value} image") == [(value, write)]


@pytest.mark.parametrize(
    ("line", "found", "write"),
    [
        ('run(["docker", "run", "--gpus", "all"])', '--gpus", "all"', ALL),
        ("id=$(docker create --gpus all)", "--gpus all", ALL),
        ("ctr run --gpus 2 image name", "--gpus 2", "--device nvidia.com/gpu=2"),
        ("PodmanArgs=--gpus=all", "--gpus=all", ALL),
    ],
)
def test_gpus_are_found_wherever_they_stand(line: str, found: str, write: str) -> None:
    assert judged(line) == [(found, write)]


def test_gpus_that_go_by_cdi_are_well() -> None:
    assert judged("docker run --gpus driver=cdi,device=nvidia.com/gpu=1 image") == []


@pytest.mark.parametrize(
    ("value", "write"),
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
def test_the_variable_becomes_devices_by_name(line: str, value: str, write: str) -> None:
    assert [found[1] for found in judged(line.format(value))] == [write]


@pytest.mark.parametrize(
    ("line", "write"),
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
            "- name: NVIDIA_VISIBLE_DEVICES",
            "keep it where 'cdigen nri' goes by it (docs/nri.md), else leave it out",
        ),
    ],
)
def test_the_variable_is_found_in_other_files(line: str, write: str) -> None:
    assert [found[1] for found in judged(line)] == [write]


RESERVED = """
        devices:
          - {dash}
            device_ids:
              - nvidia.com/gpu=0

            capabilities: [gpu]
          - driver: cdi
"""


@pytest.mark.parametrize(("driver", "lines"), [("driver: cdi", []), ("count: 1", [7])])
def test_a_reservation_without_a_driver_is_one_of_nvidias(driver: str, lines: list[int]) -> None:
    assert [use.line for use in judge("file", RESERVED.format(dash=driver))] == lines
    in_one_line = f"- {{capabilities: [gpu], {driver}}}"
    assert len(judged(in_one_line)) == len(lines)


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
def test_other_ways_of_asking_are_found(line: str, found: str) -> None:
    assert [use[0] for use in judged(line)] == [found]


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
def test_what_needs_no_other_tool_is_passed_over(line: str) -> None:
    assert judged(line) == []


def test_lines_are_counted_as_editors_do() -> None:
    assert [
        use.line for use in judge("file", "#!/bin/sh\n\ndocker run --gpus all a\ndocker run --gpus 1 b\n")
    ] == [3, 4]


def test_files_are_judged_in_their_order_and_the_exit_code_says_whether_there_is_anything(
    cdigen: Run, tmp_path: Path
) -> None:
    script, compose = tmp_path / "start.sh", tmp_path / "compose.yaml"
    script.write_text("docker run --gpus all image\n")
    compose.write_text("services:\n  a:\n    runtime: nvidia\n")
    done = cdigen("doctor", "--json", "--migrate", compose, script)
    assert done.code == 1
    assert [(Path(use["file"]).name, use["line"]) for use in done.json["uses"]] == [
        ("compose.yaml", 3),
        ("start.sh", 1),
    ]
    said = cdigen("doctor", "--migrate", script)
    assert said.out == f"{script}:1: --gpus all\n   write: --device nvidia.com/gpu=all\n"
    script.write_text("docker run --device nvidia.com/gpu=all image\n")
    said = cdigen("doctor", "--migrate", script)
    assert (said.code, said.out) == (0, "nothing in these files needs another tool\n")


def test_a_line_of_a_mebibyte_takes_no_longer_than_many_lines() -> None:
    began = time.process_time()
    for text in (
        "ctr --gpus 0 ",
        "--gpus='",
        "NVIDIA_VISIBLE_DEVICES  ",
        "- capabilities: [gpu ",
        "- driver:",
    ):
        lines = (1 << 20) // len(text) * text
        assert sum(1 for _ in judge("file", lines)) >= 0
    assert time.process_time() - began < 20


def test_a_file_that_cannot_be_read_is_one_line(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("doctor", "--migrate", tmp_path / "missing")
    assert done.failed(5, "missing", "No such file or directory")


def test_bytes_that_a_terminal_would_obey_are_shown(cdigen: Run, tmp_path: Path) -> None:
    file = tmp_path / "start.sh"
    file.write_bytes(b"docker run --gpus \x1b[2J\xff image\n")
    done = cdigen("doctor", "--migrate", file)
    assert "\x1b" not in done.out
    assert cdigen("doctor", "--json", "--migrate", file).json["uses"][0]["line"] == 1
