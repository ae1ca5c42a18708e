"""The example nvidia-docker: the arguments that Docker receives, with cdigen and the tree of a host.

A double of Docker records its calls, and has the images IMAGES.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.paths import REPOSITORY
from support.processes import captured

if TYPE_CHECKING:
    import subprocess

COMMAND = REPOSITORY / "examples/nvidia-docker/nvidia-docker"
DOCKER = """#!{python}
import json, os, sys
from pathlib import Path
folder = Path(__file__).parent
with open(folder / "calls", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
words = sys.argv[1:]
if "inspect" in words:
    images = json.loads((folder / "images").read_text())
    if words[-1] not in images:
        sys.exit("no such image")
    print(json.dumps([{{"Config": images[words[-1]]}}]))
if "pull" in words:
    print("pulling")
    if "absent" in words[-1]:
        sys.exit(1)
    images = json.loads((folder / "images").read_text())
    (folder / "images").write_text(json.dumps(images | {{words[-1]: images["labelled"]}}))
"""
CDIGEN = """#!/bin/sh
command=$1
shift
exec {python} -m cdigen "$command" --root {root} "$@"
"""
LABELS = {"com.nvidia.volumes.needed": "nvidia_driver", "com.nvidia.cuda.version": "8.0"}
IMAGES = {
    "plain": {"Labels": None, "Env": ["PATH=/bin"]},
    "labelled": {"Labels": LABELS, "Env": None},
    "newer": {"Labels": {**LABELS, "com.nvidia.cuda.version": "99.0"}, "Env": []},
    "requiring": {"Labels": {}, "Env": ["NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_REQUIRE_CUDA=cuda>=99.0"]},
    "requests-gpus": {"Labels": {}, "Env": ["NVIDIA_VISIBLE_DEVICES=1"]},
    "void": {"Labels": LABELS, "Env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    "--": {"Labels": LABELS, "Env": []},
}
ALL = "--device=nvidia.com/gpu=all"
FIRST, SECOND = "--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1"
HOSTILE = "a b\n$(touch /tmp/x);`id` '\" \\ \x1b[2J"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """The command, with fake Docker and cdigen in PATH."""

    folder: Path

    def __call__(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        (self.folder / "calls").write_text("")
        return captured(
            [sys.executable, COMMAND, *arguments], env={"PATH": f"{self.folder}:/usr/bin:/bin", **environment}
        )

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each call of Docker."""
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def becomes(self, *arguments: str, **environment: str) -> list[str]:
        """Return the arguments of Docker's last call for ARGUMENTS, which must succeed."""
        done = self(*arguments, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        return self.calls[-1]


@pytest.fixture
def wrapped(tmp_path: Path, host: Path) -> Wrapped:
    inventory = REPOSITORY / "examples/hosts/debian13-8xh100.json"
    (host / "run/cdigen").mkdir(parents=True, exist_ok=True)
    (host / "run/cdigen/inventory.json").write_text(inventory.read_text())
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "images").write_text(json.dumps(IMAGES))
    for name, text in {
        "docker": DOCKER.format(python=sys.executable),
        "cdigen": CDIGEN.format(python=sys.executable, root=host),
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return Wrapped(folder=folder)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["ps", "-a", "run", "labelled"],
        ["--version"],
        ["version"],
        ["-v", "run", "--help"],
        ["run", "--help", "labelled"],
        ["run", "-it"],
        ["container", "ls", HOSTILE],
        ["exec", "run", "--gpus", "all"],
        ["run", "--env", "labelled"],
        ["", "run", "labelled"],
        ["--", "run", "labelled"],
    ],
)
def test_a_command_that_starts_no_container_is_passed_to_docker_unchanged(
    wrapped: Wrapped, arguments: list[str]
) -> None:
    assert wrapped.becomes(*arguments, NV_GPU="0") == arguments
    assert len(wrapped.calls) == 1


@pytest.mark.parametrize("command", [["run"], ["create"], ["container", "run"], ["container", "create"]])
def test_only_an_image_with_the_label_of_nvidia_docker_1_0_gets_all_gpus(
    wrapped: Wrapped, command: list[str]
) -> None:
    assert wrapped.becomes(*command, "labelled", "sh") == [*command, ALL, "labelled", "sh"]
    assert wrapped.becomes(*command, "plain", "sh", NV_GPU="0") == [*command, "plain", "sh"]
    assert wrapped.becomes(*command, "void") == [*command, "void"]


