"""How scripts, unit and compose files ask for GPUs in other tools' ways, and what they are told to write."""

from pathlib import Path

import pytest
from command import Run

from cdigen.doctor.migration.usage import judge

ALL = "--device nvidia.com/gpu=all"
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
    ],
)
def test_gpus_become_devices_by_name(value: str, write: str) -> None:
    assert judged(f"docker run {value} image") == [(value, write)]


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
        ("void", "leave it out"),
        ("none", "leave it out"),
        ("", "leave it out"),
        ("$GPUS", "--device nvidia.com/gpu=NAME for each name that it stands for"),
        ("${GPUS:-all}", "--device nvidia.com/gpu=NAME for each name that it stands for"),
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
    ("line", "found"),
    [
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


def test_a_file_that_cannot_be_read_is_one_line(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("doctor", "--migrate", tmp_path / "missing")
    assert done.failed(5, "missing", "No such file or directory")


def test_bytes_that_a_terminal_would_obey_are_shown(cdigen: Run, tmp_path: Path) -> None:
    file = tmp_path / "start.sh"
    file.write_bytes(b"docker run --gpus \x1b[2J\xff image\n")
    done = cdigen("doctor", "--migrate", file)
    assert "\x1b" not in done.out
    assert cdigen("doctor", "--json", "--migrate", file).json["uses"][0]["line"] == 1