@pytest.mark.parametrize(
    ("nv_gpu", "devices"),
    [
        ("", [ALL]),
        (" ", [ALL]),
        ("all", [ALL]),
        ("1", [SECOND]),
        ("0,1", [FIRST, SECOND]),
        ("1 0", [FIRST, SECOND]),
        ("nvidia.com/gpu=1", [SECOND]),
    ],
)
def test_nv_gpu_selects_the_gpus_of_an_image_that_requests_gpus(
    wrapped: Wrapped, nv_gpu: str, devices: list[str]
) -> None:
    assert wrapped.becomes("run", "--rm", "labelled", NV_GPU=nv_gpu) == ["run", *devices, "--rm", "labelled"]
    of_image = [SECOND] if not nv_gpu.strip() else devices
    assert wrapped.becomes("run", "requests-gpus", NV_GPU=nv_gpu) == ["run", *of_image, "requests-gpus"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--runtime=nvidia"], []),
        (
            ["--runtime", "nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=0"],
            [FIRST, "-e", "NVIDIA_VISIBLE_DEVICES=0"],
        ),
        (["--runtime", "runc"], ["--runtime", "runc"]),
        (["-eNVIDIA_VISIBLE_DEVICES=1"], [SECOND, "-eNVIDIA_VISIBLE_DEVICES=1"]),
        (["-ite=NVIDIA_VISIBLE_DEVICES=1"], [SECOND, "-ite=NVIDIA_VISIBLE_DEVICES=1"]),
        (["--env=NVIDIA_VISIBLE_DEVICES=all"], [ALL, "--env=NVIDIA_VISIBLE_DEVICES=all"]),
        (["--env", "NVIDIA_VISIBLE_DEVICES"], [FIRST, "--env", "NVIDIA_VISIBLE_DEVICES"]),
        (["--env=NVIDIA_VISIBLE_DEVICES=none"], ["--env=NVIDIA_VISIBLE_DEVICES=none"]),
        (["--gpus", "all"], [ALL]),
        (["--gpus=all,capabilities=utility"], [ALL]),
        (["--gpus", "2"], [FIRST, SECOND]),
        (["--gpus=device=1"], [SECOND]),
        (["--gpus", '"device=0,1",capabilities=compute'], [FIRST, SECOND]),
        (["--gpus", "capabilities=gpu"], [FIRST]),
        (["--gpus", "0"], []),
        (["--device", "nvidia.com/gpu=1"], ["--device", "nvidia.com/gpu=1"]),
        (
            ["-v", "run:/a", "-w", "/b", "--device", "/dev/null"],
            ["-v", "run:/a", "-w", "/b", "--device", "/dev/null"],
        ),
        (["-itv", "--gpus:/a"], ["-itv", "--gpus:/a"]),
        (["--name", "--gpus=all"], ["--name", "--gpus=all"]),
        (["--label", HOSTILE, "-e", f"A={HOSTILE}"], ["--label", HOSTILE, "-e", f"A={HOSTILE}"]),
        (["--rm=false", "-d", "--init", "--sig-proxy"], ["--rm=false", "-d", "--init", "--sig-proxy"]),
    ],
)
def test_options_for_gpus_become_cdi_names_and_other_options_stay(
    wrapped: Wrapped, options: list[str], expected: list[str]
) -> None:
    after_options = ["plain", "--gpus", "all", "-e", "NVIDIA_VISIBLE_DEVICES=0", "--", HOSTILE, ""]
    called = wrapped.becomes("run", *options, *after_options, NVIDIA_VISIBLE_DEVICES="0")
    assert called == ["run", *expected, *after_options]


def test_the_image_may_follow_two_dashes(wrapped: Wrapped) -> None:
    assert wrapped.becomes("run", "-t", "--", "labelled", "x") == ["run", ALL, "-t", "--", "labelled", "x"]
    assert wrapped.becomes("run", "--", "--", "x") == ["run", ALL, "--", "--", "x"]


def test_global_options_and_nv_docker_apply_to_every_call_of_docker(wrapped: Wrapped) -> None:
    flags = ["-D", "--log-level", "warn", "--config=/a b"]
    called = wrapped.becomes(*flags, "run", "labelled", NV_DOCKER=f"{wrapped.folder}/docker --tls")
    assert called == ["--tls", *flags, "run", ALL, "labelled"]
    assert wrapped.calls[0] == ["--tls", *flags, "image", "inspect", "--", "labelled"]


@pytest.mark.parametrize("flags", [["-H", "tcp://far:1"], ["--context=far"], ["-Hssh://far"]])
def test_names_for_a_remote_docker_are_not_resolved_on_this_host(wrapped: Wrapped, flags: list[str]) -> None:
    called = wrapped.becomes(*flags, "run", "newer", NV_GPU="7")
    assert called == [*flags, "run", "--device=nvidia.com/gpu=7", "newer"]
    assert wrapped.becomes("run", "newer", NV_GPU="7", DOCKER_HOST="tcp://far")[1].endswith("=7")


@pytest.mark.parametrize(
    ("arguments", "environment", "reason"),
    [
        (["labelled"], {"NV_GPU": "99"}, "invalid device: 99"),
        (["labelled"], {"NV_GPU": "none"}, "invalid device: none"),
        (["labelled"], {"NV_GPU": "GPU-none"}, "invalid device: GPU-none"),
        (["labelled"], {"NV_GPU": "--help"}, "invalid device: --help"),
        (["labelled"], {"NV_GPU": "../..;id"}, "invalid device: ../..;id"),
        (["--gpus", "9", "plain"], {}, "invalid device:"),
        (["--gpus", "device=0,1", "plain"], {}, "cannot be expressed as CDI names"),
        (["--gpus", "driver=other", "plain"], {}, "cannot be expressed as CDI names"),
        (["--gpus", 'all,"x\n', "plain"], {}, "cannot be expressed as CDI names"),
        (["--gpus", "many", "plain"], {}, "names no number of GPUs"),
        (["--gpus", "²", "plain"], {}, "names no number of GPUs"),
        (["newer"], {}, "newer: com.nvidia.cuda.version='cuda>=99.0' is not met: the host has"),
        (["requiring"], {}, "requiring: NVIDIA_REQUIRE_CUDA='cuda>=99.0' is not met"),
        (["labelled"], {"NV_HOST": "http://far:3476"}, "CDI names are resolved where the container starts"),
        (["absent\x1b"], {}, "no such image"),
        (["--pull=never", "elsewhere"], {}, "no such image"),
        (["labelled"], {"NV_DOCKER": "/none/docker"}, "/none/docker cannot be run"),
    ],
)
def test_a_refused_command_ends_with_exit_code_1_and_the_reason_and_starts_no_container(
    wrapped: Wrapped, arguments: list[str], environment: dict[str, str], reason: str
) -> None:
    done = wrapped("run", *arguments, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert [call for call in wrapped.calls if "run" in call] == []
    if not arguments[-1].startswith("absent"):
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_requirement_is_not_checked_if_the_user_disables_it(wrapped: Wrapped) -> None:
    disabled = ["--env", "NVIDIA_DISABLE_REQUIRE=1"]
    assert wrapped.becomes("run", *disabled, "newer") == ["run", ALL, *disabled, "newer"]


def test_the_nri_plugins_devices_for_the_image_are_ignored(wrapped: Wrapped, host: Path) -> None:
    (host / "etc/cdigen").mkdir(parents=True, exist_ok=True)
    (host / "etc/cdigen/config.yaml").write_text("nri: {allow: [{namespaces: [default]}]}\n")
    assert wrapped.becomes("run", "requests-gpus", NV_GPU="0") == ["run", FIRST, "requests-gpus"]


def test_a_missing_image_is_pulled_without_text_on_standard_output(wrapped: Wrapped) -> None:
    done = wrapped("run", "--platform", "linux/amd64", "elsewhere")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "pulling\n")
    assert wrapped.calls[1] == ["pull", "--platform=linux/amd64", "--", "elsewhere"]
    assert wrapped.calls[-1] == ["run", ALL, "--platform", "linux/amd64", "elsewhere"]
    assert wrapped("run", "--pull", "always", "labelled").stderr == "pulling\n"
